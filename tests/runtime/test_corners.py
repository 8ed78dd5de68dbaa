"""Odd networks: constants as outputs, tensors that bear names which the compiler makes up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from engine.graph import load_proto
from engine.graph.partition import lower
from engine.runtime.build import compile_network
from engine.runtime.network import CompiledNetwork
from engine.target import host

Arrays = dict[str, NDArray[Any]]
node = helper.make_node


def network(
    nodes: list[NodeProto], inputs: dict[str, list[int]], outputs: list[str], constants: Arrays
) -> CompiledNetwork:
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()
    ]
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(
        nodes, "corner", infos, [ValueInfoProto(name=n) for n in outputs], arrays
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return compile_network(lower(load_proto(proto), host()), threads=2)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([3, -1]),
        np.array(True),
        np.zeros((0, 2), np.float32),
    ],
)
def test_constants_may_be_outputs(array: NDArray[Any]) -> None:
    net = network(
        [node("Identity", ["c"], ["same"]), node("Relu", ["x"], ["y"])],
        {"x": [3]}, ["c", "same", "y"], {"c": array},
    )  # fmt: skip
    found = net.run({"x": np.array([-1, 0, 2], np.float32)})
    np.testing.assert_array_equal(found["y"], [0, 0, 2])
    for name in ("c", "same"):
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_network_without_inputs() -> None:
    net = network([node("Add", ["c", "c"], ["y"])], {}, ["y"], {"c": np.ones(2, np.float32)})
    np.testing.assert_array_equal(net.run({})["y"], [2, 2])


def test_tensors_with_the_names_of_reshaped_constants() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 4, 6, 6)).astype(np.float32)
    column = rng.standard_normal((4, 1, 1)).astype(np.float32)
    row = rng.standard_normal((6,)).astype(np.float32)
    net = network(
        [node("Add", ["x", "w"], ["y"]), node("Add", ["y", "w::[4]"], ["z"])],
        {"x": [1, 4, 6, 6]}, ["z"], {"w": column, "w::[4]": row},
    )  # fmt: skip
    np.testing.assert_allclose(net.run({"x": x})["z"], x + column + row, atol=1e-5)


def test_tensors_with_the_names_of_made_up_constants() -> None:
    rng = np.random.default_rng(2)
    x = np.ones((1, 2, 6, 6), np.float32)
    plane = rng.standard_normal((6, 6)).astype(np.float32)
    net = network(
        [
            node("AveragePool", ["x"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("Add", ["p", "z::reciprocal"], ["z"]),
        ],
        {"x": [1, 2, 6, 6]}, ["z"], {"z::reciprocal": plane},
    )  # fmt: skip
    np.testing.assert_allclose(net.run({"x": x})["z"], x + plane, atol=1e-5)


def test_tensors_with_the_names_of_copies() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 4, 5, 5)).astype(np.float32)
    weight = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
    names = ["x@blocked", "x@blocked@inner", "y@inner"]
    nodes = [node("Conv", [a, "w"], [b]) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
    net = network(nodes, {"x": [1, 4, 5, 5]}, [*names, "y"], {"w": weight})
    found = net.run({"x": x})
    for name in (*names, "y"):
        x = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], x)
        np.testing.assert_allclose(found[name], x, atol=1e-3)
