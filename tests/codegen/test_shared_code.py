"""Blocks and parts of a sum share the code of a register tile, and stay right."""

from __future__ import annotations

import numpy as np
import pytest

from engine.expr.reference import reference
from engine.graph.builder import Builder
from engine.space import Sketch, find, sketches
from engine.target import host
from tests.codegen import nets
from tests.codegen.harness import check, load, random_feeds
from tests.codegen.workloads import network


def product(rows: int, depth: int, columns: int):
    """Rows x depth times a constant depth x columns, plus a bias, above zero."""

    def build(b: Builder) -> str:
        out = b.emit("MatMul", "x", b.constant(nets.array((depth, columns))))
        return b.emit("Relu", b.emit("Add", out, b.constant(nets.array((columns,)))))

    (step,) = network({"x": (rows, depth)}, build, host()).steps
    assert step.workload is not None
    (sketch,) = sketches(step.workload, host())
    return step.workload, sketch


def row_of(sketch: Sketch, **wanted: int):
    """The default row with some knobs set; names end as given, `_` for a dot."""
    row = sketch.default()
    for ending, value in wanted.items():
        (at,) = (
            i for i, k in enumerate(sketch.knobs) if k.name.endswith("." + ending.replace("_", "."))
        )
        row[at] = value
    return row


def axis_of(sketch: Sketch, number: int) -> str:
    """The axis of a knob."""
    return sketch.knobs[number].name.rpartition(".")[2]


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("rows", "tile", "block"),
    [
        (22, 4, 2),  # a short block: one whole tile and a ragged one
        (18, 4, 4),  # a short block that is a ragged tile
        (20, 4, 4),  # a short block of whole tiles
        (9, 4, 1),  # blocks of one tile, the last one ragged
        (16, 4, 2),  # nothing ragged
        (3, 2, 2),  # one block, and that one ragged
    ],
)
def test_short_blocks(rows: int, tile: int, block: int, order: int) -> None:
    workload, sketch = product(rows, 24, 40)
    lead = axis_of(sketch, 0)
    row = row_of(sketch, **{lead: tile, f"{lead}_block": block}, outer=order, inner=1 - order)
    schedule = sketch.schedule(row)
    assert find((sketch,), schedule) is not None
    feeds = random_feeds(workload.dag, np.random.default_rng(5))
    expected = reference(workload.dag, feeds, np.float64)
    check(workload, sketch, schedule, host(), feeds, expected)


@pytest.mark.parametrize("depth", [256, 300])
def test_parts_of_a_sum(depth: int) -> None:
    workload, sketch = product(22, depth, 40)
    feeds = random_feeds(workload.dag, np.random.default_rng(6))
    expected = reference(workload.dag, feeds, np.float64)
    lead = axis_of(sketch, 0)
    row = row_of(sketch, **{lead: 4, f"{lead}_block": 2}, split=64)
    check(workload, sketch, sketch.schedule(row), host(), feeds, expected)


def test_code_is_there_once_for_each_shape_of_the_tile() -> None:
    """Neither blocks nor parts copy it: two shapes, whatever the number of blocks."""
    workload, sketch = product(22, 256, 64)
    lead = axis_of(sketch, 0)
    vectors = 64 // host().lanes
    columns = axis_of(sketch, 1)
    row = row_of(
        sketch, **{lead: 4, f"{lead}_block": 2, columns: 1, f"{columns}_block": vectors},
        split=64, unroll=1,
    )  # fmt: skip
    text = load(workload, sketch, sketch.schedule(row), host()).ir
    assert text.count("call <") == text.count("@llvm.fma") - 1 == 4 + 2
