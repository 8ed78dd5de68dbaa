"""The task scheduler's table: what is known of each search task and of the networks made of them.

In: search tasks and their records.  Out: `TaskRow`s and estimated latencies, plain values for the
terminal, the database and the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.graph.task import SearchTask
from engine.records import MeasureRecord
from engine.search import remaining_gain, task_name


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One search task; `latency` in seconds of its best record, None while it has no valid one."""

    id: int
    name: str
    weight: int
    latency: float | None
    gflops: float | None
    trials: int
    failed: int
    workload_key: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def best_record(records: Sequence[MeasureRecord]) -> MeasureRecord | None:
    """The fastest valid record, None if there is none."""
    return min((r for r in records if r.valid), key=lambda r: r.latency, default=None)


def anchor_record(records: Sequence[MeasureRecord]) -> MeasureRecord | None:
    """The fastest record of the oldest round that has a valid one; `records` are oldest first.

    Later rounds are timed beside this candidate.  It stays the same for good: the best so far would
    be the luckiest so far, and every round scaled by it would look faster than the one before.
    """
    first = next((r for r in records if r.valid), None)
    if first is None:
        return None
    place = first.run_id, first.round_index
    return best_record([r for r in records if (r.run_id, r.round_index) == place])


def best_latency(records: Sequence[MeasureRecord]) -> float | None:
    """Seconds of the fastest valid record, None if there is none."""
    best = best_record(records)
    return None if best is None else best.latency


def task_rows(
    tasks: Sequence[SearchTask], history: Mapping[str, Sequence[MeasureRecord]]
) -> tuple[TaskRow, ...]:
    """One row a task, in the order of the tasks."""
    rows = []
    for index, task in enumerate(tasks):
        records = history.get(task.key, ())
        latency = best_latency(records)
        rows.append(
            TaskRow(
                id=index,
                name=task_name(task.workload),
                weight=task.weight,
                latency=latency,
                gflops=task.workload.flops / latency / 1e9 if latency else None,
                trials=len(records),
                failed=sum(not r.valid for r in records),
                workload_key=task.key,
            )
        )
    return tuple(rows)


def estimate(
    weights: Mapping[str, int], best: Mapping[str, float | None]
) -> tuple[float | None, int]:
    """A network's estimated latency in seconds (None if no task has one), and tasks without one.

    The sum of weight times best latency, over the tasks that have a latency.
    """
    known = [w * latency for key, w in weights.items() if (latency := best.get(key))]
    return (sum(known) if known else None), len(weights) - len(known)


def expected_gain(
    tasks: Sequence[SearchTask], histories: Sequence[Sequence[MeasureRecord]], more: int
) -> float | None:
    """Share of the estimated time that `more` further trials in all would probably save.

    Over the tasks that have a latency; None while there are none.
    """
    best = [best_latency(records) for records in histories]
    now = sum(t.weight * seconds for t, seconds in zip(tasks, best, strict=True) if seconds)
    return remaining_gain(tasks, histories, more) / now if now else None
