"""The task table, held against the figures of the tutorial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.records import ErrorKind, MeasureRecord, Schedule
from tasks.table import anchor_record, best_latency, estimate, expected_gain, task_rows
from tests.search.synthetic import SCOPE
from tests.search.test_table import SEED, TASKS


def record(key: str, seconds: float, number: int = 0) -> MeasureRecord:
    return MeasureRecord(key, SCOPE, Schedule("direct.tiled", {"a": number}), (seconds,))


HISTORY = {
    task.key: [record(task.key, t["seed_latency_ms"] / 1e3)]
    for task, t in zip(TASKS, SEED["tasks"], strict=True)
}


def test_the_tutorials_latencies_add_up_to_its_total() -> None:
    weights = {task.key: task.weight for task in TASKS}
    total, untuned = estimate(weights, {k: best_latency(v) for k, v in HISTORY.items()})
    assert total is not None and total * 1e3 == pytest.approx(10.016, abs=5e-7)
    assert untuned == 0 and len(weights) == 29 and sum(weights.values()) == 57


def test_speeds_are_flops_over_latency() -> None:
    rows = task_rows(TASKS, HISTORY)
    known = [(row, t) for row, t in zip(rows, SEED["tasks"], strict=True) if "flops" in t]
    assert len(known) > 20
    for row, t in known:
        assert row.gflops == pytest.approx(t["flops"] / (t["seed_latency_ms"] / 1e3) / 1e9)


def test_tasks_without_a_latency() -> None:
    key = TASKS[1].key
    failed = replace(record(key, 1.0), times=(), error=ErrorKind.CRASH)
    rows = task_rows(TASKS[:3], {key: [failed, failed], TASKS[2].key: [record("", 2e-3)]})
    assert [row.latency for row in rows] == [None, None, 2e-3]
    assert [(row.trials, row.failed) for row in rows] == [(0, 0), (2, 2), (1, 0)]
    assert estimate({"x": 2, "y": 3}, {"x": 0.5}) == (1.0, 1)
    assert estimate({"x": 2}, {}) == (None, 1)


def test_the_expected_gain_is_a_share_that_grows_with_the_trials() -> None:
    histories = [[record(t.key, 1e-3 * (1 + 1 / (i + 1)), i) for i in range(20)] for t in TASKS[:3]]
    little, much = (expected_gain(TASKS[:3], histories, more) for more in (16, 1600))
    assert little is not None and much is not None
    assert 0 < little < much < 1
    assert expected_gain(TASKS[:3], [[], [], []], 100) is None
    twice = [replace(t, weight=2 * t.weight) for t in TASKS[:3]]
    assert expected_gain(twice, histories, 16) == pytest.approx(little), "a share has no unit"


def test_the_anchor_is_the_best_of_the_oldest_round_that_worked() -> None:
    def row(seconds: float, number: int, run: str, index: int) -> MeasureRecord:
        return replace(record("k", seconds, number), run_id=run, round_index=index)

    failed = replace(row(1.0, 0, "a", 0), times=(), error=ErrorKind.CRASH)
    first = [row(3e-3, 1, "a", 4), row(2e-3, 2, "a", 4)]
    later = [row(1e-3, 3, "a", 5), row(5e-4, 4, "b", 4)]
    assert anchor_record([]) is None and anchor_record([failed]) is None
    assert anchor_record([failed, *first]) == first[1]
    assert anchor_record([failed, *first, *later]) == first[1]
