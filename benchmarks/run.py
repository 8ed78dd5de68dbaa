"""The side-by-side table: every built-in network against ONNX Runtime and OpenVINO.

    python -m benchmarks.run --time 10m --db bench.sqlite

Each network is tuned (goes on from the records of an earlier run), compiled and timed beside the
peers, the engines taking turns in one process, for each number of threads.  The result is
benchmarks/RESULTS.md; what an interrupted run has measured is kept in the work folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from math import exp, log
from pathlib import Path
from typing import Any

from engine import zoo
from engine.files import replacing
from engine.target import host
from tasks.networks import load_network, merge_tasks
from tasks.stores import open_existing

PEERS = ("onnxruntime", "openvino")
GOALS = {
    "resnet-18-v1": 1.8, "resnet-50": 1.4, "resnet-50-v1.5": 1.35, "vgg-16": 2.3,
    "resnet3d-18": 1.6, "inception_v3": 1.2, "mobilenet": 1.15, "mobilenet-v2": 1.25,
    "squeezenet_v1.1": 1.3, "bert-base": 1.1,
}  # fmt: skip


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    option = parser.add_argument
    option("networks", nargs="*", help="built-in networks (default: those with goals)")
    option("--time", default="10m", help="tuning time a network and thread count; 0: none")
    option("--trials", type=int, default=1000, help="tuning trials at most")
    option("--threads", default="1,2", help="thread counts")
    option("--rounds", type=int, default=5, help="groups of runs of each engine")
    option("--db", default="bench.sqlite", help="database of the records")
    option("--work", default="bench-work", help="folder for networks and results")
    args = parser.parse_args()
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    for threads in (int(t) for t in args.threads.split(",")):
        for name in args.networks or list(GOALS):
            measure(name, threads, args, work)
    write_results(work)


def measure(name: str, threads: int, args: argparse.Namespace, work: Path) -> None:
    """Tune, compile and time one network; the figures go to the work folder."""
    net = work / f"{name}-{threads}.net"
    common = ["--threads", str(threads)]
    if args.time != "0":
        noctune(
            "tune", name, "--time", args.time, "--trials", str(args.trials), "--db", args.db,
            *common,
        )  # fmt: skip
    noctune("compile", name, "-o", str(net), "--db", args.db, *common)
    found = json.loads(noctune(
        "bench", str(net), "--model", name, "--against", ",".join(PEERS), "--repeat",
        str(args.rounds), "--min-repeat-ms", "400", "--json", *common, capture=True,
    ))  # fmt: skip
    found["budget"] = f"{trials_on_record(name, threads, args.db):,} trials"
    with replacing(work / f"{name}-{threads}.json") as temporary:
        temporary.write_text(json.dumps(found, indent=2))
    ratios = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in found["ratio"].items())
    print(
        f"{name}, {threads} threads: {found['noctune']['median_ms']:.2f} ms, {ratios}", flush=True
    )


def trials_on_record(name: str, threads: int, db: str) -> int:
    """Trials of the network's search tasks, those made for other networks too."""
    tasks = merge_tasks([load_network(name, host())], threads)
    with open_existing(db) as store:
        return sum(store.trial_counts([task.key for task in tasks], tasks[0].scope).values())


def noctune(*arguments: str, capture: bool = False) -> str:
    """One command of the command line, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments], check=True, text=True,
        stdout=subprocess.PIPE if capture else None,
    )  # fmt: skip
    return done.stdout or ""


def write_results(work: Path) -> None:
    """benchmarks/RESULTS.md from all figures in the work folder."""
    found = [json.loads(p.read_text()) for p in sorted(work.glob("*-[0-9]*.json"))]
    target = host()
    lines = [
        "# Results", "",
        f"Measured on {date.today():%Y-%m-%d}: {cpu_name()} ({target.cpu}), "
        f"{os.cpu_count()} cores, {target.vector_bits}-bit vectors, {platform.system()}, "
        f"Python {platform.python_version()}; "
        + ", ".join(f"{p} {version(p)}" for p in ("onnxruntime", "openvino", "llvmlite"))
        + ".", "",
        "Batch 1, float32, medians, engines taking turns in one run.  \"faster by\" is the faster"
        " peer's median divided by ours.  Absolute times depend on the machine; the ratios are what"
        " counts.", "",
        "| network | threads | noctune ms | ONNX Runtime ms | OpenVINO ms | faster by | goal |"
        " estimated ms | largest error | tuning |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [row(f) for f in found]
    for threads in sorted({f["threads"] for f in found}):
        best = [min(f["ratio"].values()) for f in found if f["threads"] == threads]
        mean = exp(sum(map(log, best)) / len(best))
        lines.append(
            f"\nGeometric mean at {threads} threads over {len(best)} networks: {mean:.2f}."
        )
    path = Path(__file__).parent / "RESULTS.md"
    rest = path.read_text().partition("\n## ")[1:] if path.exists() else ()
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n" + "".join(rest))
    print(f"wrote {path}")


def row(f: dict[str, Any]) -> str:
    """One line of the table."""
    peers = " | ".join(f"{f['peers'][p]['median_ms']:.2f}" for p in PEERS)
    estimate = "-" if f["estimated_ms"] is None else f"{f['estimated_ms']:.2f}"
    return (
        f"| {f['network']} | {f['threads']} | {f['noctune']['median_ms']:.2f} | {peers} | "
        f"{min(f['ratio'].values()):.2f} | {GOALS.get(f['network'], '-')} | {estimate} | "
        f"{f['max_rel_error']:.1e} | {f['budget']} |"
    )


def cpu_name() -> str:
    """The processor's own name for itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


assert set(GOALS) <= set(zoo.names())

if __name__ == "__main__":
    main()
