"""The task table, held against the figures of the tutorial."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from engine.search.table import (
    estimated_total,
    markdown_table,
    summary_line,
    table_rows,
    task_name,
    text_table,
)
from engine.search.task_scheduler import TaskState
from tests.search.synthetic import search_task

SEED = json.loads(
    (Path(__file__).parent.parent / "data" / "resnet50_tasks.json").read_text(encoding="utf-8")
)
TASKS = tuple(
    search_task(
        t.get("flops", 2000), weight=t["weight_count"], anchor=t["anchor"], key=f"task{t['id']}",
        description={
            "data_shape": t["data"], "weight_shape": t["weight"], "strides": [t["stride"]] * 2,
            "pads": [t["pad"]] * 4, "epilogue": t["epilogue"],
        },
    )
    for t in SEED["tasks"]
)  # fmt: skip
STATES = tuple(
    TaskState(f"task{t['id']}", trials=t["seed_trials"], best=t["seed_latency_ms"] / 1e3)
    for t in SEED["tasks"]
)
ROWS = table_rows(TASKS, STATES)


def test_the_tutorials_latencies_add_up_to_its_total() -> None:
    assert estimated_total(ROWS) * 1e3 == pytest.approx(10.016, abs=5e-7)
    assert len(ROWS) == 29 and sum(r.weight for r in ROWS) == 57
    line = summary_line(ROWS, SEED["seed_seconds"], 9)
    assert line.startswith("Estimated total latency: 10.016 ms  Trials: ")
    assert line.endswith("Used time: 1131 s  Next ID: 9")


def test_speeds_are_flops_over_latency() -> None:
    known = [(row, t) for row, t in zip(ROWS, SEED["tasks"], strict=True) if "flops" in t]
    assert len(known) > 20
    for row, t in known:
        assert row.gflops == pytest.approx(t["flops"] / (t["seed_latency_ms"] / 1e3) / 1e9)


def test_names_tell_shapes_and_epilogue() -> None:
    assert task_name(TASKS[4].workload) == (
        "conv2d 1x7x7x512, 3x3x512x512, pad 1 + bias_add + relu"
    )
    assert task_name(TASKS[0].workload) == "softmax 1x1000"
    names = {r.name for r in ROWS}
    assert len(names) == len(ROWS)


def test_a_task_without_a_latency_says_why() -> None:
    states = (
        TaskState("x"),
        TaskState("y", trials=32, failures=32),
        TaskState("z", best=2e-3, trials=8),
    )
    rows = table_rows(TASKS[:3], states)
    assert rows[0].cells()[2:] == ("default schedule", "", "0")
    assert rows[1].cells()[2:] == ("no valid schedule yet", "", "32")
    assert rows[2].cells()[2] == "2.000"
    line = summary_line(rows, 61.4, None)
    assert "2.000 ms (without 2 untuned tasks)" in line and line.endswith("Next ID: none")
    assert "(without 1 untuned task)" in summary_line(rows[1:], 0, 0)
    assert not math.isnan(estimated_total(()))


def test_text_columns_are_aligned() -> None:
    lines = text_table(ROWS, 1131, 9).splitlines()
    body = [line for line in lines if line.startswith("|")]
    assert len(body) == 30
    assert len({len(line) for line in body}) == 1
    assert len({tuple(i for i, c in enumerate(line) if c == "|") for line in body}) == 1


def test_markdown_has_a_row_a_task() -> None:
    lines = markdown_table(ROWS, 1131, 9).splitlines()
    assert lines[0] == "| ID | Task | Latency (ms) | Speed (GFLOPS) | Trials |"
    assert sum(line.startswith("| ") for line in lines) == 30
    assert "10.016 ms" in lines[-1]
