"""Show the search space of a network's tasks: sketches, knobs, and how many programs there are."""

from __future__ import annotations

import argparse
import json
from typing import Any

from flows.options import add_json, add_shape, add_target
from flows.text import table

EXAMPLE = "noctune space resnet-18 --task 3"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="built-in network or ONNX file")
    parser.add_argument("--task", type=int, metavar="ID", help="this task only, with its knobs")
    add_shape(parser)
    add_target(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.errors import NoctuneError
    from engine.search import task_name
    from engine.space import sketches
    from engine.target import named
    from tasks.networks import check_model, load_network, merge_tasks

    target = named(args.target)
    check_model(args.model, dict(args.shape), args.batch)
    network = load_network(args.model, target, dict(args.shape), args.batch)
    threads = args.threads or target.cores
    found = merge_tasks([network], threads)
    if args.task is not None and not 0 <= args.task < len(found):
        raise NoctuneError(
            f"there is no task {args.task}", where=network.name, fix=f"Give 0 to {len(found) - 1}."
        )
    chosen = range(len(found)) if args.task is None else [args.task]
    plain: list[dict[str, Any]] = []
    cells = []
    for i in chosen:
        for sketch in sketches(found[i].workload, target, threads):
            knobs = {knob.name: list(knob.values) for knob in sketch.knobs}
            plain.append(
                {
                    "id": i,
                    "sketch": sketch.name,
                    "size": sketch.size,
                    "knobs": knobs,
                    "rules": list(sketch.skeleton.trace),
                }
            )
            rules = ", ".join(sketch.skeleton.trace)
            cells.append(
                (i, task_name(found[i].workload), sketch.name, rules, f"{sketch.size:.2e}")
            )
    if args.json:
        print(json.dumps(plain, indent=2))
        return 0
    print(table(("ID", "search task", "sketch", "rules", "programs"), cells, left=4))
    if args.task is not None:
        for entry in plain:
            print(f"\n{entry['sketch']}")
            rows = [(name, " ".join(map(str, v))) for name, v in entry["knobs"].items()]
            print(table(("knob", "values"), rows, left=2))
    return 0
