"""Time a compiled network, beside other engines if wanted.

The engines take turns in groups of calls, each group at least --min-repeat-ms long; the outputs are
compared.  "mean" and "std" are over the groups, "median" and "min" over all calls.  With --model
the outputs are verified, too; the exit code is 1 if they are wrong.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from flows.json_lines import result_text, tell
from flows.options import add_json, add_logs, add_threads, peer_names, positive
from flows.report import evaluation_rows
from flows.text import table

EXAMPLE = "noctune bench resnet-18.net --model resnet-18 --against onnxruntime,openvino --threads 2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("net", help="compiled network")
    parser.add_argument(
        "--against", type=peer_names, default=[], metavar="NAMES",
        help="peers: onnxruntime,openvino",
    )  # fmt: skip
    parser.add_argument(
        "--model", default="", metavar="MODEL",
        help="what it was compiled from; needed for peers and for verifying",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", type=positive, default=3, metavar="N", help="groups (default 3)"
    )
    parser.add_argument(
        "--min-repeat-ms", type=_milliseconds, default=500.0, metavar="MS",
        help="least length of a group (default 500)",
    )  # fmt: skip
    parser.add_argument(
        "--db", default="", metavar="URL",
        help="note the timing in this database, if it knows the network (default: nowhere)",
    )  # fmt: skip
    add_threads(parser)
    add_json(parser)
    add_logs(parser)


_LONGEST_MS = 3.6e6


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_MS:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of milliseconds above zero and up to {_LONGEST_MS:.0f}"
        )
    return value


def run(args: argparse.Namespace) -> int:
    from flows.prefect_run import run_flow
    from tasks.evaluation import open_network
    from tasks.stores import open_existing

    open_network(args.net, args.against, args.model)
    if args.db:
        open_existing(args.db).close()
    return run_flow(args, _bench, flow="evaluate")


def _bench(args: argparse.Namespace) -> int:
    from flows.evaluate import evaluate
    from flows.parameters import EvaluateParameters

    found = evaluate(
        EvaluateParameters(
            path=args.net,
            model=args.model,
            against=args.against,
            threads=args.threads,
            repeat=args.repeat,
            min_repeat_ms=args.min_repeat_ms,
            db=args.db,
        )
    )
    timing, verified = dict(found.timing), found.verification
    print(result_text(args, timing) if args.json else "\n".join(bench_lines(timing)))
    if verified and not verified["ok"]:
        tell(
            args,
            f"noctune: the outputs differ from {verified['reference']}: largest error "
            f"{verified['max_rel_error']:.2e} of the largest output",
            "ERROR",
        )
        return 1
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
