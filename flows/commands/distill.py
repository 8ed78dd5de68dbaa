"""Keep the best records of each workload and target; the rest goes into an archive first.

The best schedule of each always stays, so that compiling gives the same networks as before; some
slower ones stay for the cost model.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from flows.json_lines import result_text
from flows.options import add_db, add_json, add_logs, positive, whole

EXAMPLE = "noctune distill --keep 16 -o best.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", type=positive, default=16, metavar="K",
        help="fastest schedules kept of each workload and target (default 16)",
    )  # fmt: skip
    parser.add_argument(
        "--spread", type=whole, default=112, metavar="N",
        help="further records kept for the cost model (default 112)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", default="", metavar="FILE", help="write what stays")
    parser.add_argument(
        "--archive", default="", metavar="FILE",
        help="where what goes is written first (default: beside the database)",
    )  # fmt: skip
    add_db(parser)
    add_json(parser)
    add_logs(parser)


def run(args: argparse.Namespace) -> int:
    from flows.prefect_run import run_flow
    from tasks.stores import open_existing
    from tasks.upkeep import check_outputs

    check_outputs(args.db, args.archive, args.output)
    open_existing(args.db).close()
    return run_flow(args, _distill, flow="distill")


def _distill(args: argparse.Namespace) -> int:
    from flows.distill import distill
    from flows.parameters import DistillParameters

    report = distill(
        DistillParameters(
            db=args.db, keep=args.keep, spread=args.spread, output=args.output,
            archive=args.archive,
        )
    )  # fmt: skip
    if args.json:
        print(result_text(args, asdict(report)))
        return 0
    print(f"{report.db}: {report.kept} records kept, {report.removed} removed")
    if report.archive:
        print(f"The removed ones are in {report.archive}")
    if report.output:
        print(f"Wrote {report.output} ({report.lines} lines)")
    return 0
