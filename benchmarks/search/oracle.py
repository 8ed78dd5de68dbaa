"""Latencies that a search asks for: from a record file, and from this machine where it is missing.

A file holds every answer that was ever given, so a run can be replayed without a machine and gives
the same curves, as all strategies are deterministic for a seed.  Form: {"latencies": {workload key:
{schedule key: [seconds, or null for a failure, error kind, schedule]}}, "settled": {workload key:
{schedule key: seconds}}}, where settled latencies of a task were taken in turns and thus compare.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.graph.task import SearchTask
from engine.records import ErrorKind, MeasureRecord, Schedule

Measure = Callable[[SearchTask, Sequence[Schedule], MeasureRecord | None], Sequence[MeasureRecord]]
"""Gives a record a schedule; the last argument is the best one so far, to scale by."""


class Oracle:
    """Answers from `path` (may be absent) and else from `measure`, and from `compare` where
    latencies are to be settled; LookupError without one."""

    def __init__(
        self, path: Path | None, measure: Measure | None, compare: Measure | None = None
    ) -> None:
        self._path, self._measure, self._compare = path, measure, compare
        self._known: dict[str, dict[str, tuple[float | None, str, Schedule]]] = {}
        self._settled: dict[str, dict[str, float]] = {}
        self._anchors: dict[str, MeasureRecord] = {}
        if path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._settled = stored["settled"]
            self._known = {
                key: {k: (t, e, Schedule.from_json(s)) for k, (t, e, s) in rows.items()}
                for key, rows in stored["latencies"].items()
            }

    def records(
        self, task: SearchTask, schedules: Sequence[Schedule], round_index: int
    ) -> list[MeasureRecord]:
        """A record per schedule, in order."""
        known = self._known.setdefault(task.key, {})
        missing = [s for s in schedules if s.key not in known]
        for record in self._ask(self._measure, task, missing, self._anchors.get(task.key)):
            seconds = record.latency if record.valid else None
            known[record.schedule.key] = (seconds, record.error.value, record.schedule)
        for schedule in self.fastest(task, 1):
            seconds, error, _ = known[schedule.key]
            self._anchors.setdefault(task.key, self._record(task, schedule, seconds, error, 0))
        return [self._record(task, s, *known[s.key][:2], round_index) for s in schedules]

    def settle(self, task: SearchTask, schedules: Sequence[Schedule]) -> None:
        """Latencies that compare, for all of these together."""
        known = self._settled.get(task.key, {})
        if any(s.key not in known for s in schedules):
            records = self._ask(self._compare, task, schedules, None)
            found = {r.schedule.key: r.latency if r.valid else math.inf for r in records}
            self._settled[task.key] = found

    @staticmethod
    def _ask(
        measure: Measure | None,
        task: SearchTask,
        schedules: Sequence[Schedule],
        anchor: MeasureRecord | None,
    ) -> Sequence[MeasureRecord]:
        if schedules and measure is None:
            raise LookupError(f"{len(schedules)} schedules of {task.key} are not on record")
        return measure(task, schedules, anchor) if schedules and measure is not None else ()

    @staticmethod
    def _record(
        task: SearchTask, schedule: Schedule, seconds: float | None, error: str, round_index: int
    ) -> MeasureRecord:
        times = () if seconds is None else (seconds,)
        return MeasureRecord(
            task.key, task.scope, schedule, times, ErrorKind(error), run_id="bench",
            round_index=round_index,
        )  # fmt: skip

    def fastest(self, task: SearchTask, n: int) -> list[Schedule]:
        """The n best schedules on record."""
        good = [(t, s) for t, _, s in self._known.get(task.key, {}).values() if t is not None]
        return [s for _, s in sorted(good, key=lambda row: row[0])[:n]]

    def seconds(self, task: SearchTask, schedule: Schedule) -> float:
        """Its settled latency if the task has any, else the one of its trial."""
        if task.key in self._settled:
            return self._settled[task.key][schedule.key]
        seconds, _, _ = self._known[task.key][schedule.key]
        return math.inf if seconds is None else seconds

    def best(self, task: SearchTask) -> float:
        """Seconds of the best schedule, infinite if there is none."""
        settled = self._settled.get(task.key)
        if settled:
            return min(settled.values())
        return min((self.seconds(task, s) for s in self.fastest(task, 1)), default=math.inf)

    def save(self) -> None:
        """Write all answers to the file, whole or not at all."""
        if self._path is None:
            return
        latencies = {
            key: {k: (t, e, s.to_json()) for k, (t, e, s) in rows.items()}
            for key, rows in self._known.items()
        }
        whole = self._path.with_suffix(".part")
        stored = {"latencies": latencies, "settled": self._settled}
        whole.write_text(json.dumps(stored, indent=0), encoding="utf-8")
        os.replace(whole, self._path)
