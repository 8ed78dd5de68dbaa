"""The whole way on resnet-18: tune for two minutes, compile, verify, time beside ONNX Runtime.

Everything goes into one folder, by default a fresh one, so that it starts from an empty database.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from flows.options import add_threads, add_verbose, duration

EXAMPLE = "noctune demo --time 2m"
MODEL = "resnet-18"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--time", type=duration, default=120.0, metavar="T", help="length of the tuning (2m)"
    )
    parser.add_argument(
        "--folder", metavar="DIR", help="where the results go (default: noctune-demo-DATE)"
    )
    add_threads(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from engine.errors import NoctuneError
    from flows.prefect_run import run_flow

    folder = Path(args.folder or time.strftime("noctune-demo-%Y%m%d-%H%M%S"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoctuneError(
            "the folder cannot be made", where=str(folder), why=error.strerror or ""
        ) from error
    args.folder = str(folder)
    print(f"1/4  Tuning {MODEL} for {args.time:.0f} s (Ctrl-C ends the tuning earlier)", flush=True)
    return run_flow(args, _demo, flow="tune", stops=True)


def _demo(args: argparse.Namespace) -> int:
    from flows.commands.bench import bench_lines
    from flows.commands.compile import compile_lines
    from flows.compile import compile_network
    from flows.evaluate import evaluate
    from flows.parameters import CompileParameters, EvaluateParameters, PeerName, TuneParameters
    from flows.tune import tune
    from tasks.peers import is_installed

    folder = Path(args.folder)
    db, net = str(folder / "noctune.sqlite"), str(folder / f"{MODEL}.net")
    tune(TuneParameters(models=[MODEL], seconds=args.time, db=db, threads=args.threads))
    print("\n2/4  Compiling with the best records", flush=True)
    built = compile_network(
        CompileParameters(model=MODEL, output=net, db=db, threads=args.threads, verify=False)
    )
    print("\n".join(compile_lines(built)))
    peers: list[PeerName] = ["onnxruntime"] if is_installed("onnxruntime") else []
    print("\n3/4  Verifying the outputs and timing", *[f"beside {p}" for p in peers], flush=True)
    found = evaluate(
        EvaluateParameters(path=net, model=MODEL, against=peers, db=db, threads=args.threads)
    )
    print("\n".join(bench_lines(dict(found.timing))))
    good = found.verification["ok"]
    print(f"Verified against {found.verification['reference']}: {'right' if good else 'WRONG'}")
    if not peers:
        print('ONNX Runtime is not installed: pip install "noctune[compare]" to compare.')
    print(f"\n4/4  Results are in {folder}/")
    print(f"  {db}   every trial: noctune records best --db {db}")
    print(f"  {net}   the network: engine.load({net!r}) in Python")
    print(f"  go on tuning: noctune tune {MODEL} --db {db} --time 10m")
    sys.stdout.flush()
    return 0 if good else 1
