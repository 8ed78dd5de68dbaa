"""Time a compiled network, beside other engines if wanted.

The engines take turns in groups of calls, each group at least --min-repeat-ms long; the outputs are
compared.  "mean" and "std" are over the groups, "median" and "min" over all calls.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from flows.options import add_json, add_threads, positive
from flows.report import evaluation_rows
from flows.text import table

EXAMPLE = "noctune bench resnet-18.net --model resnet-18 --against onnxruntime,openvino --threads 2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("net", help="compiled network")
    parser.add_argument(
        "--against", default="", metavar="NAMES", help="peers: onnxruntime,openvino"
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="what it was compiled from; the peers need it"
    )
    parser.add_argument(
        "--repeat", type=positive, default=3, metavar="N", help="groups (default 3)"
    )
    parser.add_argument(
        "--min-repeat-ms", type=_milliseconds, default=500.0, metavar="MS",
        help="least length of a group (default 500)",
    )  # fmt: skip
    add_threads(parser)
    add_json(parser)


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of milliseconds above zero")
    return value


def run(args: argparse.Namespace) -> int:
    from tasks.evaluation import bench

    found = bench(
        args.net,
        against=[name.strip() for name in args.against.split(",") if name.strip()],
        model=args.model,
        threads=args.threads,
        repeat=args.repeat,
        min_repeat_ms=args.min_repeat_ms,
    )
    print(json.dumps(found, indent=2) if args.json else "\n".join(bench_lines(found)))
    return 0


def bench_lines(found: dict[str, Any]) -> list[str]:
    """A comparison for people."""
    mine = found["noctune"]
    lines = [
        f"{found['network']}, {found['threads']} threads",
        "",
        table(("engine", "median ms", "min ms", "noctune faster by"), evaluation_rows(found)),
        "",
        f"noctune: {mine['mean_ms']:.3f} ms mean, {mine['std_ms']:.3f} ms standard deviation "
        "over the groups",
    ]
    if found["estimated_ms"] is not None:
        lines.append(f"Estimated from its tasks: {found['estimated_ms']:.3f} ms")
    if found["max_rel_error"] is not None:
        lines.append(
            f"Outputs: largest difference {found['max_abs_error']:.2e}, "
            f"{found['max_rel_error']:.2e} of the largest output"
        )
    elif found["peers"]:
        lines.append("Outputs: not finite in the same places")
    return lines
