"""Kernels with long sums prefetch the largest constant of the next such kernel."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from engine.graph.builder import Builder
from engine.runtime.build import compile_network
from engine.runtime.network import CompiledNetwork, load
from engine.runtime.program import WEIGHT, KernelStep
from engine.target import host
from tests.codegen.workloads import network


def chain(b: Builder) -> str:
    """Products of growing weights with something in between that has no long sum."""
    rng, value = np.random.default_rng(0), "x"
    for rows, columns in ((64, 96), (96, 640), (640, 48)):
        weight = rng.standard_normal((rows, columns)).astype(np.float32)
        value = b.emit("MatMul", value, b.constant(weight))
        value = b.emit("Softmax", value, axis=1)
    return value


def made() -> CompiledNetwork:
    return compile_network(network({"x": (40, 64)}, chain, host()), threads=2)


def products(built: CompiledNetwork) -> list[KernelStep]:
    return [s for s in built.program.steps if isinstance(s, KernelStep) and s.ahead is not None]


def weight_of(step: KernelStep) -> int:
    (offset,) = (offset for place, offset in step.args if place == WEIGHT)
    return offset


def test_each_product_asks_for_the_weights_of_the_next() -> None:
    steps = products(made())
    assert len(steps) == 3
    for step, following in pairwise(steps):
        assert step.ahead is not None
        assert step.ahead[0] == weight_of(following) and 0 < step.ahead[1] <= 64
    assert steps[-1].ahead == (0, 0)


def test_others_have_no_part_in_it() -> None:
    built = made()
    rest = [s for s in built.program.steps if isinstance(s, KernelStep) and s.ahead is None]
    assert len(rest) == 3 and all(s.slots == len(s.args) + 1 for s in rest)
    assert all(s.slots == len(s.args) + 3 for s in products(built))


def test_it_is_in_the_file_and_changes_no_result(tmp_path: Path) -> None:
    built = made()
    built.save(tmp_path / "chain.net")
    loaded = load(tmp_path / "chain.net")
    assert loaded.program == built.program
    feeds = loaded.sample_inputs(1)
    value = feeds["x"].astype(np.float64)
    rng = np.random.default_rng(0)
    for rows, columns in ((64, 96), (96, 640), (640, 48)):
        value = value @ rng.standard_normal((rows, columns)).astype(np.float32)
        value = np.exp(value - value.max(-1, keepdims=True))
        value /= value.sum(-1, keepdims=True)
    for threads in (1, 2):
        (found,) = loaded.run(feeds, threads=threads).values()
        assert np.abs(found - value).max() < 1e-5
