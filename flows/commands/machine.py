"""Show what this machine can do at most: arithmetic peak and read bandwidth of each cache level."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from flows.options import add_json, add_target
from flows.text import table

EXAMPLE = "noctune machine --threads 1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.measure.machine import measure_machine
    from engine.target import named

    target = named(args.target)
    counts = [args.threads] if args.threads else sorted({1, target.cores})
    found = [measure_machine(target, count) for count in counts]
    if args.json:
        print(json.dumps({"target": target.key, "machines": [asdict(m) for m in found]}, indent=2))
        return 0
    print(f"{target.cpu}, vectors of {target.vector_bits} bits, {target.cores} cores\n")
    levels = list(found[0].bandwidth)
    rows = [
        (m.threads, f"{m.flops / 1e9:.1f}", *(f"{m.bandwidth[v] / 1e9:.1f}" for v in levels))
        for m in found
    ]
    print(table(("threads", "GFLOP/s", *(f"{v} GB/s" for v in levels)), rows))
    return 0
