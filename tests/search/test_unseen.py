"""Operators that nobody listed, tuned in small, and the arithmetic of their bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search.bounds import (
    ARITHMETIC,
    MEMORY,
    Bound,
    Cost,
    Peaks,
    bound,
    cost_of,
    formula_ir,
    formula_rate,
    peaks_of,
)
from benchmarks.search.unseen import (
    OPERATORS,
    Result,
    bilinear_form,
    codebook_distances,
    cost_volume,
    locally_connected,
    page,
    report,
    search_task,
    squared_distances,
    tropical_product,
    tune,
)
from engine.codegen.module import compile_ir, module
from engine.expr import Axis, ComputeDag, Placeholder, Read, Stage, Unary, var
from engine.measure import MeasureOptions, Measurer
from engine.measure.machine import Machine
from engine.search import TaskSpace
from engine.space import sketches
from engine.target import host, named

SMALL = {
    "local": locally_connected(8, 6, 3),
    "distance": squared_distances(24, 20, 40),
    "codebook": codebook_distances(24, 20, 40),
    "tropical": tropical_product(24, 20, 24),
    "volume": cost_volume(4, 12, 24, 5),
    "bilinear": bilinear_form(40, 12, 10),
}
MACHINE = Machine(2, 100e9, {"L1": 200e9, "L2": 80e9, "L3": 50e9, "memory": 10e9})


@pytest.fixture
def measurer(tmp_path: Path) -> Measurer:
    return Measurer(
        host(), 1, options=MeasureOptions(
            passes=1, finalists=1, final_passes=1, min_repeat_ms=0.1, compile_workers=1,
            lock_path=str(tmp_path / "lock"), scratch=str(tmp_path),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("dag", SMALL.values(), ids=list(SMALL))
def test_a_declaration_has_a_space(dag: ComputeDag) -> None:
    task = search_task(dag, host(), 1)
    found = sketches(task.workload, task.target)
    assert found and all(s.name.startswith("direct.") for s in found)
    assert max(len(s.knobs) for s in found) >= 3
    assert max(s.size for s in found) >= 16
    assert any(g.vector for s in found for g in s.skeleton.groups)
    names = {k.name.removeprefix(f"{dag.anchor.name}.") for s in found for k in s.knobs}
    assert names & {a.name for a in dag.anchor.axes} and "unroll" in names


def test_trials_are_right_and_none_comes_twice(measurer: Measurer) -> None:
    with measurer:
        for name, dag in SMALL.items():
            records = tune(search_task(dag, host(), 1), measurer, 12, 6)
            assert [r.message for r in records if not r.valid] == [], name
            assert len(records) == len({r.schedule.key for r in records}) == 12, name


def test_a_space_that_ends_ends_the_trials(measurer: Measurer) -> None:
    task = search_task(squared_distances(2, 2, 3), host(), 1)
    size = TaskSpace(sketches(task.workload, task.target), 1).size
    with measurer:
        records = tune(task, measurer, 10 * size, 16)
    assert 0 < len(records) <= size and all(r.valid for r in records)


def test_costs_count_equal_terms_once() -> None:
    distances = cost_of(squared_distances(8, 4, 16))
    assert distances == Cost(512, 3 * 512, 0, 4 * (8 * 16 + 4 * 16 + 8 * 4))
    assert cost_of(codebook_distances(8, 4, 16)).constant_bytes == 4 * 4 * 16
    assert cost_of(tropical_product(8, 4, 16)).flops == 2 * 512
    assert cost_of(bilinear_form(2, 3, 4)).flops == 3 * 24
    local = cost_of(locally_connected(2, 4, 3))
    assert local == Cost(576, 2 * 576, 4 * 576, 4 * (2 * 6 * 6 + 2 * 4 * 4))


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (Cost(50_000, 0, 1_000, 1_000), Bound(1e-6, ARITHMETIC)),
        (Cost(50_000, 0, 20_000, 1_000), Bound(2e-6, MEMORY)),
        (Cost(50_000, 0, 20_000, 240_000), Bound(3e-6, "L2")),
    ],
)
def test_the_longest_limit_is_the_bound(cost: Cost, expected: Bound) -> None:
    found = bound(cost, Peaks(50e9, 10e9, 80e9, "L2"))
    assert found.limit == expected.limit
    assert found.seconds == pytest.approx(expected.seconds)


def test_variables_lie_in_the_smallest_cache_that_holds_them() -> None:
    target = named("avx2")
    for size, level, rate in (
        (2 * target.l1, "L1", 200e9), (2 * target.l1 + 1, "L2", 80e9),
        (2 * target.l2 + 1, "L3", 50e9), (target.l3 + 1, MEMORY, 10e9),
    ):  # fmt: skip
        found = peaks_of(Cost(1, 1, 0, size), 1.0, MACHINE, target)
        assert (found.level, found.cache, found.memory) == (level, rate, 10e9)


def test_a_formula_becomes_its_instructions_alone() -> None:
    target = host()
    for dag, wanted in (
        (SMALL["distance"], {"fsub": 8, "llvm.fma": 8}),
        (SMALL["tropical"], {"fadd": 15, "fcmp ogt": 8}),  # 7 of the sums join the accumulators
        (SMALL["volume"], {"llvm.fma": 8}),
    ):
        text = formula_ir(dag.stages[0], target, 8)
        assert {k: text.count(f" {k}") + text.count(f"@{k}") for k in wanted} == wanted
        compile_ir(module([text], target), target)
    assert formula_rate(SMALL["tropical"].stages[0], target, 1) > 0


def test_no_bound_is_made_up() -> None:
    root = Stage(
        "s", (Axis("i", 4),), Unary("sqrt", Read("x", (var("k"),))), (Axis("k", 4),), "sum"
    )
    dag = ComputeDag((Placeholder("x", (4,)),), (root,), ("s",))
    with pytest.raises(ValueError, match="no bound is known of sqrt"):
        formula_ir(dag.stages[0], host(), 8)


def test_report_shows_shares() -> None:
    cost = Cost(50_000, 150_000, 0, 4_000)
    peaks = Peaks(50e9, 10e9, 80e9, "L2")
    result = Result(
        "distances", 1, 64, 0, 1.25e-6, cost, peaks, bound(cost, peaks), "direct.tiled|"
    )
    assert result.share == pytest.approx(0.8)
    row = "| distances | 1 | 64 | 0 | 0.001 | 120.0 | 3.2 | arithmetic | 0.001 | 80% |"
    assert report([result]).splitlines()[-1] == row
    assert row in page([result])
    assert len(OPERATORS) >= 4
