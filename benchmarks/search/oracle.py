"""Latencies that a search asks for: from a record file, and from this machine where it is missing.

A file holds every answer that was ever given, so a run can be replayed without a machine and gives
the same curves, as all strategies are deterministic for a seed.  Form: {"scope": target key and
threads, "latencies": {workload key: {schedule key: [seconds, or null for a failure, error kind]}}}.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.graph.task import SearchTask
from engine.records import ErrorKind, MeasureRecord, Schedule

Measure = Callable[[SearchTask, Sequence[Schedule]], Sequence[MeasureRecord]]


class Oracle:
    """Answers from `path` (may be absent) and else from `measure`; LookupError without one."""

    def __init__(self, path: Path | None, measure: Measure | None) -> None:
        self._path, self._measure = path, measure
        self.known: dict[str, dict[str, tuple[float | None, str]]] = {}
        if path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))["latencies"]
            self.known = {k: {s: (t, e) for s, (t, e) in v.items()} for k, v in stored.items()}

    def records(
        self, task: SearchTask, schedules: Sequence[Schedule], round_index: int
    ) -> list[MeasureRecord]:
        """A record per schedule, in order."""
        known = self.known.setdefault(task.key, {})
        missing = [s for s in schedules if s.key not in known]
        if missing:
            self._ask(task, missing)
        return [self._record(task, s, *known[s.key], round_index) for s in schedules]

    def _ask(self, task: SearchTask, schedules: Sequence[Schedule]) -> None:
        if self._measure is None:
            raise LookupError(f"{len(schedules)} schedules of {task.key} are not on record")
        for record in self._measure(task, schedules):
            seconds = record.latency if record.valid else None
            self.known[task.key][record.schedule.key] = (seconds, record.error.value)

    @staticmethod
    def _record(
        task: SearchTask, schedule: Schedule, seconds: float | None, error: str, round_index: int
    ) -> MeasureRecord:
        times = () if seconds is None else (seconds,)
        return MeasureRecord(
            task.key, task.scope, schedule, times, ErrorKind(error), run_id="bench",
            round_index=round_index,
        )  # fmt: skip

    def best(self, task: SearchTask) -> float:
        """Seconds of the best schedule on record, infinite if there is none."""
        return min(
            (t for t, _ in self.known.get(task.key, {}).values() if t is not None),
            default=math.inf,
        )

    def save(self) -> None:
        """Write all answers to the file, whole or not at all."""
        if self._path is None:
            return
        whole = self._path.with_suffix(".part")
        whole.write_text(json.dumps({"latencies": self.known}, indent=0), encoding="utf-8")
        os.replace(whole, self._path)
