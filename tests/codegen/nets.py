"""Random small networks of one operator and its followers, as hypothesis strategies.

A `Net` gives the inputs' shapes and the calls that build the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from engine.graph.builder import Builder
from engine.graph.ir import Value
from engine.space.winograd import TILES

CHANNELS = st.sampled_from((1, 3, 5, 8, 16, 20, 24, 100, 136))
SIZES = st.sampled_from((1, 2, 5, 7, 16, 20, 33, 100, 150))
Build = Callable[[Builder], str]


@dataclass(frozen=True)
class Net:
    """`build` adds nodes to a builder that knows `inputs` and gives the output's name."""

    inputs: dict[str, tuple[int, ...]]
    build: Build
    text: str

    def __repr__(self) -> str:
        return self.text


def array(shape: tuple[int, ...], seed: int = 3) -> np.ndarray:
    values = np.random.default_rng(seed).uniform(-1, 1, shape)
    return values.astype(np.float32)


@st.composite
def windows(draw: st.DrawFn, rank: int, limit: int = 12) -> tuple[dict, tuple[int, ...]]:
    """Attributes of a window and a size per spatial axis that it fits into."""
    top = {1: 5, 2: 3, 3: 3}[rank]
    kernel = tuple(draw(st.integers(1, top)) for _ in range(rank))
    strides = tuple(draw(st.sampled_from((1, 1, 2, 3))) for _ in range(rank))
    dilations = tuple(draw(st.sampled_from((1, 1, 2))) for _ in range(rank))
    pads = tuple(draw(st.integers(0, min(2, kernel[i % rank] - 1))) for i in range(2 * rank))
    most = {1: 40, 2: limit, 3: 5}[rank]
    sizes = []
    for i in range(rank):
        need = max((kernel[i] - 1) * dilations[i] + 1 - pads[i] - pads[rank + i], 1)
        sizes.append(draw(st.integers(need, max(need, most))))
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    return attrs, tuple(sizes)


