"""What other networks' workloads teach: training rows and good schedules."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from db.memory_store import MemoryStore
from db.values import ModelRows
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule
from tasks.elsewhere import fastest, samples_of

SCOPE = RecordScope("skylake-avx512", 2)


def trial(key: str, tile: int, seconds: float = 1e-3) -> MeasureRecord:
    features = [float(tile), 0.5, 1e-3 + tile]
    return MeasureRecord(
        key, SCOPE, Schedule("tiled", {"tile": tile}), (seconds,), extra={"features": features}
    )


def rows(*records: MeasureRecord) -> ModelRows:
    store = MemoryStore()
    store.add_records(records)
    return store.model_rows(SCOPE)


def test_a_row_for_each_trial() -> None:
    crash = replace(trial("b", 2), times=(), error=ErrorKind.CRASH)
    found = samples_of(rows(trial("a", 1, 2e-3), crash, trial("a", 3)))
    wanted = np.array([[1, 0.5, 1.001], [2, 0.5, 2.001], [3, 0.5, 3.001]], np.float32)
    assert found.features.dtype == np.float32 and (found.features == wanted).all()
    assert found.latency.tolist() == [2e-3, math.inf, 1e-3]
    assert found.workload.tolist() == ["a", "b", "a"]


def test_what_teaches_nothing_is_left_out() -> None:
    bare = replace(trial("a", 1), extra={})
    old = replace(trial("a", 2), extra={"features": [1.0]})
    fault = replace(trial("a", 3), times=(), error=ErrorKind.MACHINE_FAULT)
    found = samples_of(rows(bare, old, fault, trial("a", 4)))
    assert found.features.tolist() == [[4.0, 0.5, np.float32(4.001)]]
    assert len(samples_of(rows(bare))) == len(samples_of(ModelRows())) == 0


def test_the_fastest_of_each_workload() -> None:
    noisy = replace(trial("a", 9, 1e-6), noisy=True)
    crash = replace(trial("b", 9), times=(), error=ErrorKind.CRASH)
    slow = [trial("a", i, 1e-3 * (5 - i)) for i in range(4)]
    found = fastest(rows(noisy, *slow, crash, trial("b", 1, 7e-3)), SCOPE)
    assert [(r.workload_key, r.schedule.knobs["tile"], r.latency) for r in found] == [
        ("a", 3, 2e-3), ("a", 2, 3e-3), ("b", 1, 7e-3)
    ]  # fmt: skip
    assert all(r.valid and r.scope == SCOPE for r in found)
    assert fastest(ModelRows(), SCOPE) == []
