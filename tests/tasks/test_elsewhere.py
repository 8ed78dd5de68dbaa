"""What other networks' workloads teach: training rows and good schedules."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from db.memory_store import MemoryStore
from db.values import ModelRows
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule
from tasks.elsewhere import NEAREST, in_order, records_nearby, samples_elsewhere, samples_of

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


def test_own_records_and_others_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.elsewhere.MODEL_ROWS", 6)
    monkeypatch.setattr("tasks.elsewhere.OTHER_ROWS", 2)
    store = MemoryStore()
    store.add_records([trial(key, i) for i in range(9) for key in ("mine", "theirs")])
    for own, wanted in ((0, 6), (2, 4), (5, 2), (90, 2)):
        found = samples_elsewhere(store, SCOPE, ["mine"], own)
        assert found.features[:, 0].tolist() == list(range(9))[-wanted:]
        assert set(found.workload) == {"theirs"}


def test_records_of_all_tasks_in_the_order_of_measuring() -> None:
    trials = [trial("ab"[i % 2], i) for i in range(6)]
    records = [replace(r, created=float(i // 2), round_index=i) for i, r in enumerate(trials)]
    history = {"a": records[::2], "b": records[1::2]}
    assert in_order(history) == records


def shaped(*sizes: int) -> str:
    return json.dumps(["conv", list(sizes), [sizes[1], sizes[1], 3, 3]])


HERE, NEAR, FAR = shaped(1, 64, 56, 56), shaped(1, 128, 28, 28), shaped(1, 512, 7, 7)


def test_the_fastest_of_the_workloads_most_alike() -> None:
    store = MemoryStore()
    store.add_records(
        [trial(key, i, 1e-3 * (9 - i)) for key in (FAR, NEAR, HERE) for i in range(6)]
    )
    dense, unmeasured = json.dumps(["dense", [1, 64]]), shaped(1, 64, 28, 28)
    asked: list[str] = []

    def top(key: str, count: int) -> tuple[MeasureRecord, ...]:
        asked.append(key)
        return store.top(key, SCOPE, count)

    found = records_nearby(HERE, [FAR, dense, HERE, unmeasured, NEAR], top, each=2)
    assert [(r.workload_key, r.schedule.knobs["tile"]) for r in found] == [
        (NEAR, 5), (NEAR, 4), (FAR, 5), (FAR, 4)
    ]  # fmt: skip
    assert asked == [unmeasured, NEAR, FAR]


def test_only_the_nearest_measured_workloads_are_asked() -> None:
    keys = [shaped(1, 64, 56, 56 + i) for i in range(1, 30)]
    asked: list[str] = []

    def top(key: str, count: int) -> list[MeasureRecord]:
        asked.append(key)
        return [trial(key, 1)]

    assert len(records_nearby(HERE, reversed(keys), top)) == NEAREST
    assert asked == keys[:NEAREST]
