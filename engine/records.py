"""Measurement records: what one trial on the machine left behind.

In: results of the build and run workers.  Out: frozen rows that `db` stores and `search` learns
from.  This is the only engine module that `db` may import.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

GENERATOR_VERSION = "6"
"""Changes whenever the code generator makes other machine code of the same schedule."""


class ErrorKind(StrEnum):
    """Why a trial gave no latency; `OK` means that it did."""

    OK = "ok"
    INVALID_SCHEDULE = "invalid_schedule"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    CRASH = "crash"
    RUN_TIMEOUT = "run_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    UNMEASURABLE = "unmeasurable"
    MACHINE_FAULT = "machine_fault"


class TimingMode(StrEnum):
    """What lies in the caches when a kernel is timed."""

    COLD_WEIGHTS = "cold_weights"
    FLUSH_ALL = "flush_all"
    HOT = "hot"
    IN_NETWORK = "in_network"
    """Timed as a layer of the compiled network, everything else running around it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A point of the search space: a sketch's name and a value for each of its knobs."""

    sketch: str
    knobs: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"sketch": self.sketch, "knobs": dict(sorted(self.knobs.items()))}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Schedule:
        return Schedule(str(data["sketch"]), {str(k): int(v) for k, v in data["knobs"].items()})

    @property
    def key(self) -> str:
        """Equal for equal schedules; readable in a database."""
        return self.sketch + "|" + ",".join(f"{k}={v}" for k, v in sorted(self.knobs.items()))


@dataclass(frozen=True, slots=True)
class RecordScope:
    """What must be equal for two latencies to be comparable."""

    target_key: str
    threads: int
    timing_mode: TimingMode = TimingMode.COLD_WEIGHTS
    generator_version: str = GENERATOR_VERSION


@dataclass(frozen=True, slots=True)
class MeasureRecord:
    """One trial.

    `times` holds each repeat's seconds for one call (empty unless `error` is `OK`), `predicted` the
    cost model's score at proposal, `created` seconds since the epoch, `build_seconds` the compile
    time.  `noisy` marks a trial made while the machine was busy with something else.
    """

    workload_key: str
    scope: RecordScope
    schedule: Schedule
    times: tuple[float, ...] = ()
    error: ErrorKind = ErrorKind.OK
    message: str = ""
    predicted: float | None = None
    run_id: str = ""
    round_index: int = 0
    created: float = 0.0
    build_seconds: float = 0.0
    noisy: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        return self.error is ErrorKind.OK and math.isfinite(self.latency) and self.latency > 0

    @property
    def latency(self) -> float:
        """Seconds of one call: the minimum over the repeats, infinity for a failed trial."""
        return min(self.times) if self.times and self.error is ErrorKind.OK else math.inf
