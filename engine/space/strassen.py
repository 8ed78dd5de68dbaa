"""Strassen's algorithm for products with constant weights: seven products of halves, not eight.

With the output points, the input channels and the output channels cut into halves, each quarter of
the result is a sum of some of seven products of sums of quarters (Strassen, "Gaussian Elimination
is not Optimal", 1969).  The halves of the points are the even and the odd ones of one axis, `block`
pairs of which form one step `tb`.  For a convolution

    V[tb, r, c, ic, x]  = sums of four elements of the data
    M[x, tb, ti, c, oc] += V[tb, r, c, ic, x] * U[x, kh, kw, ic, oc]     U at compile time
    Y                   = sums of M, four elements for each (tb, ti, c, oc)

where r and c are what the window reaches of one half.  Channels that are many make the sums cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from engine.expr import Affine, Axis, Binary, ComputeDag, Placeholder, Read, Stage, var

NAME = "strassen"
ERROR = 5e-6
"""Bound on a layer's error relative to its largest output with normal data (1.3e-6 was seen);
uniform weights before a Sigmoid showed 3.1e-5."""

_DATA = (
    (1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0),
    (0, 1, 0, -1),
)  # fmt: skip
"""The seven left factors: sums of X11, X12, X21, X22 (half of the points, half of the inputs)."""
_WEIGHT = (
    (1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0),
    (0, 0, 1, 1),
)  # fmt: skip
"""The seven right factors: sums of W11, W12, W21, W22 (half of the inputs, half of the outputs)."""
_RESULT = (
    (1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0),
)  # fmt: skip
"""Y11, Y12, Y21, Y22: sums of the seven products."""

_CHANNELS, _WORK, _ALIGNED = 64, 128, 32
"""Least channels, least terms of a sum that uses one input or makes one output, and what channels
are a multiple of, so that their halves are whole vectors."""
_POINTS = 28
"""Roughly the points of a small step: what it makes stays in cache."""


def weight_transform(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """U[x, (kernel,) ic, oc] of weights [oc, ic, kernel...] or of a matrix [ic, oc], computed in
    float64."""
    wide = weight.astype(np.float64)
    if weight.ndim > 2:
        wide = np.moveaxis(wide, (1, 0), (-2, -1))
    *kernel, k, n = wide.shape
    halves = wide.reshape(*kernel, 2, k // 2, 2, n // 2)
    factors = np.array(_WEIGHT, np.float64).reshape(7, 2, 2)
    sums = np.einsum("xab,...akbn->x...kn", factors, halves)
    return np.ascontiguousarray(sums, dtype=np.float32)


@dataclass(frozen=True)
class _Product:
    """A stage as a product: `inner` is summed over, `outer` is the weights' own axis, `split` the
    axis whose points are halved, `data` and `weight` the factors."""

    stage: Stage
    inner: Axis
    outer: Axis
    split: Axis
    data: Read
    weight: Read


def alternatives(dag: ComputeDag) -> Iterator[ComputeDag]:
    """The DAG with its anchor computed by halves: in small steps, and in one."""
    product = _product(dag, dag.anchor)
    if product is None:
        return
    pairs = product.split.extent // 2
    place = product.stage.axes.index(product.split)
    width = prod(a.extent for a in product.stage.axes[place + 1 :] if a != product.outer)
    small = min(
        (d for d in range(1, pairs + 1) if pairs % d == 0), key=lambda d: abs(d * width - _POINTS)
    )
    for block in sorted({small, pairs}):
        yield _by_halves(dag, product, block)


def _product(dag: ComputeDag, stage: Stage) -> _Product | None:
    """The anchor as a product with constant weights, if its halves are worth it."""
    body = stage.body
    if stage.reducer != "sum" or stage.index is not None or not stage.reduce_axes:
        return None
    if not (isinstance(body, Binary) and body.op == "mul"):
        return None
    data, weight = body.x, body.y
    if not (isinstance(data, Read) and isinstance(weight, Read)):
        return None
    if not any(p.name == weight.tensor and p.constant for p in dag.placeholders):
        return None
    inner, *kernel = stage.reduce_axes
    matrix = len(weight.index) == 2
    outer = stage.axes[-1] if matrix else stage.axes[1]
    wanted = (inner, outer) if matrix else (outer, inner, *kernel)
    if weight.index != tuple(var(a.name) for a in wanted):
        return None
    if any({inner.name, outer.name} & set(i.axes) and i != var(inner.name) for i in data.index):
        return None
    return _worth(stage, inner, outer, data, weight)


def _worth(stage: Stage, inner: Axis, outer: Axis, data: Read, weight: Read) -> _Product | None:
    channels = inner.extent, outer.extent
    taps = prod(a.extent for a in stage.reduce_axes[1:])
    if any(c < _CHANNELS or c * taps < _WORK or c % _ALIGNED for c in channels):
        return None
    order = sorted(stage.axes, key=lambda a: (a == stage.axes[-1], -stage.axes.index(a)))
    even = [a for a in order if a != outer and a.extent % 2 == 0 and _used_once(data, a)]
    return _Product(stage, inner, outer, even[0], data, weight) if even else None


def _used_once(data: Read, axis: Axis) -> bool:
    return sum(axis.name in i.axes for i in data.index) == 1


def _by_halves(dag: ComputeDag, product: _Product, block: int) -> ComputeDag:
    """The DAG with the product replaced by sums of the data, seven products, and their sums."""
    stage, split, data = product.stage, product.split, product.data
    k, n = (replace(a, extent=a.extent // 2) for a in (product.inner, product.outer))
    tb, ti, x = Axis("tb", split.extent // 2 // block), Axis("ti", block), Axis("x", 7)
    pair = var("tb") * block + var("ti")
    kernel = stage.reduce_axes[1:]
    rest = [a for a in stage.axes if a not in (split, product.outer)]
    before = [a for a in rest if stage.axes.index(a) < stage.axes.index(split)]
    points = (*before, tb, ti, *rest[len(before) :])

    def names(axes: Sequence[Axis]) -> tuple[Affine, ...]:
        return tuple(var(a.name) for a in axes)

    within = {a.name: a.extent for a in (*points, *kernel)}
    reached = [_reach(product, d, k, block, within) for d in range(len(data.index))]
    inputs = (tb, *(axis for axis, _, _ in reached if axis is not None))
    v = Stage(
        "strassen_in", (*inputs, x),
        Read("S_data", (var("x"), var("hm") * 2 + var("hk")))
        * Read(data.tensor, tuple(source for _, source, _ in reached), data.fill),
        (Axis("hm", 2), Axis("hk", 2)), "sum", unroll=("x", "hm", "hk"),
    )  # fmt: skip
    gemm = Stage(
        "strassen_gemm", (x, *points, n),
        Read(v.name, (var("tb"), *(at for axis, _, at in reached if axis is not None), var("x")))
        * Read("strassen_weight", names((x, *kernel, k, n))),
        (*kernel, k), "sum",
    )  # fmt: skip
    quarter = {
        split.name: pair * 2 + var("gm"),
        product.outer.name: var("gn") * n.extent + var(n.name),
    }
    out = Stage(
        stage.name, (*points, n, Axis("gm", 2), Axis("gn", 2)),
        Read("S_result", (var("gm") * 2 + var("gn"), var("q")))
        * Read(gemm.name, (var("q"), *names((*points, n)))),
        (Axis("q", 7),), "sum", out_shape=stage.shape, unroll=("gm", "gn", "q"),
        index=tuple(var(a.name).substitute(quarter) for a in stage.axes),
    )  # fmt: skip
    here = dag.stages.index(stage)
    shape = tuple(a.extent for a in (x, *kernel, k, n))
    derived = Placeholder("strassen_weight", shape, True, (NAME, product.weight.tensor))
    return replace(
        dag, placeholders=(*dag.placeholders, derived),
        stages=(*dag.stages[:here], v, gemm, out, *dag.stages[here + 1 :]),
        algorithm=f"{NAME}.rows{block}",
        constants={"S_data": _floats(_DATA), "S_result": _floats(_RESULT)},
    )  # fmt: skip


def _reach(
    product: _Product, dim: int, k: Axis, block: int, within: Mapping[str, int]
) -> tuple[Axis | None, Affine, Affine]:
    """What one half's step reads along a dimension of the data: (an axis of V or None, the index
    into the data over that axis, the index into V of an output point)."""
    index = product.data.index[dim]
    if index == var(product.inner.name):
        return k, var("hk") * k.extent + var(k.name), var(k.name)
    step = index.coeff(product.split.name)
    start = var("tb") * (2 * block * step) + var("hm") * step
    local = index.substitute({product.split.name: var("ti") * 2})
    own = var(f"r{dim}")
    if not local.terms:
        return None, local, local
    if len(local.terms) == 1:
        ((name, coeff),) = local.terms
        return Axis(f"r{dim}", within[name]), own * coeff + local.const + start, var(name)
    low, high = local.bounds(within)
    return Axis(f"r{dim}", high - low + 1), own + low + start, local - low


def _floats(rows: Sequence[Sequence[int]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(x) for x in row) for row in rows)
