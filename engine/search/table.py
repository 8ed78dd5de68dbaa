"""The task table that every tuner of this kind prints.

In: tasks and their states.  Out: text or markdown rows

    | ID | Task | Latency (ms) | Speed (GFLOPS) | Trials |
    Estimated total latency: 10.016 ms  Trials: 3992  Used time: 1131 s  Next ID: 9
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.graph.task import SearchTask, Workload
from engine.search.task_scheduler import TaskState

HEADER = ("ID", "Task", "Latency (ms)", "Speed (GFLOPS)", "Trials")
DEFAULT, NO_VALID = "default schedule", "no valid schedule yet"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line; `latency` in seconds, infinite if there is none, and `note` is then shown."""

    index: int
    name: str
    latency: float
    gflops: float
    trials: int
    weight: int = 1
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        known = math.isfinite(self.latency)
        return (
            str(self.index),
            self.name,
            f"{self.latency * 1e3:.3f}" if known else self.note,
            f"{self.gflops:.2f}" if known else "",
            str(self.trials),
        )


def task_name(workload: Workload) -> str:
    """Anchor, shapes and epilogue: "conv2d 1x7x7x512, 3x3x512x512, stride 1, pad 1 + relu"."""
    d: Mapping[str, Any] = workload.description
    parts = [_shape(d.get("data_shape")), _shape(d.get("weight_shape"))]
    for word, name in (("stride", "strides"), ("pad", "pads"), ("group", "groups")):
        text = _numbers(d.get(name))
        if text and not (word in ("stride", "group") and text == "1") and text != "0":
            parts.append(f"{word} {text}")
    epilogue = "".join(f" + {op}" for op in d.get("epilogue") or ())
    return f"{workload.anchor} {', '.join(p for p in parts if p)}{epilogue}".strip()


def _shape(value: object) -> str:
    return "x".join(str(v) for v in value) if isinstance(value, Sequence) else ""


def _numbers(value: object) -> str:
    """ "2" of [2, 2]; "1,0" of [1, 0]; "" of nothing."""
    if value is None or isinstance(value, str):
        return value or ""
    values = [str(v) for v in value] if isinstance(value, Sequence) else [str(value)]
    return values[0] if len(set(values)) == 1 else ",".join(values)


def table_rows(tasks: Sequence[SearchTask], states: Sequence[TaskState]) -> tuple[TaskRow, ...]:
    """One row a task, in order."""
    return tuple(
        TaskRow(
            index=i,
            name=task_name(task.workload),
            latency=state.best,
            gflops=task.workload.flops / state.best / 1e9,
            trials=state.trials,
            weight=task.weight,
            note=NO_VALID if state.trials else DEFAULT,
        )
        for i, (task, state) in enumerate(zip(tasks, states, strict=True))
    )


def estimated_total(rows: Sequence[TaskRow]) -> float:
    """Weighted sum of the known latencies, seconds."""
    return sum(r.latency * r.weight for r in rows if math.isfinite(r.latency))


def summary_line(rows: Sequence[TaskRow], used_seconds: float, next_id: int | None) -> str:
    """The line under the table; untuned tasks are named since the total leaves them out."""
    untuned = sum(not math.isfinite(r.latency) for r in rows)
    left_out = f" (without {untuned} untuned task{'s' * (untuned > 1)})" if untuned else ""
    return (
        f"Estimated total latency: {estimated_total(rows) * 1e3:.3f} ms{left_out}  "
        f"Trials: {sum(r.trials for r in rows)}  Used time: {used_seconds:.0f} s  "
        f"Next ID: {'none' if next_id is None else next_id}"
    )


def text_table(rows: Sequence[TaskRow], used_seconds: float, next_id: int | None) -> str:
    """Aligned columns in a frame, then the summary line."""
    cells = [HEADER, *(r.cells() for r in rows)]
    widths = [max(len(line[c]) for line in cells) for c in range(len(HEADER))]
    rule = "-" * (sum(widths) + 3 * len(widths) + 1)
    lines = [
        "| " + " | ".join(
            text.ljust(w) if c == 1 else text.rjust(w)
            for c, (text, w) in enumerate(zip(line, widths, strict=True))
        ) + " |"
        for line in cells
    ]  # fmt: skip
    return "\n".join(
        [rule, lines[0], rule, *lines[1:], rule, summary_line(rows, used_seconds, next_id)]
    )


def markdown_table(rows: Sequence[TaskRow], used_seconds: float, next_id: int | None) -> str:
    """The same as a markdown table (Prefect artifacts)."""
    lines = ["| " + " | ".join(HEADER) + " |", "|---:|---|---:|---:|---:|"]
    lines += ["| " + " | ".join(r.cells()) + " |" for r in rows]
    return "\n".join([*lines, "", summary_line(rows, used_seconds, next_id)])
