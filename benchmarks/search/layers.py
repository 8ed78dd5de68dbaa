"""Random layers to learn from: one layer of a made-up network at a time, none of a known one.

In: a random generator.  Out: an ONNX model of one layer with its bias, residual sum and activation,
of a size that convolutional networks and transformers have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np
import onnx

from engine.zoo.builder import GraphBuilder

CHANNELS = (
    16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 208, 224, 256, 288, 320, 384, 448,
    512, 576, 640, 768, 960, 1024, 1280, 1536, 2048,
)  # fmt: skip
SIZES = (4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 20, 24, 26, 28, 30, 32, 36, 40, 48, 52, 56, 64,
         75, 80, 96, 104, 112, 128, 150)  # fmt: skip
LEAST_WORK, MOST_WORK = 1e6, 6e8
"""Multiply-adds of a layer; smaller ones are noise, larger ones take long to measure."""
MOST_WEIGHTS = 1 << 24
"""Elements of a layer's weights."""

Shape = tuple[int, ...]
Layer = tuple[Shape, float, float, Callable[[GraphBuilder], str]]
"""Input shape, multiply-adds, weights, and what builds it."""


def _end(b: GraphBuilder, x: str, kind: int) -> str:
    """What follows a product: nothing, or an activation, before it a residual sum if that fits."""
    if kind == 0:
        return x
    if kind == 1:
        return b.relu6(x)
    return b.relu(b.add(x, b.input) if b.shape(x) == b.shape(b.input) else x)


def _conv(rng: np.random.Generator, kernel: Shape, stride: int = 1, groups: str = "one") -> Layer:
    rank = len(kernel)
    size = int(rng.choice([s for s in SIZES if rank == 2 or s <= 32]))
    spatial = (size, size) if rank == 2 else (int(rng.choice([2, 4, 8, 16])), size, size)
    inside, outside = (int(c) for c in rng.choice(CHANNELS, 2))
    if groups == "depthwise":
        outside = inside
    number = {"one": 1, "some": 4, "depthwise": inside}[groups]
    if groups == "some":
        inside, outside = 4 * (inside // 4), 4 * (outside // 4)
    if rng.random() < 0.2:
        outside = inside
    if rng.random() < 0.06 and groups == "one":
        inside = 3
    padding = tuple(k // 2 for k in kernel)
    bias, end = bool(rng.random() < 0.8), int(rng.choice(3, p=(0.2, 0.1, 0.7)))
    weights = prod(kernel) * outside * inside // number
    work = weights * prod(spatial) / stride**rank

    def build(b: GraphBuilder) -> str:
        x = b.conv(b.input, outside, kernel, stride, padding, groups=number, bias=bias)
        return _end(b, x, end)

    return (1, inside, *spatial), work, weights, build


def _dense(rng: np.random.Generator, rows: int) -> Layer:
    inside, outside = (int(c) for c in rng.choice(CHANNELS[6:], 2))
    return (
        (rows, inside), rows * inside * outside, inside * outside,
        lambda b: b.linear(b.input, outside) if rows > 1 else b.dense(b.input, outside),
    )  # fmt: skip


def _attention(rng: np.random.Generator) -> Layer:
    heads, rows, depth = (int(rng.choice(c)) for c in ((4, 8, 16), (64, 96, 160, 256), (32, 64)))
    shape = (1, heads, rows, depth)

    def build(b: GraphBuilder) -> str:
        turned = b.transpose(b.input, (0, 1, 3, 2))
        return b.node("MatMul", [b.input, turned], (1, heads, rows, rows))

    return shape, heads * rows * rows * depth, 0, build


def _pool(rng: np.random.Generator) -> Layer:
    size, channels = int(rng.choice(SIZES[8:])), int(rng.choice(CHANNELS[4:20]))
    kernel, stride = int(rng.choice([2, 3])), int(rng.choice([1, 2]))
    kind = "max_pool" if rng.random() < 0.6 else "avg_pool"
    return (
        (1, channels, size, size), channels * size**2 * kernel**2, 0,
        lambda b: getattr(b, kind)(b.input, kernel, stride, kernel // 2),
    )  # fmt: skip


def _rows(rng: np.random.Generator) -> Layer:
    rows, width = int(rng.choice([32, 96, 128, 384, 1024])), int(rng.choice(CHANNELS[10:]))
    normal = rng.random() < 0.5
    return (
        (1, rows, width), 8 * rows * width, 0,
        lambda b: b.layer_norm(b.input, 1e-5) if normal else b.softmax(b.input),
    )  # fmt: skip


FAMILIES: tuple[tuple[int, Callable[[np.random.Generator], Layer]], ...] = (
    (22, lambda rng: _conv(rng, (1, 1))),
    (3, lambda rng: _conv(rng, (1, 1), 2)),
    (22, lambda rng: _conv(rng, (3, 3))),
    (7, lambda rng: _conv(rng, (3, 3), 2)),
    (4, lambda rng: _conv(rng, (5, 5))),
    (3, lambda rng: _conv(rng, (7, 7), 2)),
    (5, lambda rng: _conv(rng, [(1, 7), (7, 1), (1, 3), (3, 1), (1, 5)][int(rng.integers(5))])),
    (12, lambda rng: _conv(rng, (3, 3), int(rng.choice([1, 1, 2])), "depthwise")),
    (2, lambda rng: _conv(rng, (5, 5), 1, "depthwise")),
    (3, lambda rng: _conv(rng, (3, 3), 1, "some")),
    (4, lambda rng: _conv(rng, (3, 3, 3))),
    (1, lambda rng: _conv(rng, (1, 1, 1))),
    (4, lambda rng: _dense(rng, 1)),
    (7, lambda rng: _dense(rng, int(rng.choice([16, 48, 64, 128, 197, 256])))),
    (4, _attention),
    (4, _pool),
    (3, _rows),
)
"""Relative share and maker of each family."""


def random_layers(seed: int) -> Iterator[onnx.ModelProto]:
    """Endless; the same for the same seed."""
    rng = np.random.default_rng(seed)
    shares = np.array([share for share, _ in FAMILIES], float)
    while True:
        family = FAMILIES[int(rng.choice(len(FAMILIES), p=shares / shares.sum()))][1]
        shape, work, weights, build = family(rng)
        if LEAST_WORK <= work <= MOST_WORK and weights <= MOST_WEIGHTS:
            b = GraphBuilder("layer", "input", shape, rng)
            yield b.finish(build(b))
