"""Operators that nobody listed, declared by their computation alone, become right kernels."""

from __future__ import annotations

import numpy as np
import pytest

from engine.expr import Axis, Placeholder, Read, Select, Stage, Unary, var
from engine.expr.nodes import Compare, Const
from engine.space import sketches
from engine.target import host
from tests.codegen.harness import check, random_feeds
from tests.codegen.workloads import of_dag


def locally_connected():
    """A convolution with weights of its own at every place."""
    data = Placeholder("data", (2, 5, 9, 8))
    weight = Placeholder("weight", (12, 7, 6, 5, 3, 3), constant=True)
    at = (var("n"), var("ic"), var("oh") + var("kh"), var("ow") + var("kw"))
    own = (var("oc"), var("oh"), var("ow"), var("ic"), var("kh"), var("kw"))
    axes = (Axis("n", 2), Axis("oc", 12), Axis("oh", 7), Axis("ow", 6))
    window = (Axis("ic", 5), Axis("kh", 3), Axis("kw", 3))
    stage = Stage("local", axes, Read("data", at) * Read("weight", own), window, "sum")

    def exact(feeds):
        windows = np.lib.stride_tricks.sliding_window_view(feeds["data"], (3, 3), (2, 3))
        return np.einsum("nihwab,ohwiab->nohw", windows, feeds["weight"].astype(float))

    return (data, weight), (stage,), exact, {"data", "local"}


def squared_distances():
    """Every row of one matrix against every row of another."""
    places = (Placeholder("a", (13, 21)), Placeholder("b", (19, 21)))
    gap = Read("a", (var("i"), var("k"))) - Read("b", (var("j"), var("k")))
    axes = (Axis("i", 13), Axis("j", 19))
    stage = Stage("distance", axes, gap * gap, (Axis("k", 21),), "sum")

    def exact(feeds):
        gaps = feeds["a"][:, None].astype(float) - feeds["b"][None]
        return (gaps**2).sum(axis=2)

    return places, (stage,), exact, set()


def row_maxima_of_gated_products():
    """A reduction over a reduction, with a condition between."""
    places = (Placeholder("a", (11, 17)), Placeholder("w", (17, 23), constant=True))
    product = Read("a", (var("i"), var("k"))) * Read("w", (var("k"), var("j")))
    inner = Stage("p", (Axis("i", 11), Axis("j", 23)), product, (Axis("k", 17),), "sum")
    value = Read("p", (var("i"), var("j")))
    gate = Select(Compare("gt", value, Const(0.0)), Unary("sqrt", value), value * 2.0)
    gated = Stage("g", (Axis("i", 11), Axis("j", 23)), gate)
    best = Stage("best", (Axis("i", 11),), Read("g", (var("i"), var("j"))), (Axis("j", 23),), "max")

    def exact(feeds):
        p = feeds["a"].astype(float) @ feeds["w"]
        return np.where(p > 0, np.sqrt(np.abs(p)), 2 * p).max(axis=1)

    return places, (inner, gated, best), exact, set()


@pytest.mark.parametrize(
    "declare", [locally_connected, squared_distances, row_maxima_of_gated_products]
)
def test_a_declaration_is_enough(declare):
    placeholders, stages, exact, blocked = declare()
    workload = of_dag(placeholders, stages, host(), blocked)
    feeds = random_feeds(workload.dag, np.random.default_rng(5))
    expected = {stages[-1].name: exact(feeds)}
    found = sketches(workload, host(), accuracy="fast")
    assert found
    rng = np.random.default_rng(9)
    for sketch in found:
        rows = [sketch.default()]
        if sketch.knobs:
            many = np.stack([rng.choice(k.values, 200) for k in sketch.knobs], axis=1)
            rows += list(many[sketch.valid(many)][:2])
        for row in rows:
            check(workload, sketch, sketch.schedule(row), host(), feeds, expected)
