"""Names of search tasks, for the tasks of the tutorial."""

from __future__ import annotations

import json
from pathlib import Path

from engine.search import task_name
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


def test_names_tell_shapes_and_epilogue() -> None:
    assert task_name(TASKS[4].workload) == (
        "conv2d 1x7x7x512, 3x3x512x512, pad 1 + bias_add + relu"
    )
    assert task_name(TASKS[0].workload) == "softmax 1x1000"
    assert len({task_name(t.workload) for t in TASKS}) == len(TASKS) == 29
