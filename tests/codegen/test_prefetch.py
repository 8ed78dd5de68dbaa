"""Prefetching of constants: which part of the loops is a panel, and that kernels stay right."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codegen.prefetch import Panel, find_panel
from engine.expr.reference import reference
from engine.graph.builder import Builder
from engine.records import Schedule
from engine.space import sketches
from engine.target import host
from tests.codegen.harness import check, load, random_feeds
from tests.codegen.workloads import network

ONES = np.ones((5, 400), np.float32)
COUNTS = {"oc.0": 4, "p.0": 3, "oc.1": 2, "p.1": 5, "q.1": 2, "one": 1}
PANEL, RESULT = "i32 0, i32 2, i32 1)", "i32 1, i32 3, i32 1)"
TAIL = (("ic.0", 64), ("@lane", 8))


@pytest.mark.parametrize("outer,moving,panel", [
    # the passes over pixels lie inside: a panel is one tile of channels
    (("oc.0", "oc.1", "p.1"), ("oc.0", "oc.1"), Panel((("p.1", 5),), 512)),
    # the channels run inside the pixels: a panel is all of a block's channels
    (("oc.0", "p.1", "oc.1"), ("oc.0", "oc.1"), Panel((("p.1", 5),), 1024)),
    (("oc.0", "p.1", "q.1", "one"), ("oc.0",), Panel((("p.1", 5), ("q.1", 2)), 512)),
    # each weight is read once, or there is nothing after the panel
    (("p.0", "oc.0", "oc.1"), ("oc.0", "oc.1"), None),
    (("oc.0",), ("oc.0",), None),
    ((), (), None),
])  # fmt: skip
def test_panels(outer, moving, panel):
    packed = [(name, COUNTS[name]) for name in outer if name in moving] + list(TAIL)
    assert find_panel(outer, packed, COUNTS) == panel


def test_panels_larger_than_the_cache_are_left_alone():
    packed = [("oc.0", 4), ("ic.0", 1 << 16), ("@lane", 8)]
    assert find_panel(("oc.0", "p.0"), packed, COUNTS) is None


def product(b: Builder) -> str:
    weight = np.random.default_rng(0).standard_normal((384, 400)).astype(np.float32)
    return b.emit("MatMul", "x", b.constant(weight))


def test_a_prefetching_kernel_computes_the_same():
    target = host()
    workload = network({"x": (23, 384)}, product, target).steps[0].workload
    assert workload is not None
    sketch = sketches(workload, target)[0]
    chosen = {k.name: k.values[0] for k in sketch.knobs}
    (knob,) = (name for name in chosen if name.endswith("prefetch"))
    chosen |= {name: 7 for name in chosen if name.endswith("m.block")}
    on = Schedule(sketch.name, chosen | {knob: 1})
    off = Schedule(sketch.name, chosen | {knob: 0})
    feeds = random_feeds(workload.dag, np.random.default_rng(1))
    check(workload, sketch, on, target, feeds, reference(workload.dag, feeds, np.float64))
    assert PANEL in load(workload, sketch, on, target).ir
    assert PANEL not in load(workload, sketch, off, target).ir


def test_results_are_asked_for_before_a_long_sum():
    target = host()
    long = network({"x": (23, 384)}, product, target).steps[0].workload
    short = network({"x": (23, 5)}, lambda b: b.emit("MatMul", "x", b.constant(ONES)), target)
    for workload, asked in ((long, True), (short.steps[0].workload, False)):
        assert workload is not None
        sketch = sketches(workload, target)[0]
        loaded = load(workload, sketch, sketch.schedule(sketch.default()), target)
        assert (RESULT in loaded.ir) is asked
