"""Workloads that between them have every form of sketch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.graph.builder import Builder
from engine.graph.task import Workload
from engine.space import Sketch
from engine.target import Target
from tests.codegen.workloads import network

AVX2 = Target("avx2", "x86_64-unknown-linux-gnu", "x86-64-v3", (), 256, 16, 2)
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": (1,) * 4, "kernel_shape": (3, 3)}


def _last(shape: tuple[int, ...], build: Callable[[Builder], str]) -> Workload:
    """The workload of the one step that is no copy."""
    steps = network({"x": shape}, build, AVX2).steps
    found = [s.workload for s in steps if s.workload is not None and s.workload.anchor != "copy"]
    return found[-1]


def _weight(b: Builder, *shape: int) -> str:
    return b.constant(np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32))


def convolution() -> Workload:
    def build(b: Builder) -> str:
        attrs = WINDOW | {"strides": (2, 2), "group": 1}
        out = b.emit("Conv", "x", _weight(b, 40, 20, 3, 3), **attrs)
        return b.emit("Relu", b.emit("Add", out, _weight(b, 40, 1, 1)))

    return _last((1, 20, 15, 14), build)


def winograd() -> Workload:
    return _last(
        (1, 16, 12, 12), lambda b: b.emit("Conv", "x", _weight(b, 24, 16, 3, 3), **WINDOW, group=1)
    )


def row_filter() -> Workload:
    attrs = WINDOW | {"kernel_shape": (1, 7), "pads": (0, 3, 0, 3), "group": 1}
    return _last((1, 16, 9, 9), lambda b: b.emit("Conv", "x", _weight(b, 24, 16, 1, 7), **attrs))


def depthwise() -> Workload:
    return _last(
        (1, 24, 9, 9), lambda b: b.emit("Conv", "x", _weight(b, 24, 1, 3, 3), **WINDOW, group=24)
    )


def product() -> Workload:
    return _last((24, 33), lambda b: b.emit("MatMul", "x", _weight(b, 33, 50)))


def long_product() -> Workload:
    return _last((24, 300), lambda b: b.emit("MatMul", "x", _weight(b, 300, 50)))


def softmax() -> Workload:
    return _last((6, 40), lambda b: b.emit("Softmax", "x", axis=1))


def pool() -> Workload:
    return _last((1, 16, 9, 9), lambda b: b.emit("MaxPool", "x", **WINDOW, ceil_mode=0))


def chain() -> Workload:
    return _last((5, 33), lambda b: b.emit("Tanh", b.emit("Relu", "x")))


WORKLOADS: dict[str, Callable[[], Workload]] = {
    f.__name__: f
    for f in (
        convolution,
        winograd,
        row_filter,
        depthwise,
        product,
        long_product,
        softmax,
        pool,
        chain,
    )
}


def random_rows(sketch: Sketch, rng: np.random.Generator, count: int = 256) -> np.ndarray:
    """Rows of knob values, legal or not; shape (count, knobs)."""
    columns = [rng.choice(k.values, count) for k in sketch.knobs]
    return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((1, 0), np.int64)


def legal_rows(sketch: Sketch, rng: np.random.Generator, count: int = 256) -> np.ndarray:
    """The legal ones of some random rows."""
    rows = random_rows(sketch, rng, count)
    return rows[sketch.valid(rows)]


def small_row(sketch: Sketch) -> list[int]:
    """Twos where they can be had: a row that hardly depends on which values there are."""
    return [max((v for v in k.values if v <= 2), default=min(k.values)) for k in sketch.knobs]
