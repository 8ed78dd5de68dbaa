"""Layer normalisation in its usual spellings becomes one node, and only where nothing looks in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import floats, model, node, ops

from engine.graph import load_proto
from engine.graph.host import run_graph


def spelled_out(square: str, last: int = 7, axis: int = -1) -> tuple[list[Any], dict[str, Any]]:
    """The first `last` nodes of a layer normalisation over one axis of x[2,3,8]."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[axis]),
        node("Sub", "x m", "d"),
        node("Pow", "d two", "q") if square == "Pow" else node("Mul", "d d", "q"),
        node("ReduceMean", "q", "v", axes=[axis]),
        node("Add", "eps v", "s"),
        node("Sqrt", "s", "r"),
        node("Div", "d r", "n"),
        node("Mul", "n scale", "y"),
        node("Add", "bias y", "z"),
    ]
    constants = {
        "two": np.float32(2),
        "eps": np.float32(1e-3),
        "scale": floats(8),
        "bias": floats(8, seed=1),
    }
    return nodes[: last + 2], constants


def compare(m: onnx.ModelProto) -> list[str]:
    from onnx.reference import ReferenceEvaluator

    graph = load_proto(m)
    feeds = {"x": 3 * floats(2, 3, 8, seed=5) + 1}
    wants = ReferenceEvaluator(m).run(None, feeds)
    got = run_graph(graph, feeds, use_onnxruntime=False)
    for name, want in zip(graph.outputs, wants, strict=True):
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)
    return ops(graph)


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize(("last", "output"), [(7, "z"), (6, "y"), (5, "n")])
def test_spellings(square: str, last: int, output: str) -> None:
    nodes, constants = spelled_out(square, last)
    m = model(nodes, {"x": [2, 3, 8]}, [output], constants, opset=13)
    assert compare(m) == ["LayerNormalization"]


@pytest.mark.parametrize("seen", ["m", "d", "v", "r"])
def test_inner_values_that_leave_the_graph_stay(seen: str) -> None:
    nodes, constants = spelled_out("Pow")
    m = model(nodes, {"x": [2, 3, 8]}, ["z", seen], constants, opset=13)
    assert "LayerNormalization" not in compare(m)


def test_an_outer_output_ends_the_pattern() -> None:
    nodes, constants = spelled_out("Pow")
    m = model(nodes, {"x": [2, 3, 8]}, ["z", "n"], constants, opset=13)
    assert compare(m) == ["LayerNormalization", "Mul", "Add"]


def test_other_axes_are_left_alone() -> None:
    nodes, constants = spelled_out("Pow", axis=1)
    m = model(nodes, {"x": [2, 3, 8]}, ["z"], constants, opset=13)
    assert "LayerNormalization" not in compare(m)
