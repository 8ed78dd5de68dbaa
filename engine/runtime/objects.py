"""Machine code of a network's kernels.

In: kernels.  Out: object files, one for each group of kernels, compiled by several processes when
that pays.  As a program it compiles the pickled (IR text, target) on its standard input.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.codegen import compile_ir, module
from engine.codegen.kernel import Kernel
from engine.target import Target

START_COST = 4e5
"""Characters of IR that compile in the time that a further process takes to start."""


def compile_kernels(kernels: Sequence[Kernel], target: Target, jobs: int = 1) -> tuple[bytes, ...]:
    """Object code of all kernels; RuntimeError with LLVM's words if some IR is malformed."""
    groups = [module(group, target) for group in balanced(kernels, jobs)]
    helpers = [_start(ir, target) for ir in groups[1:]]
    try:
        images = [compile_ir(ir, target) for ir in groups[:1]]
        return (
            *images,
            *(_finish(h, ir, target) for h, ir in zip(helpers, groups[1:], strict=True)),
        )
    finally:
        for helper in helpers:
            helper.kill()
            helper.communicate()


def balanced(kernels: Sequence[Kernel], jobs: int) -> list[list[Kernel]]:
    """Kernels in as many groups as pay, of about equal length of IR."""
    total = sum(len(k.ir) for k in kernels)
    count = max(1, min(jobs, int(total / START_COST), len(kernels)))
    groups: list[list[Kernel]] = [[] for _ in range(count)]
    sizes = [0] * count
    for kernel in sorted(kernels, key=lambda k: -len(k.ir)):
        least = sizes.index(min(sizes))
        groups[least].append(kernel)
        sizes[least] += len(kernel.ir)
    return [g for g in groups if g]


def _start(ir: str, target: Target) -> subprocess.Popen[bytes]:
    """A fresh interpreter: no fork of this one's threads, no import of the caller's main script."""
    root = str(Path(__file__).resolve().parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); from engine.runtime import objects; " + (
        "objects.main()"
    )
    helper = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert helper.stdin is not None
    try:
        helper.stdin.write(pickle.dumps((ir, target)))
        helper.stdin.close()
    except BrokenPipeError:
        pass
    helper.stdin = None
    return helper


def _finish(helper: subprocess.Popen[bytes], ir: str, target: Target) -> bytes:
    image, _ = helper.communicate()
    # A helper that could not start or ran out of memory costs time, not the network.
    return image if helper.returncode == 0 and image else compile_ir(ir, target)


def main() -> None:
    ir, target = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(compile_ir(ir, target))
