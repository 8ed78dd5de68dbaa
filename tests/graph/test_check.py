"""The consistency check finds what is wrong with a lowered network."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx_models import floats, model, node

from engine.expr import row_major
from engine.graph import load_proto
from engine.graph.check import check
from engine.graph.partition import lower
from engine.target import named


@pytest.fixture
def lowered():
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Conv", "x v", "b", pads=[1, 1, 1, 1]),
        node("Concat", "a b", "c", axis=1), node("GlobalAveragePool", "c", "g"),
        node("Flatten", "g", "f"), node("MatMul", "f m", "y"),
    ]  # fmt: skip
    constants = {"w": floats(16, 3, 3, 3), "v": floats(16, 3, 3, 3), "m": floats(32, 5)}
    return lower(load_proto(model(nodes, {"x": (1, 3, 6, 6)}, ["y"], constants)), named("avx512"))


def stored(lowered, **changed):
    """The network with other storage; the steps follow."""
    storage = {**lowered.storage, **changed}
    steps = tuple(
        replace(s, layouts={n: storage[s.bindings[n]][1] for n in s.layouts}) for s in lowered.steps
    )
    return replace(lowered, storage=storage, steps=steps)


def test_a_sound_network_passes(lowered):
    check(lowered)


def test_steps_in_the_wrong_order(lowered):
    with pytest.raises(ValueError, match="too early"):
        check(replace(lowered, steps=lowered.steps[::-1]))


def test_a_step_that_is_missing(lowered):
    with pytest.raises(ValueError, match="never written"):
        check(replace(lowered, steps=lowered.steps[:-1]))


def test_parts_that_overlap(lowered):
    with pytest.raises(ValueError, match="overwrites"):
        check(stored(lowered, b=lowered.storage["a"]))


def test_a_view_that_leaves_its_buffer(lowered):
    buffer, layout = lowered.storage["b"]
    with pytest.raises(ValueError, match="leaves its buffer"):
        check(stored(lowered, b=(buffer, replace(layout, offset=layout.offset + layout.size // 2))))


def test_an_output_inside_another_buffer(lowered):
    with pytest.raises(ValueError, match="y is not plain"):
        check(stored(lowered, y=("f", row_major((1, 5)))))


def test_a_constant_that_is_not_there(lowered):
    graph = replace(lowered.graph, constants={})
    with pytest.raises(ValueError, match="unknown"):
        check(replace(lowered, graph=graph))
