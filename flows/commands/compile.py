"""Build a network from the best records of its search tasks: one file.

The file holds packed weights, object code and a manifest; loading it needs neither the database nor
Prefect nor ONNX.  Tasks without a valid record get the default schedule, and the output says which.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flows.json_lines import result_text
from flows.options import add_json, add_logs, add_network, network_options
from flows.text import milliseconds

if TYPE_CHECKING:
    from tasks.building import CompileReport

EXAMPLE = "noctune compile resnet-18 -o resnet-18.net"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="built-in network or ONNX file")
    parser.add_argument("-o", "--output", required=True, metavar="NET", help="the file to write")
    parser.add_argument(
        "--no-verify", action="store_true", help="do not compare the outputs with a reference"
    )
    add_network(parser)
    add_json(parser)
    add_logs(parser)


def run(args: argparse.Namespace) -> int:
    from flows.commands.tune import check_files
    from flows.prefect_run import run_flow
    from tasks.building import check_output
    from tasks.networks import check_model
    from tasks.session import resolve_target
    from tasks.stores import open_or_empty

    check_model(args.model, dict(args.shape), args.batch)
    check_output(args.output, args.model, args.db)
    resolve_target(args.target)
    open_or_empty(args.db).close()
    return run_flow(args, _compile, flow="compile", check=check_files)


def _compile(args: argparse.Namespace) -> int:
    from flows.compile import compile_network
    from flows.parameters import CompileParameters

    report = compile_network(
        CompileParameters(
            model=args.model,
            output=args.output,
            verify=not args.no_verify,
            **network_options(args),
        )
    )
    if args.json:
        print(result_text(args, asdict(report)))
    else:
        print("\n".join(compile_lines(report)))
    return 0


def compile_lines(report: CompileReport) -> list[str]:
    """What a compilation gave, for people."""
    lines = [
        f"Wrote {report.path} ({report.bytes / 1e6:.1f} MB): {report.network}, "
        f"{report.tuned} of {report.tuned + len(report.untuned)} search tasks from records"
    ]
    if report.estimated is not None:
        lines.append(f"Estimated latency: {milliseconds(report.estimated)} ms")
    for name in report.untuned:
        lines.append(f"  no record, default schedule: {name}")
    for hint in report.hints:
        lines.append(hint)
    for name, op in report.host_calls:
        lines.append(f"  host call: {op} ({name})")
    if report.verification:
        lines.append(verification_line(report.verification))
    return lines


def verification_line(found: Mapping[str, Any]) -> str:
    """One line on how the outputs compare."""
    return (
        f"Outputs agree with {found['reference']}: largest error {found['max_abs_error']:.2e}, "
        f"{found['max_rel_error']:.2e} of the largest output"
    )
