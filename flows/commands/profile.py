"""Show where a compiled network spends its time, biggest losses first.

Each layer's time is measured inside the network.  "% peak" compares the multiplications that the
chosen algorithm really makes with the arithmetic peak of this machine, "% memory" the bytes of its
constants, inputs and outputs with what memory can deliver (more than 100: most came from caches);
"loss" is the time above what the arithmetic peak allows.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from flows.options import add_json, add_threads, positive
from flows.text import milliseconds, table

EXAMPLE = "noctune profile resnet-18.net --threads 1 --trace trace.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("net", help="compiled network")
    parser.add_argument(
        "--repeat", type=positive, default=20, metavar="N", help="runs to take medians of"
    )
    parser.add_argument("--trace", metavar="FILE", help="also write a Chrome trace")
    add_threads(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.files import check_writable
    from engine.measure.machine import measure_machine
    from engine.runtime.network import load

    if args.trace:
        check_writable(args.trace, args.net)
    network = load(args.net)
    threads = args.threads or network.program.threads
    times = network.profile(repeat=args.repeat, threads=threads)
    machine = measure_machine(network.program.target, threads)
    memory = machine.bandwidth["memory"]
    layers = [_layer(t.name, t.seconds, t.step, machine.flops, memory) for t in times]
    total = sum(t.seconds for t in times)
    if args.trace:
        _write_trace(args.trace, layers)
    if args.json:
        print(json.dumps({
            "network": network.name, "threads": threads, "total_ms": total * 1e3,
            "peak_gflops": machine.flops / 1e9, "memory_gb_per_s": memory / 1e9, "layers": layers,
        }, indent=2))  # fmt: skip
        return 0
    print(
        f"{network.name}, {threads} threads, peak {machine.flops / 1e9:.1f} GFLOP/s, "
        f"memory {memory / 1e9:.1f} GB/s\n"
    )
    ranked = sorted(layers, key=lambda row: -float(row["loss_ms"]))
    print(table(_HEADERS, [_cells(row, total) for row in ranked], left=3))
    estimates = [row["estimated_ms"] for row in layers if row["estimated_ms"] is not None]
    print(
        f"\nSum of layers {milliseconds(total)} ms, "
        f"their estimates {sum(estimates):.3f} ms ({len(estimates)} of {len(layers)} known)"
    )
    return 0


_HEADERS = (
    "layer", "kind", "algorithm", "ms", "share", "GFLOP/s", "% peak", "% memory", "loss ms",
    "estimated ms",
)  # fmt: skip


def _layer(name: str, seconds: float, step: Any, peak: float, bandwidth: float) -> dict[str, Any]:
    """One step as plain values; `flops` counts what the algorithm really multiplies."""
    algorithm, flops, estimate = "", 0.0, None
    kind = "copy" if step is None else getattr(step, "anchor", f"host {getattr(step, 'op', '')}")
    if hasattr(step, "algorithm"):
        algorithm, estimate = step.algorithm, step.estimate
        flops = float(step.work)
    bound = flops / peak
    from_memory = getattr(step, "bytes", 0) / bandwidth
    return {
        "name": name, "kind": kind, "algorithm": algorithm, "ms": seconds * 1e3,
        "gflops": flops / seconds / 1e9 if seconds else 0.0,
        "peak_share": bound / seconds if seconds else 0.0,
        "memory_share": from_memory / seconds if seconds else 0.0,
        "loss_ms": (seconds - bound) * 1e3,
        "estimated_ms": None if estimate is None else estimate * 1e3,
    }  # fmt: skip


def _cells(row: dict[str, Any], total: float) -> tuple[str, ...]:
    estimate = row["estimated_ms"]
    return (
        row["name"][:40], row["kind"], row["algorithm"], f"{row['ms']:.3f}",
        f"{row['ms'] / total / 10:.1f}%", f"{row['gflops']:.1f}",
        f"{row['peak_share'] * 100:.0f}", f"{row['memory_share'] * 100:.0f}",
        f"{row['loss_ms']:.3f}",
        "-" if estimate is None else f"{estimate:.3f}",
    )  # fmt: skip


def _write_trace(path: str, layers: list[dict[str, Any]]) -> None:
    """Chrome's trace format: open it in chrome://tracing or Perfetto."""
    from engine.files import replacing

    events, at = [], 0.0
    for row in layers:
        events.append({
            "name": row["name"], "cat": row["kind"], "ph": "X", "pid": 1, "tid": 1,
            "ts": at, "dur": row["ms"] * 1e3, "args": {"algorithm": row["algorithm"]},
        })  # fmt: skip
        at += row["ms"] * 1e3
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"traceEvents": events}))
