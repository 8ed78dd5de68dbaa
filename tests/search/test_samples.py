"""From records to training rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.records import ErrorKind, MeasureRecord, Schedule
from engine.search.population import TaskSpace
from engine.search.samples import FeatureTable
from tests.search.synthetic import SCOPE, MatmulSketch, measure

SKETCH = MatmulSketch()
SPACE = TaskSpace((SKETCH,), 2)


def records(n: int, key: str = "w") -> list[MeasureRecord]:
    return measure((SKETCH,), SPACE.schedules(SPACE.sample(n, np.random.default_rng(0))), key)


def test_rows_keep_the_order_of_the_records() -> None:
    found = FeatureTable(lambda key: SPACE).samples(records(10))
    assert found.features.shape == (10, 12)
    assert found.latency.tolist() == [r.latency for r in records(10)]
    assert set(found.workload) == {"w"}


def test_each_candidate_is_looked_up_once() -> None:
    asked = []

    def source(key: str) -> TaskSpace:
        asked.append(key)
        return SPACE

    table = FeatureTable(source)
    history = records(10)
    table.samples(history)
    found = table.samples([*history, *records(12)[10:]])
    assert len(found) == 12 and len(asked) == 2
    table.samples(history)
    assert len(asked) == 2


def test_an_unknown_workload_needs_its_features_in_the_record() -> None:
    bare = records(3, "gone")
    row = [float(i) for i in range(12)]
    stored = [replace(r, extra={"features": row}) for r in bare[:2]]
    odd = [replace(bare[2], extra={"features": "none"})]
    table = FeatureTable(lambda key: None)
    found = table.samples([*stored, *odd])
    assert found.features.tolist() == [row, row]
    assert len(FeatureTable(lambda key: None).samples(bare)) == 0


def test_features_of_another_length_are_left_out() -> None:
    """Records that an older version wrote have other features."""
    old, new = records(2, "gone")
    mixed = [
        replace(old, extra={"features": [1.0, 2.0]}),
        replace(new, extra={"features": [1.0] * 12}),
    ]
    assert FeatureTable(lambda key: None).samples(mixed).features.shape == (1, 12)


def test_failures_count_and_machine_faults_do_not() -> None:
    good, crash, fault, stranger = records(4)
    crash = replace(crash, times=(), error=ErrorKind.CRASH)
    fault = replace(fault, times=(), error=ErrorKind.MACHINE_FAULT)
    stranger = replace(stranger, schedule=Schedule("nowhere", {"a": 1}))
    found = FeatureTable(lambda key: SPACE).samples([good, crash, fault, stranger])
    assert np.isfinite(found.latency).tolist() == [True, False]


def test_more_records_of_the_same_history_extend_the_rows() -> None:
    history = records(12)
    table = FeatureTable(lambda key: SPACE)
    table.samples(history[:5])
    grown = table.samples(history)
    whole = FeatureTable(lambda key: SPACE).samples(history)
    assert (grown.features == whole.features).all() and (grown.latency == whole.latency).all()
    assert len(table.samples(history[3:])) == 9
    assert len(table.samples(())) == 0


def test_no_records() -> None:
    found = FeatureTable(lambda key: SPACE).samples(())
    assert len(found) == 0 and len(found.of("w")) == 0


def test_a_timing_of_zero_is_no_measurement() -> None:
    """G2-01: 0 s or less than a nanosecond cannot be a label."""
    zero, tiny, fine = records(3)
    history = [replace(zero, times=(0.0,)), replace(tiny, times=(5e-324,)), fine]
    found = FeatureTable(lambda key: SPACE).samples(history)
    assert np.isfinite(found.latency).tolist() == [False, False, True]
    assert fine.scope == SCOPE
