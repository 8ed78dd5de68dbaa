"""Making kernels: schedules chosen, code generated and compiled, by several processes if that pays.

In: orders, one for each different kernel of a network.  Out: what the network needs to know of each
kernel, and object files.  As a program it serves one share of the orders: a pickle on standard
input, a pickle on standard output.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.codegen import compile_ir, generate, module
from engine.codegen.kernel import Kernel
from engine.expr import ComputeDag, Layout
from engine.graph.task import Workload
from engine.records import Schedule
from engine.space.sketch import find_sketch, sketches
from engine.target import Target

SHARE = 8
"""Kernels that take a process longer than another process takes to start."""


@dataclass(frozen=True, slots=True)
class Order:
    """A kernel to make; with `schedule` None, or one that no sketch knows, by the default."""

    name: str
    workload: Workload
    schedule: Schedule | None
    layouts: Mapping[str, Layout]


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel without its IR, its schedule and the DAG (algorithm) that the schedule is of."""

    kernel: Kernel
    schedule: Schedule
    dag: ComputeDag
    tuned: bool


@dataclass(frozen=True, slots=True)
class Share:
    """Orders for one process."""

    orders: tuple[Order, ...]
    target: Target
    threads: int


def make_kernels(
    orders: Sequence[Order], target: Target, threads: int, jobs: int = 1
) -> tuple[dict[str, Made], tuple[bytes, ...]]:
    """Kernels by name, and object files that together hold all of them."""
    if not orders:
        return {}, ()
    count = max(1, min(jobs, len(orders) // SHARE))
    shares = [Share(tuple(orders[i::count]), target, threads) for i in range(count)]
    helpers = [_start(share) for share in shares[1:]]
    try:
        results = [make_share(shares[0])]
        results += [_finish(h, s) for h, s in zip(helpers, shares[1:], strict=True)]
    finally:
        for helper in (h for h in helpers if h.returncode is None):
            helper.kill()
            helper.communicate()
    kernels = {m.kernel.name: m for made, _ in results for m in made}
    return {o.name: kernels[o.name] for o in orders}, tuple(image for _, image in results)


def make_share(share: Share) -> tuple[list[Made], bytes]:
    """Generates and compiles; RuntimeError with LLVM's words if generated IR is malformed."""
    chosen: dict[str, tuple[Schedule, ComputeDag, bool]] = {}
    made, texts = [], []
    for order in share.orders:
        key = order.workload.key
        if key not in chosen:
            chosen[key] = choose(order.workload, order.schedule, share.target, share.threads)
        schedule, dag, tuned = chosen[key]
        kernel = generate(
            order.workload, schedule, share.target, order.layouts, order.name, share.threads
        )
        texts.append(kernel.ir)
        made.append(Made(kernel.without_ir(), schedule, dag, tuned))
    return made, compile_ir(module(texts, share.target), share.target)


def choose(
    workload: Workload, wanted: Schedule | None, target: Target, threads: int
) -> tuple[Schedule, ComputeDag, bool]:
    """The wanted schedule if a sketch takes it, else the default; its DAG; whether it was taken."""
    if wanted is not None:
        sketch = find_sketch(workload, wanted, target, threads)
        if sketch is not None:
            return wanted, sketch.dag, True
    first = sketches(workload, target, threads, accuracy="strict")[0]
    return first.schedule(first.default()), first.dag, False


def _start(share: Share) -> subprocess.Popen[bytes]:
    """A fresh interpreter: no fork of this one's threads, no import of the caller's main script."""
    root = str(Path(__file__).resolve().parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); from engine.runtime import make; "
    helper = subprocess.Popen(
        [sys.executable, "-c", program + "make.main()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert helper.stdin is not None
    with suppress(BrokenPipeError):
        helper.stdin.write(pickle.dumps(share))
        helper.stdin.close()
    helper.stdin = None
    return helper


def _finish(helper: subprocess.Popen[bytes], share: Share) -> tuple[list[Made], bytes]:
    """A helper that could not start or ran out of memory costs time, not the network."""
    data, _ = helper.communicate()
    if helper.returncode == 0:
        with suppress(pickle.UnpicklingError, EOFError):
            made, image = pickle.loads(data)
            return made, image
    return make_share(share)


def main() -> None:
    share = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(make_share(share)))
