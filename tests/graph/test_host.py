"""Host calls: one node at a time, by either backend, whatever changes between calls."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import floats, model, node

from engine.errors import InputError, ModelError
from engine.graph import load_proto
from engine.graph.dialect import DIALECT_OPSET, OPSET_ATTR
from engine.graph.host import run_graph, run_node
from engine.graph.ir import Node

BACKENDS = pytest.mark.parametrize("backend", [True, False], ids=["onnxruntime", "reference"])


@BACKENDS
def test_small_inputs_may_change_between_calls(backend: bool) -> None:
    """A kept session must not remember the values of an earlier call."""
    gather = Node("g", "Gather", ("x", "i"), ("y",), {"axis": 0})
    x = floats(5, 3)
    for index in ([0, 1], [4, 2], [-1, 0]):
        (y,) = run_node(gather, DIALECT_OPSET, [x, np.array(index)], use_onnxruntime=backend)
        np.testing.assert_array_equal(y, x[index])


@BACKENDS
def test_one_array_at_two_inputs(backend: bool) -> None:
    add = Node("a", "Add", ("x", "x"), ("y",))
    x = floats(4)
    (y,) = run_node(add, DIALECT_OPSET, [x, x], use_onnxruntime=backend)
    np.testing.assert_array_equal(y, x + x)


@BACKENDS
def test_attributes_that_came_through_json(backend: bool) -> None:
    """A compiled network's manifest holds lists where the graph had tuples."""
    x = floats(2, 3, 4)
    reshape = Node("r", "Reshape", ("x",), ("y",), {"shape": [6, 4]})
    (y,) = run_node(reshape, DIALECT_OPSET, [x], use_onnxruntime=backend)
    np.testing.assert_array_equal(y, x.reshape(6, 4))
    scalar = Node("r", "Reshape", ("x",), ("y",), {"shape": []})
    (y,) = run_node(scalar, DIALECT_OPSET, [x[:1, :1, 0]], use_onnxruntime=backend)
    assert y.shape == ()


@BACKENDS
def test_omitted_outputs_hold_their_place(backend: bool) -> None:
    lstm = Node("l", "LSTM", ("x", "w", "r"), ("", "", "c"), {"hidden_size": 2})
    arrays = [floats(3, 1, 4), floats(1, 8, 4, seed=1), floats(1, 8, 2, seed=2)]
    whole = Node("l", "LSTM", ("x", "w", "r"), ("y", "h", "c"), {"hidden_size": 2})
    found = run_node(lstm, DIALECT_OPSET, arrays, use_onnxruntime=backend)
    want = run_node(whole, DIALECT_OPSET, arrays, use_onnxruntime=backend)
    assert len(found) == 3 and found[2].shape == (1, 1, 2)
    np.testing.assert_allclose(found[2], want[2], rtol=1e-6)


@BACKENDS
def test_a_node_may_keep_an_older_meaning(backend: bool) -> None:
    """Hardmax before operator set 13 treats all axes from 1 on as one."""
    x = floats(2, 3, 4)
    old = Node("h", "Hardmax", ("x",), ("y",), {"axis": 1, OPSET_ATTR: 11})
    (y,) = run_node(old, DIALECT_OPSET, [x], use_onnxruntime=True)
    assert y.reshape(2, -1).sum(1).tolist() == [1, 1]
    new = Node("h", "Hardmax", ("x",), ("y",), {"axis": 1})
    (y,) = run_node(new, DIALECT_OPSET, [x], use_onnxruntime=backend)
    np.testing.assert_array_equal(y.sum(1), np.ones((2, 4)))


def test_what_no_backend_runs() -> None:
    unknown = Node("u", "Unheard", ("x",), ("y",), {}, "ai.onnx.ml")
    with pytest.raises(ModelError, match=r"operator ai\.onnx\.ml::Unheard .* cannot be run"):
        run_node(unknown, 3, [floats(2)])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": floats(3)}, r"input 'x' is float32\[3\].*Give float32\[2\]"),
        ({"x": np.zeros(2)}, r"input 'x' is float64\[2\]"),
        ({"x": floats(2), "z": floats(2)}, "no input 'z'.*The inputs are: x"),
    ],
)
def test_wrong_feeds(feeds: dict[str, np.ndarray], message: str) -> None:
    graph = load_proto(model([node("Relu", "x", "y")], {"x": [2]}, ["y"]))
    with pytest.raises(InputError, match=message):
        run_graph(graph, feeds)


def test_results_do_not_alias_inputs_or_each_other() -> None:
    graph = load_proto(model([node("Identity", "x", "y")], {"x": [2]}, ["y", "x"]))
    x = floats(2)
    got = run_graph(graph, {"x": x})
    kept = x.copy()
    x[:] = 0
    np.testing.assert_array_equal(got["y"], kept)
    np.testing.assert_array_equal(got["x"], kept)
    got["x"][:] = 5
    np.testing.assert_array_equal(got["y"], kept)


def test_values_in_between_can_be_kept() -> None:
    nodes = [node("Exp", "x", "h"), node("Neg", "h", "y")]
    graph = load_proto(model(nodes, {"x": [2]}, ["y"]))
    x = floats(2)
    got = run_graph(graph, {"x": x}, keep=("h",))
    np.testing.assert_allclose(got["h"], np.exp(x), rtol=1e-6)
