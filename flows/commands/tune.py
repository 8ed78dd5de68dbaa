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
from functools import partial
from typing import Any

from flows.json_lines import result_text, tell
from flows.options import (
    add_budget,
    add_json,
    add_logs,
    add_network,
    network_options,
    network_words,
)

EXAMPLE = "noctune tune resnet-18 mobilenet-v2 --time 20m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="+", help="built-in networks or ONNX files")
    add_budget(parser, "length of this run")
    add_network(parser)
    add_json(parser)
    add_logs(parser)


def run(args: argparse.Namespace) -> int:
    from flows.prefect_run import run_flow
    from tasks.networks import check_model
    from tasks.session import resolve_target
    from tasks.stores import check_store

    alone = len(args.model) == 1  # several models take the options that are for them
    for model in args.model:
        check_model(model, dict(args.shape) if alone else {}, args.batch if alone else 1)
    resolve_target(args.target)
    check_store(args.db)
    return run_flow(args, _tune, flow="tune", check=check_files, stops=True)


def check_files(args: argparse.Namespace) -> None:
    """Raises ModelError for an ONNX file that cannot be read, before a flow is started."""
    from engine.target import named
    from tasks.networks import is_builtin, load_network

    models = args.model if isinstance(args.model, list) else [args.model]
    for model in models:
        if not is_builtin(model):
            load_network(model, named(args.target), dict(args.shape), args.batch)


def _tune(args: argparse.Namespace) -> int:
    from flows.interrupts import INTERRUPTED
    from flows.parameters import TuneParameters
    from flows.tune import tune

    result = tune(
        TuneParameters(
            models=args.model,
            trials=args.trials,
            seconds=args.time,
            seed=args.seed,
            **network_options(args),
        )
    )
    if args.json:
        print(result_text(args, _plain(asdict(result))))
    say = partial(tell, args) if args.json else print
    if result.interrupted:
        say(f"Stopped; all {result.trials} new trials are stored. Go on with:\n  {again()}")
        return INTERRUPTED
    lines, words = [f"Records are in {result.db}. Next:"], network_words(args)
    for model in args.model:
        name = model.rsplit("/", 1)[-1].removesuffix(".onnx")
        lines.append("  " + shlex.join(["noctune", "compile", model, "-o", f"{name}.net", *words]))
    say("\n".join(lines))
    return 0


def again() -> str:
    """The command line as it was typed."""
    return shlex.join(["noctune", *sys.argv[1:]])


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))
