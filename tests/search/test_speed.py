"""What the speed benchmark says of its rounds."""

from __future__ import annotations

from benchmarks.search.speed import MEASURE, SEARCH, Clock
from engine.records import ErrorKind, MeasureRecord, Schedule
from tests.search.synthetic import SCOPE


def test_rate_shares_and_failures() -> None:
    clock = Clock({SEARCH: 1.0, MEASURE: 3.0})
    schedule = Schedule("direct.tiled", {})
    clock.count([
        MeasureRecord("w", SCOPE, schedule, (1e-3,), ErrorKind.OK, build_seconds=0.05),
        MeasureRecord("w", SCOPE, schedule, (), ErrorKind.CRASH, build_seconds=0.03),
    ])  # fmt: skip
    text = clock.report()
    assert "2 trials (1 failed) in 4.0 s: 0.5 a second" in text
    assert "search 25.0%, measure 75.0%" in text and "40 ms a trial" in text


def test_parts_add_up() -> None:
    clock = Clock()
    for _ in range(2):
        with clock.part(SEARCH):
            pass
    assert list(clock.parts) == [SEARCH] and clock.parts[SEARCH] > 0
