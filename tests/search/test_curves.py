"""The efficiency benchmark in small, replayed without timing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.curves import compare, excess, report, run, settle
from benchmarks.search.oracle import Oracle
from benchmarks.search.strategies import STRATEGIES, Problem
from engine.graph.task import SearchTask
from engine.records import MeasureRecord, Schedule
from engine.search import TaskSpace
from tests.search.synthetic import MatmulSketch, measure, prior, search_task

SHAPES = {"a": (196, 256, 512), "b": (3136, 64, 512)}
SKETCHES = {k: (MatmulSketch(*s), MatmulSketch(*s, name="winograd2.tile", gain=1.3))
            for k, s in SHAPES.items()}  # fmt: skip
SPACES = {k: TaskSpace(s, 2) for k, s in SKETCHES.items()}


def on_the_imagined_machine(
    task: SearchTask, schedules: Sequence[Schedule], anchor: MeasureRecord | None
) -> list[MeasureRecord]:
    return measure(SKETCHES[task.key], list(schedules), task.key)


def problem(key: str) -> Problem:
    return Problem(key, search_task(key=key), SPACES[key], prior, SPACES.get)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replayed_run_is_the_recorded_one(strategy: str, tmp_path: Path) -> None:
    path = tmp_path / "latencies.json"
    recorder = Oracle(path, on_the_imagined_machine)
    first = run(strategy, problem("a"), recorder, 16, 8, seed=2)
    recorder.save()
    again = run(strategy, problem("a"), Oracle(path, None), 16, 8, seed=2)
    assert again.best == first.best and again.records == first.records
    assert len(first.best) == 16 and list(first.best) == sorted(first.best, reverse=True)
    with pytest.raises(LookupError):
        run(strategy, problem("a"), Oracle(path, None), 16, 8, seed=3)


def test_every_round_is_measured_beside_the_best_of_the_first() -> None:
    seen: list[MeasureRecord | None] = []

    def spy(
        task: SearchTask, schedules: Sequence[Schedule], anchor: MeasureRecord | None
    ) -> list[MeasureRecord]:
        seen.append(anchor)
        return on_the_imagined_machine(task, schedules, anchor)

    curve = run("random", problem("a"), Oracle(None, spy), 24, 8, seed=2)
    assert seen[0] is None
    assert [r.latency for r in seen[1:] if r] == [curve.best[7]] * 2


def test_model_and_history_need_fewer_trials() -> None:
    oracle = Oracle(None, on_the_imagined_machine, on_the_imagined_machine)
    problems = [problem("a"), problem("b")]
    every = {
        k: SPACES[k].schedules(SPACES[k].sample(4000, np.random.default_rng(0))) for k in SHAPES
    }
    for p in problems:
        oracle.records(p.task, every[p.name], 0)
    runs = {p.name: run("model", p, oracle, 32, 8, seed=9) for p in problems}
    problems[0].others, problems[1].others = runs["b"].records, runs["a"].records
    found = compare(problems, oracle, trials=32, size=8, seeds=3)

    settle(found, problems, oracle, (8, 32))

    def mean(strategy: str, at: int) -> float:
        return float(np.mean([excess(p, found[strategy][p.name], oracle, at) for p in problems]))

    assert mean("model", 32) < 1.05 and mean("model", 32) <= mean("random", 32)
    assert mean("history", 8) < mean("random", 8)
    settle(found, problems, oracle)
    text = report(found, problems, oracle)
    assert text.count("\n") == 1 + 3 * len(STRATEGIES)