@st.composite
def convolutions(draw: st.DrawFn) -> Net:
    """One to three spatial axes, plain, grouped or depthwise; bias, residual, activation."""
    rank = draw(st.sampled_from((1, 2, 2, 2, 3)))
    attrs, sizes = draw(windows(rank))
    channels, out = draw(CHANNELS), draw(CHANNELS)
    groups = draw(st.sampled_from([g for g in (1, 2, 3, 4, 5, channels) if channels % g == 0]))
    if groups > 1:
        out = groups * draw(st.sampled_from((1, 2, 3, 5)))
    attrs = {**attrs, "group": groups}
    weight = array((out, channels // groups, *attrs["kernel_shape"]))
    data = (draw(st.integers(1, 2)), channels, *sizes)
    return _followed(draw, "Conv", data, [weight], attrs, channels=out)


@st.composite
def filtered(draw: st.DrawFn) -> Net:
    """Convolutions whose windows have Winograd forms."""
    channels, out = draw(CHANNELS), draw(CHANNELS)
    window = draw(st.sampled_from([w for _, w in TILES.values()]))
    kernel, strides = window.taps, window.strides
    pads = tuple(draw(st.integers(0, k // 2)) for k in (*kernel, *kernel))
    sizes = tuple(draw(st.integers(k + s, 12 + 4 * s)) for k, s in zip(*window, strict=True))
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": (1, 1), "pads": pads,
             "group": 1}  # fmt: skip
    data = (draw(st.integers(1, 2)), channels, *sizes)
    return _followed(draw, "Conv", data, [array((out, channels, *kernel))], attrs, channels=out)


@st.composite
def preactivations(draw: st.DrawFn) -> Net:
    """A sum that two readers want, one of them scaled and activated: kernels of two outputs."""
    channels, size = draw(st.sampled_from((3, 8, 20))), draw(st.integers(3, 8))
    attrs = {"kernel_shape": (1, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4,
             "group": 1}  # fmt: skip

    def build(b: Builder) -> str:
        weights = [b.constant(array((channels, channels, 1, 1), i)) for i in (3, 4)]
        scale = b.constant(array((channels, 1, 1), 5))
        total = b.emit("Add", b.emit("Conv", "x", weights[0], **attrs), "x")
        active = b.emit("Relu", b.emit("Mul", total, scale))
        return b.emit("Add", b.emit("Conv", active, weights[1], **attrs), total)

    shape = (draw(st.integers(1, 2)), channels, size, size + 1)
    return Net({"x": shape}, build, f"preactivation {shape}")


@st.composite
def pools(draw: st.DrawFn) -> Net:
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    attrs, sizes = draw(windows(rank))
    channels = draw(CHANNELS)
    op = draw(st.sampled_from(("MaxPool", "AveragePool")))
    if op == "AveragePool":
        attrs = {**attrs, "count_include_pad": draw(st.integers(0, 1))}
    data = (draw(st.integers(1, 2)), channels, *sizes)
    return _followed(draw, op, data, [], {**attrs, "ceil_mode": 0}, channels=channels)


@st.composite
def products(draw: st.DrawFn) -> Net:
    """Matrix products: constant or variable right side, broadcast leading axes."""
    m, k, n = draw(SIZES), draw(SIZES), draw(SIZES)
    lead = draw(st.sampled_from(((), (2,), (2, 3))))
    constant = draw(st.booleans())
    other = () if constant else draw(st.sampled_from((lead, lead[1:], (1,) * len(lead))))
    left, right = (*lead, m, k), (*other, k, n)
    if constant:
        return _followed(draw, "MatMul", left, [array(right)], {}, channels=None)

    def build(b: Builder) -> str:
        return b.emit("MatMul", "x", "z")

    return Net({"x": left, "z": right}, build, f"MatMul {left} {right}")


@st.composite
def rows(draw: st.DrawFn) -> Net:
    """Softmax, layer norm and reductions along some axis."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 5, 9, 20, 33)), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    op = draw(st.sampled_from(
        ("Softmax", "LogSoftmax", "LayerNormalization", "ReduceMean", "ReduceMax", "ReduceSum")
    ))  # fmt: skip
    more: list[np.ndarray] = []
    attrs: dict = {"axis": axis}
    if op == "LayerNormalization":
        attrs["epsilon"] = 1e-5
        more = [array(shape[axis:]), array(shape[axis:], 4)]
    if op.startswith("Reduce"):
        other = draw(st.integers(0, len(shape) - 1))
        attrs = {"axes": tuple(sorted({axis, other})), "keepdims": draw(st.integers(0, 1))}
    return _followed(draw, op, shape, more, attrs, channels=None, follow=False)


@st.composite
def elementwise(draw: st.DrawFn) -> Net:
    """A chain of unary operators and a binary one with broadcasting."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 5, 9, 20)), min_size=1, max_size=4)))
    other = tuple(d if draw(st.booleans()) else 1 for d in shape)
    other = other[draw(st.integers(0, len(shape) - 1)) :]
    first = draw(st.sampled_from(("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Exp", "Erf")))
    binary = draw(st.sampled_from(("Add", "Sub", "Mul", "Max", "Min")))
    constant = draw(st.booleans())

    def build(b: Builder) -> str:
        z = b.constant(array(other)) if constant else "z"
        return b.emit("Sqrt", b.emit("Abs", b.emit(binary, b.emit(first, "x"), z)))

    inputs = {"x": shape} if constant else {"x": shape, "z": other}
    return Net(inputs, build, f"{first}, {binary} {shape} {other} constant={constant}")


def _followed(
    draw: st.DrawFn,
    op: str,
    data: tuple[int, ...],
    constants: list[np.ndarray],
    attrs: dict,
    channels: int | None,
    follow: bool = True,
) -> Net:
    """The operator, then perhaps a bias, a residual and an activation."""
    bias, residual = (draw(st.booleans()) if follow else False for _ in range(2))
    last = draw(st.sampled_from(("", "Relu", "Sigmoid", "HardSwish"))) if follow else ""

    def anchor(b: Builder) -> str:
        return b.emit(op, "x", *(b.constant(c) for c in constants), **attrs)

    probe = Builder()
    probe.values["x"] = Value("x", data)
    shape = probe.shape(anchor(probe))

    def build(b: Builder) -> str:
        out = anchor(b)
        if bias:
            spread = shape[-1:] if channels is None else (channels, *(1 for _ in shape[2:]))
            out = b.emit("Add", out, b.constant(array(spread, 5)))
        if residual:
            out = b.emit("Add", out, "y")
        return b.emit(last, out) if last else out

    shapes = [c.shape for c in constants]
    text = f"{op} {data} {shapes} {attrs} bias={bias} residual={residual} {last}"
    inputs = {"x": data, "y": shape} if residual else {"x": data}
    return Net(inputs, build, text)
