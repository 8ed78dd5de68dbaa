"""resnet-50 has the layers of the tutorial that this project re-creates.

The data file lists its 29 search tasks in channels-last shapes, with the number of times each
occurs.  A task is one layer with the element-wise layers that follow it alone.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import onnx

from engine import zoo

DATA = Path(__file__).resolve().parent.parent / "data" / "resnet50_tasks.json"
ANCHORS = {
    "Conv": "conv2d",
    "MaxPool": "max_pool2d",
    "GlobalAveragePool": "global_avg_pool2d",
    "Gemm": "dense",
    "Softmax": "softmax",
}
Row = tuple[str, tuple[int, ...], tuple[int, ...], int, int, bool, bool, tuple[int, ...]]


class Layers:
    """The built network's nodes with their shapes and consumers."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = onnx.shape_inference.infer_shapes(model).graph
        self.nodes = list(graph.node)
        self.shapes = {
            value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            for value in (*graph.value_info, *graph.input, *graph.output)
        }
        self.shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self.users: dict[str, list[onnx.NodeProto]] = {}
        self.makers = {node.output[0]: index for index, node in enumerate(self.nodes)}
        for node in self.nodes:
            for name in node.input:
                self.users.setdefault(name, []).append(node)

    def rows(self) -> Counter[Row]:
        return Counter(self._row(node) for node in self.nodes if node.op_type in ANCHORS)

    def _row(self, node: onnx.NodeProto) -> Row:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        followers = self._followers(node)
        return (
            ANCHORS[node.op_type],
            channels_last(self.shapes[node.input[0]]),
            self._window(node, attributes),
            attributes.get("strides", [1])[0],
            attributes.get("pads", [0])[0],
            "Add" in followers,
            "Relu" in followers,
            channels_last(self.shapes[node.output[0]]),
        )

    def _window(self, node: onnx.NodeProto, attributes: dict[str, object]) -> tuple[int, ...]:
        if node.op_type == "Conv":
            out_channels, in_channels, *kernel = self.shapes[node.input[1]]
            return (*kernel, in_channels, out_channels)
        if node.op_type == "Gemm":
            return self.shapes[node.input[1]]
        return tuple(attributes.get("kernel_shape", ()))

    def _followers(self, node: onnx.NodeProto) -> list[str]:
        followers: list[str] = []
        value = node.output[0]
        while len(users := self.users.get(value, [])) == 1:
            (user,) = users
            if user.op_type == "Add" and value != max(user.input, key=self._order):
                break  # the sum belongs to its later operand
            if user.op_type not in ("BatchNormalization", "Relu", "Add"):
                break
            followers.append(user.op_type)
            value = user.output[0]
        return followers

    def _order(self, value: str) -> int:
        return self.makers.get(value, -1)


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape


def published() -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for task in json.loads(DATA.read_text())["tasks"]:
        row: Row = (
            task["anchor"],
            tuple(task["data"]),
            tuple(task["weight"] or ()),
            task["stride"],
            task["pad"],
            "residual_add" in task["epilogue"],
            "relu" in task["epilogue"],
            tuple(task["output"]),
        )
        rows[row] += task["weight_count"]
    return rows


def test_torchvisions_resnet50_is_another_network() -> None:
    assert Layers(zoo.build("resnet-50-v1.5")).rows() != published()


def test_resnet50_is_the_tutorials_network() -> None:
    expected = published()
    assert (len(expected), expected.total()) == (29, 57)
    assert Layers(zoo.build("resnet-50")).rows() == expected
