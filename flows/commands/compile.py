"""Build a network from the best records of its search tasks: one file.

The file holds packed weights, object code and a manifest; loading it needs neither the database nor
Prefect nor ONNX.  Tasks without a valid record get the default schedule, and the output says which.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from flows.options import add_db, add_json, add_shape, add_target, add_verbose
from flows.text import milliseconds

EXAMPLE = "noctune compile resnet-18 -o resnet-18.net"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="built-in network or ONNX file")
    parser.add_argument("-o", "--output", required=True, metavar="NET", help="the file to write")
    parser.add_argument(
        "--no-verify", action="store_true", help="do not compare the outputs with a reference"
    )
    add_shape(parser)
    add_db(parser)
    add_target(parser)
    add_json(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from flows.files import check_writable
    from flows.prefect_run import run_flow

    check_writable(args.output)
    return run_flow(args, _compile)


def _compile(args: argparse.Namespace) -> int:
    from flows.compile import compile_network
    from flows.parameters import CompileParameters

    report = compile_network(
        CompileParameters(
            model=args.model,
            output=args.output,
            db=args.db,
            target=args.target,
            threads=args.threads,
            shapes={name: list(shape) for name, shape in args.shape},
            batch=args.batch,
            verify=not args.no_verify,
        )
    )
    if args.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        print("\n".join(compile_lines(report)))
    return 0


def compile_lines(report) -> list[str]:  # type: ignore[no-untyped-def]
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


def verification_line(found: dict[str, object]) -> str:
    """One line on how the outputs compare."""
    verdict = "agree with" if found["ok"] else "DIFFER from"
    return (
        f"Outputs {verdict} {found['reference']}: largest error {found['max_abs_error']:.2e}, "
        f"{found['max_rel_error']:.2e} of the largest output"
    )
