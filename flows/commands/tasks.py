"""Show the search tasks that a network is cut into."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from flows.options import add_json, add_shape, add_target
from flows.text import table

if TYPE_CHECKING:
    from engine.graph.task import SearchTask

EXAMPLE = "noctune tasks resnet-50 --dag"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="built-in network or ONNX file")
    parser.add_argument("--dag", action="store_true", help="print each task's compute DAG")
    add_shape(parser)
    add_target(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.target import named
    from tasks.networks import check_model, load_network, merge_tasks

    target = named(args.target)
    check_model(args.model, dict(args.shape), args.batch)
    network = load_network(args.model, target, dict(args.shape), args.batch)
    found = merge_tasks([network], args.threads or target.cores)
    if args.json:
        print(json.dumps([describe(i, t, args.dag) for i, t in enumerate(found)], indent=2))
        return 0
    if args.dag:
        print("\n\n".join(_dag(i, t) for i, t in enumerate(found)))
        return 0
    from engine.search import task_name

    cells = [
        (i, task_name(t.workload), t.weight, f"{t.workload.flops / 1e6:.2f}")
        for i, t in enumerate(found)
    ]
    print(table(("ID", "search task", "weight", "MFLOP"), cells, left=2))
    total = sum(t.weight * t.workload.flops for t in found)
    count = sum(t.weight for t in found)
    print(f"\n{len(found)} search tasks, {count} occurrences, {total / 1e9:.3f} GFLOP")
    return 0


def describe(index: int, task: SearchTask, with_dag: bool = False) -> dict[str, Any]:
    """A search task as plain data, with the keys that programs rely on."""
    given = task.workload.description
    out = {
        "id": index,
        "workload_key": task.key,
        "weight": task.weight,
        "anchor": task.workload.anchor,
        "data_shape": _list(given.get("data_shape")),
        "weight_shape": _list(given.get("weight_shape")),
        "strides": _list(given.get("strides")),
        "pads": _list(given.get("pads")),
        "epilogue": _list(given.get("epilogue", ())),
        "output_shape": _list(given.get("output_shape")),
        "flops": int(given.get("flops", task.workload.flops)),
    }
    if with_dag:
        out["dag"] = str(task.workload.dag).splitlines()
    return out


def _list(value: Any) -> list[Any] | None:
    return None if value is None else list(value)


def _dag(index: int, task: SearchTask) -> str:
    from engine.search import task_name

    name = task_name(task.workload)
    return f"# {index}: {name}, {task.weight} times\n{task.workload.dag}"
