"""The LLVM IR of two small kernels, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import codegen
from engine.expr import Axis, Placeholder, Read, Stage, relu, var
from engine.space import sketches
from engine.target import Target
from tests.codegen.golden import compare
from tests.codegen.workloads import of_dag
from tests.space.samples import small_row

GOLDEN = Path(__file__).parent / "golden"
AVX2 = Target("avx2", "x86_64-unknown-linux-gnu", "x86-64-v3", (), 256, 16, 2)


def added():
    """Elementwise, an axis that eight lanes do not divide."""
    axes = (Axis("m", 3), Axis("n", 21))
    at = (var("m"), var("n"))
    stage = Stage("y", axes, relu(Read("a", at) + Read("b", at)))
    return of_dag((Placeholder("a", (3, 21)), Placeholder("b", (3, 21))), (stage,), AVX2)


def product():
    """A matrix product with packed constants and a bias behind it."""
    axes = (Axis("m", 4), Axis("n", 16))
    body = Read("a", (var("m"), var("k"))) * Read("w", (var("k"), var("n")))
    dense = Stage("dense", axes, body, (Axis("k", 6),), "sum")
    bias = Stage("y", axes, Read("dense", (var("m"), var("n"))) + Read("bias", (var("n"),)))
    places = (
        Placeholder("a", (4, 6)), Placeholder("w", (6, 16), True), Placeholder("bias", (16,), True),
    )  # fmt: skip
    return of_dag(places, (dense, bias), AVX2)


@pytest.mark.parametrize("declare", [added, product])
def test_ir_of_small_kernels(declare, request):
    workload = declare()
    sketch = sketches(workload, AVX2, accuracy="strict")[0]
    schedule = sketch.schedule(small_row(sketch))
    kernel = codegen.generate(workload, schedule, AVX2)
    text = f"; {schedule.key}\n; {', '.join(kernel.arguments)}\n{kernel.ir}"
    compare(text, GOLDEN / f"{declare.__name__}.ll", request.config)
