"""Tune, compile, check and publish many networks in a time window.

Models are folders, globs, ONNX files or built-in names.  All their search tasks share the time; a
broken model is left out and named.  A network replaces the published one only if its outputs are
right and it is at least as fast beside it.  Exit code 1 if a network failed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from flows.json_lines import result_text
from flows.options import (
    add_budget,
    add_json,
    add_logs,
    add_network,
    network_options,
    peer_names,
    positive,
    whole,
)

EXAMPLE = "noctune nightly models/ --time 4h --folder published"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="+", help="folders, globs, ONNX files or built-in networks")
    add_budget(parser, "window for everything")
    parser.add_argument(
        "--folder", default="published", metavar="DIR", help="where to publish (published)"
    )
    parser.add_argument(
        "--keep", type=positive, default=5, metavar="N", help="versions kept of each network (5)"
    )
    parser.add_argument(
        "--keep-records", type=whole, default=0, metavar="K",
        help="distil to K best records of each workload at the end (default: keep all)",
    )  # fmt: skip
    parser.add_argument(
        "--against", type=peer_names, default=["onnxruntime"], metavar="NAMES",
        help="peers to time beside: onnxruntime,openvino (default onnxruntime)",
    )  # fmt: skip
    add_network(parser)
    add_json(parser)
    add_logs(parser)


def run(args: argparse.Namespace) -> int:
    from engine.errors import NoctuneError
    from flows.prefect_run import run_flow
    from tasks.finding import find_models
    from tasks.peers import check_names
    from tasks.publishing import check_folder
    from tasks.session import resolve_target
    from tasks.stores import check_store

    if args.time is None and args.trials is None:
        raise NoctuneError("a night needs an end", fix="Give --time 4h or --trials 2000.")
    check_names(args.against)
    find_models(args.model)
    resolve_target(args.target)
    check_store(args.db)
    check_folder(args.folder)
    return run_flow(args, _nightly, flow="nightly", stops=True)


def _nightly(args: argparse.Namespace) -> int:
    from flows.interrupts import INTERRUPTED
    from flows.night_report import RESULT_HEADERS, headline, result_cells
    from flows.nightly import nightly
    from flows.parameters import NightlyParameters
    from flows.text import table

    report = nightly(
        NightlyParameters(
            models=args.model,
            seconds=args.time,
            trials=args.trials,
            folder=args.folder,
            keep_versions=args.keep,
            keep_records=args.keep_records,
            against=args.against,
            seed=args.seed,
            **network_options(args),
        )
    )
    if args.json:
        print(result_text(args, asdict(report)))
    else:
        print("\n" + table(RESULT_HEADERS, [result_cells(r) for r in report.results], left=2))
        print(f"\n{headline(report)}")
    if report.interrupted:
        return INTERRUPTED
    return 1 if report.failed else 0
