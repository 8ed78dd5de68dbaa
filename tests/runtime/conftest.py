"""Two small networks: one of kernels only, one with host calls and integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.graph import Graph, load_proto
from engine.graph.partition import lower
from engine.graph.task import LoweredGraph
from engine.runtime.build import compile_network
from engine.runtime.network import CompiledNetwork
from engine.target import host

Node = Callable[..., onnx.NodeProto]


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int]]],
    outputs: dict[str, tuple[int, list[int]]],
    weights: dict[str, tuple[int, ...]],
) -> Graph:
    rng = np.random.default_rng(1)
    arrays = [
        numpy_helper.from_array((rng.standard_normal(s) / 4).astype(np.float32), n)
        for n, s in weights.items()
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "small", [info(n, *t) for n, t in inputs.items()],
        [info(n, *t) for n, t in outputs.items()], arrays,
    )  # fmt: skip
    return load_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


@pytest.fixture(scope="session")
def small_graph() -> Graph:
    """Padded convolutions over a residual, ragged channels (20), two outputs."""
    op: Node = helper.make_node
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        op("Conv", ["x", "w1", "b1"], ["c1"], **pads),
        op("Relu", ["c1"], ["r1"]),
        op("Conv", ["r1", "w2"], ["c2"], **pads),
        op("Add", ["c2", "r1"], ["s"]),
        op("Relu", ["s"], ["r2"]),
        op("MaxPool", ["r2"], ["p"], kernel_shape=[3, 3], strides=[2, 2], **pads),
        op("Conv", ["p", "w3"], ["y"]),
        op("GlobalAveragePool", ["p"], ["g"]),
        op("Flatten", ["g"], ["f"]),
        op("Gemm", ["f", "w4", "b4"], ["d"]),
        op("Softmax", ["d"], ["z"]),
    ]
    f = TensorProto.FLOAT
    return model(
        nodes, {"x": (f, [1, 3, 12, 12])}, {"y": (f, [1, 5, 6, 6]), "z": (f, [1, 10])},
        {"w1": (20, 3, 3, 3), "b1": (20,), "w2": (20, 20, 3, 3), "w3": (5, 20, 1, 1),
         "w4": (20, 10), "b4": (10,)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def mixed_graph() -> Graph:
    """Kernels, then host calls that also move integers, then kernels again."""
    op: Node = helper.make_node
    axis = numpy_helper.from_array(np.array(1))
    nodes = [
        op("Constant", [], ["axis"], value=axis),
        op("Gemm", ["x", "w1"], ["h"]),
        op("Relu", ["h"], ["r"]),
        op("CumSum", ["r", "axis"], ["t"]),
        op("ArgMax", ["t"], ["best"], axis=1, keepdims=0),
        op("Add", ["best", "shift"], ["index"]),
        op("Gemm", ["t", "w2"], ["y"]),
    ]
    f, i = TensorProto.FLOAT, TensorProto.INT64
    return model(
        nodes,
        {"x": (f, [2, 8]), "shift": (i, [2])},
        {"y": (f, [2, 4]), "index": (i, [2])},
        {"w1": (8, 16), "w2": (16, 4)},
    )


@pytest.fixture(scope="session")
def small_lowered(small_graph: Graph) -> LoweredGraph:
    return lower(small_graph, host())


@pytest.fixture(scope="session")
def small(small_lowered: LoweredGraph) -> CompiledNetwork:
    return compile_network(small_lowered, threads=2)


@pytest.fixture(scope="session")
def mixed(mixed_graph: Graph) -> CompiledNetwork:
    return compile_network(lower(mixed_graph, host()), threads=2)
