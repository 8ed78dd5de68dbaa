"""A runner whose clock shows what the test wants: `delay` nanoseconds a call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.measure.plugins import Sample
from engine.measure.protocol import Built, Problem
from engine.records import Schedule

RUNNER = f"{Path(__file__).resolve()}:StubRunner"


class StubRunner:
    def __init__(self, options: Mapping[str, Any], cores: tuple[int, ...]) -> None:
        self._loaded: dict[int, float] = {}

    def prepare(self, problem: Problem, reference: Any) -> Any:
        return reference or "the right answer"

    def load(self, number: int, schedule: Schedule, built: Built) -> tuple[float, float]:
        self._loaded[number] = schedule.knobs["delay"] * 1e-9
        return 0.0, self._loaded[number]

    def sample(self, number: int, calls: int) -> Sample:
        total = self._loaded[number] * calls
        return Sample(total, total, total)

    def check(self, number: int) -> None:
        assert number in self._loaded

    def drop(self, number: int) -> None:
        self._loaded.pop(number, None)

    def held_bytes(self) -> int:
        return 0

    def probe(self) -> float:
        return 1.0
