"""Alternative computations of one workload: Winograd's minimal filtering instead of the direct sum.

F(m x m, 3 x 3) computes m x m outputs of a 3x3 convolution from (m+2)^2 products instead of 9 m^2
(Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", 2015).  A tile row of `tw` tiles
and `rows` such rows form one step `tb`:

    V[tb, p, ic, x, y] = B^T d B      for the (m+2)^2 inputs of tile p
    M[tb, p, oc, x, y] += V[tb, p, ic, x, y] * U[x, y, ic, oc]        U = G w G^T, at compile time
    Y[n, oc, r, c]     = A^T M A      for the m^2 outputs of tile p

In three dimensions the depth is summed directly: V is made for every input slice `d`, and M also
sums over the kernel's depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.expr import Affine, Axis, Binary, ComputeDag, Placeholder, Read, Stage, var

Rows = tuple[tuple[float, ...], ...]

_BT: dict[int, Rows] = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
    ),
}  # fmt: skip
_AT: dict[int, Rows] = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: (
        (1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1),
    ),
}  # fmt: skip
_G: dict[int, Rows] = {
    2: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
}  # fmt: skip

ERROR = {2: 2e-6, 4: 2e-5}
"""Output tile -> bound on a layer's error relative to its largest output.

Seen on convolutions of the built-in ResNets with normal data: 9e-7 and 1.4e-5.
"""

BOUND = {"strict": 0.0, "default": 1e-4, "fast": 1e-3}


def weight_transform(m: int, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """U[x, y, (kd,) ic, oc] of weights [oc, ic, (kd,) 3, 3], computed in float64."""
    g = np.array(_G[m], dtype=np.float64)
    form = "xa,oiab,yb->xyio" if weight.ndim == 4 else "xa,oidab,yb->xydio"
    out = np.einsum(form, g, weight.astype(np.float64), g, optimize=True)
    return np.ascontiguousarray(out, dtype=np.float32)


def allowed(algorithm: str, accuracy: str) -> bool:
    """Whether an accuracy bound permits an algorithm ("direct", "winograd4.rows2")."""
    tile = re.match(r"winograd(\d+)", algorithm)
    return tile is None or ERROR[int(tile[1])] <= BOUND[accuracy]


def alternatives(dag: ComputeDag, accuracy: str) -> Iterator[ComputeDag]:
    """The DAG itself, then every other computation that the accuracy bound allows."""
    yield dag
    stage = dag.anchor
    if not _is_conv3x3(dag, stage):
        return
    height, width = (a.extent for a in stage.axes[-2:])
    for m in ERROR:
        if not allowed(f"winograd{m}", accuracy) or min(height, width) < m:
            continue
        rows = -(-height // m)
        columns = -(-width // m)
        seen = set()
        for wanted in (1, 2, 4, rows):
            steps = -(-rows // wanted)
            block = -(-rows // steps)
            if block in seen or (block != rows and block * columns < 6):
                continue
            seen.add(block)
            yield _winograd(dag, stage, m, block)


def _is_conv3x3(dag: ComputeDag, stage: Stage) -> bool:
    """Whether a stage is a dense 2-D or 3-D convolution, 3x3 of stride 1 in its last two axes, with
    constant weights."""
    body = stage.body
    rank = len(stage.axes)
    if stage.reducer != "sum" or rank not in (4, 5) or len(stage.reduce_axes) != rank - 1:
        return False
    if not (isinstance(body, Binary) and body.op == "mul" and stage.index is None):
        return False
    data, weight = body.x, body.y
    if not (isinstance(data, Read) and isinstance(weight, Read)):
        return False
    own = [var(a.name) for a in stage.axes]
    kernel = [var(a.name) for a in stage.reduce_axes]
    if weight.index != (own[1], *kernel):
        return False
    if [a.extent for a in stage.reduce_axes[-2:]] != [3, 3] or len(data.index) != rank:
        return False
    offsets = [data.index[d] - own[d] - kernel[d - 1] for d in (rank - 2, rank - 1)]
    if data.index[:2] != (own[0], kernel[0]) or any(o.terms for o in offsets):
        return False
    return any(p.name == weight.tensor and p.constant for p in dag.placeholders)


def _winograd(dag: ComputeDag, conv: Stage, m: int, block: int) -> ComputeDag:
    """The DAG with `conv` replaced by transform, product and inverse transform."""
    body = conv.body
    assert isinstance(body, Binary) and isinstance(body.x, Read) and isinstance(body.y, Read)
    data, weight = body.x, body.y
    n, oc, *depth, rows, cols = conv.axes
    ic, *kernel_depth = conv.reduce_axes[:-2]
    size, columns = m + 2, -(-cols.extent // m)
    tile_rows = -(-rows.extent // m)
    tb, p = Axis("tb", -(-tile_rows // block)), Axis("p", block * columns)
    ti, tw = Axis("ti", block), Axis("tw", columns)
    at = var("ti") * columns + var("tw")
    row = var("tb") * (block * m) + var("ti") * m
    column = var("tw") * m

    slices: list[Axis] = []
    slice_index = list(data.index[2:-2])
    product_index = [var("d") for _ in depth]
    if depth:  # input slices that the outputs reach, from the first one on
        extents = {a.name: a.extent for a in (*depth, *kernel_depth)}
        low, high = data.index[2].bounds(extents)
        slices = [Axis("d", high - low + 1)]
        slice_index = [var("d") + low]
        product_index = [data.index[2] - low]

    def matrix(name: str, i: str, k: str) -> Read:
        return Read(name, (var(i), var(k)))

    def names(axes: Sequence[Axis]) -> tuple[Affine, ...]:
        return tuple(var(a.name) for a in axes)

    source = Read(
        data.tensor,
        (
            var(n.name), var(ic.name), *slice_index,
            row + var("a") + data.index[-2].const, column + var("b") + data.index[-1].const,
        ),
        0.0 if data.fill is None else data.fill,
    )  # fmt: skip
    x, y = Axis("x", size), Axis("y", size)
    outer_in = (n, tb, *slices, ti, tw, ic)
    rows_done = Stage(
        "wino_rows", (*outer_in, x, Axis("b", size)), matrix("BT", "x", "a") * source,
        (Axis("a", size),), "sum", unroll=("x", "b", "a"),
    )  # fmt: skip
    v = Stage(
        "wino_in", (*outer_in, x, y),
        matrix("BT", "y", "b") * Read("wino_rows", (*names(outer_in), var("x"), var("b"))),
        (Axis("b", size),), "sum",
        index=(*names((n, tb, *slices)), at, var(ic.name), var("x"), var("y")),
        out_shape=(
            n.extent, tb.extent, *(a.extent for a in slices), p.extent, ic.extent, size, size,
        ),
        unroll=("x", "y", "b"),
    )  # fmt: skip
    factors = Read("wino_in", (
        var(n.name), var("tb"), *product_index, var("p"), var(ic.name), var("x"), var("y"),
    ))  # fmt: skip
    weights = Read(
        "wino_weight", (var("x"), var("y"), *names(kernel_depth), var(ic.name), var(oc.name))
    )
    gemm = Stage(
        "wino_gemm", (x, y, n, tb, *depth, p, oc), factors * weights, (*kernel_depth, ic), "sum"
    )
    outer_out = (n, tb, *depth, ti, tw, oc)
    result = Read("wino_gemm", (
        var("c"), var("y"), var(n.name), var("tb"), *names(depth), at, var(oc.name),
    ))  # fmt: skip
    half = Stage(
        "wino_half", (*outer_out, Axis("i", m), y), matrix("AT", "i", "c") * result,
        (Axis("c", size),), "sum", unroll=("i", "y", "c"),
    )  # fmt: skip
    out = Stage(
        conv.name, (*outer_out, Axis("i", m), Axis("j", m)),
        matrix("AT", "j", "d2") * Read("wino_half", (*names(outer_out), var("i"), var("d2"))),
        (Axis("d2", size),), "sum",
        index=(var(n.name), var(oc.name), *names(depth), row + var("i"), column + var("j")),
        out_shape=conv.shape, unroll=("i", "j", "d2"),
    )  # fmt: skip
    place = dag.stages.index(conv)
    stages = (*dag.stages[:place], rows_done, v, gemm, half, out, *dag.stages[place + 1 :])
    shape = (size, size, *(a.extent for a in kernel_depth), ic.extent, oc.extent)
    derived = Placeholder("wino_weight", shape, True, (f"winograd{m}", weight.tensor))
    return replace(
        dag, placeholders=(*dag.placeholders, derived), stages=stages,
        algorithm=f"winograd{m}.rows{block}", constants={"BT": _BT[m], "AT": _AT[m]},
    )  # fmt: skip
