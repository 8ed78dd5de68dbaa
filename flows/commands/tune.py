"""Search for the fastest programs of one or several networks.

Tasks that the networks share are tuned once.  Every finished round is stored; Ctrl-C keeps all
records, and the same command goes on from them.  `--trials` and `--time` count what this run adds;
with neither it goes on until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from typing import Any

from flows.options import (
    add_accuracy,
    add_db,
    add_json,
    add_shape,
    add_target,
    add_verbose,
    duration,
    positive,
)

EXAMPLE = "noctune tune resnet-18 mobilenet-v2 --time 20m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="+", help="built-in networks or ONNX files")
    parser.add_argument(
        "--trials", type=positive, metavar="N", help="new trials of this run, at most"
    )
    parser.add_argument(
        "--time", type=duration, metavar="T", help="length of this run: 90s, 10m, 1h30m"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of all randomness")
    add_shape(parser)
    add_db(parser)
    add_target(parser)
    add_accuracy(parser)
    add_json(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from db.store import open_store
    from flows.prefect_run import run_flow
    from tasks.networks import check_model
    from tasks.session import resolve_target

    for model in args.model:
        check_model(model)
    resolve_target(args.target)
    open_store(args.db).close()
    return run_flow(args, _tune)


def _tune(args: argparse.Namespace) -> int:
    from flows.interrupts import INTERRUPTED
    from flows.parameters import TuneParameters
    from flows.tune import tune

    result = tune(
        TuneParameters(
            models=args.model,
            trials=args.trials,
            seconds=args.time,
            db=args.db,
            target=args.target,
            threads=args.threads,
            seed=args.seed,
            shapes={name: list(shape) for name, shape in args.shape},
            batch=args.batch,
            accuracy=args.accuracy,
        )
    )
    if args.json:
        print(json.dumps(_plain(asdict(result)), indent=2))
    out = sys.stderr if args.json else sys.stdout
    if result.interrupted:
        print(f"Stopped; all {result.trials} new trials are stored. Go on with:", file=out)
        print(f"  {again()}", file=out)
        return INTERRUPTED
    print(f"Records are in {result.db}. Next:", file=out)
    for model in args.model:
        name = model.rsplit("/", 1)[-1].removesuffix(".onnx")
        print(f"  noctune compile {shlex.quote(model)} -o {shlex.quote(name)}.net", file=out)
    return 0


def again() -> str:
    """The command line as it was typed."""
    return shlex.join(["noctune", *sys.argv[1:]])


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))
