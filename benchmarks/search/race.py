"""How soon a network is fast: stages of tuning, all timed in turns beside ONNX Runtime at the end.

    python -m benchmarks.search.race resnet-50 --until 1m,3m,10m,15m --db race.sqlite --work DIR

In: moments of one tuning effort, counted from its beginning.  Out: for each the trials on record
and the network as it was compiled then: its latency, ONNX Runtime's divided by it, and its share of
the speed of the last one.  Every stage goes on from the records of the one before, ends with the
selection inside the network, and is compiled; compiling is not counted.  With a database that
other networks have filled it shows what their history is worth.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.run import noctune, trials_on_record
from engine.runtime.network import load
from flows.options import duration
from tasks.networks import model_proto
from tasks.peers import open_peer, random_feeds
from tasks.sidebyside import Timing, side_by_side

PEER = "onnxruntime"


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    option = parser.add_argument
    option("network", help="built-in network")
    option("--until", default="1m,3m,10m,15m", help="moments at which it is compiled, ascending")
    option("--db", default="race.sqlite", help="database of the records")
    option("--work", default="race-work", help="folder for the compiled networks")
    option("--threads", type=int, default=2)
    option("--repeat", type=int, default=9, help="groups of runs of each network")
    args = parser.parse_args()
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    stages = args.until.split(",")
    trials = tune_in_stages(args.network, stages, args.db, work, args.threads)
    timings = time_all(args.network, stages, work, args.threads, args.repeat)
    print("\n".join(table(stages, trials, timings)))


def net_path(work: Path, network: str, stage: str) -> Path:
    return work / f"{network}-{stage}.net"


def tune_in_stages(
    network: str, stages: list[str], db: str, work: Path, threads: int
) -> dict[str, int]:
    """Tunes until each moment and compiles what is best then; gives the trials on record."""
    found, before = {}, 0.0
    common = ["--db", db, "--threads", str(threads)]
    for stage in stages:
        seconds = duration(stage)
        noctune("tune", network, "--time", f"{seconds - before:g}s", *common)
        noctune("compile", network, "-o", str(net_path(work, network, stage)), *common)
        found[stage], before = trials_on_record(network, threads, db), seconds
    return found


def time_all(
    network: str, stages: list[str], work: Path, threads: int, repeat: int
) -> dict[str, Timing]:
    """The compiled networks and the peer in turns."""
    nets = {stage: load(net_path(work, network, stage)) for stage in stages}
    shapes = {spec.name: (tuple(spec.shape), spec.dtype) for spec in nets[stages[0]].inputs}
    feeds = random_feeds(shapes, np.random.default_rng(0))
    model = model_proto(network)
    peer = open_peer(PEER, model, threads, {name: shape for name, (shape, _) in shapes.items()})
    engines = {
        stage: lambda net=net: net.run(feeds, threads=threads) for stage, net in nets.items()
    }
    return side_by_side({**engines, PEER: lambda: peer.run(feeds)}, repeat, 0.4)


def table(stages: list[str], trials: dict[str, int], timings: dict[str, Timing]) -> list[str]:
    """Markdown lines."""
    peer, last = timings[PEER].median, timings[stages[-1]].median
    lines = [
        "| tuned for | trials | latency ms | ONNX Runtime / ours | share of the last speed |",
        "|---|---:|---:|---:|---:|",
    ]
    for stage in stages:
        own = timings[stage].median
        lines.append(
            f"| {stage} | {trials[stage]:,} | {own * 1e3:.2f} | {peer / own:.2f} "
            f"| {last / own:.1%} |"
        )
    return lines


if __name__ == "__main__":
    main()
