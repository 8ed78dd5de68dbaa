"""Schedules of like workloads."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from engine.records import ErrorKind, MeasureRecord, Schedule
from engine.search.similar import similar_schedules, workload_distance
from tests.search.synthetic import SCOPE


def key(digest: str, *shapes: list[int]) -> str:
    return json.dumps([digest, *shapes, "loops"])


HERE = key("conv", [1, 64, 56, 56], [64, 64, 3, 3])
NEAR = key("conv", [1, 128, 28, 28], [128, 128, 3, 3])
FAR = key("conv", [1, 512, 7, 7], [512, 512, 3, 3])
OTHER = key("conv+add", [1, 64, 56, 56], [64, 64, 3, 3], [1, 64, 56, 56])
DENSE = key("dense", [1, 2048], [1000, 2048])


def record(workload: str, name: str, seconds: float = 1e-3) -> MeasureRecord:
    return MeasureRecord(workload, SCOPE, Schedule("s", {name: 1}), (seconds,))


def test_distance_follows_the_shapes() -> None:
    assert workload_distance(HERE, HERE) == 0
    assert 0 < workload_distance(HERE, NEAR) < workload_distance(HERE, FAR)
    assert 0 < workload_distance(HERE, OTHER) < math.inf
    assert workload_distance(HERE, OTHER) == workload_distance(OTHER, HERE)
    assert math.isinf(workload_distance(HERE, DENSE))
    assert math.isinf(workload_distance(HERE, "not a key"))


def test_the_fastest_of_the_likest_come_first() -> None:
    records = [record(FAR, "far"), record(NEAR, "slow", 2e-3), record(NEAR, "fast")]
    records += [record(NEAR, "slowest", 3e-3), record(HERE, "own"), record(DENSE, "dense")]
    found = similar_schedules(HERE, SCOPE, records)
    assert [next(iter(s.knobs)) for s in found] == ["fast", "slow", "far"]
    assert len(similar_schedules(HERE, SCOPE, records, limit=1)) == 1


def test_other_scopes_and_failures_are_left_out() -> None:
    failed = replace(record(NEAR, "failed"), times=(), error=ErrorKind.CRASH)
    noisy = replace(record(NEAR, "noisy"), noisy=True)
    elsewhere = replace(record(NEAR, "elsewhere"), scope=replace(SCOPE, threads=8))
    assert similar_schedules(HERE, SCOPE, [failed, noisy, elsewhere]) == []
