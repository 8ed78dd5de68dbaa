"""Alternative computations of one workload: Winograd's minimal filtering instead of the direct sum.

F(m x m, 3 x 3) computes m x m outputs of a 3x3 convolution from (m+2)^2 products instead of 9 m^2
(Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", 2015).  A tile row of `tw` tiles
and `rows` such rows form one step `tb`:

    V[tb, p, ic, x, y] = B^T d B      for the (m+2)^2 inputs of tile p
    M[tb, p, oc, x, y] += V[tb, p, ic, x, y] * U[x, y, ic, oc]        U = G w G^T, at compile time
    Y[n, oc, r, c]     = A^T M A      for the m^2 outputs of tile p
"""

from __future__ import annotations

from collections.abc import Iterator
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
"""Output tile -> largest error relative to the largest output that was seen over the zoo."""

BOUND = {"strict": 0.0, "default": 1e-4, "fast": 1e-3}


def weight_transform(m: int, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """U[x, y, ic, oc] of weights [oc, ic, 3, 3], computed in float64."""
    g = np.array(_G[m], dtype=np.float64)
    out = np.einsum("xa,oiab,yb->xyio", g, weight.astype(np.float64), g, optimize=True)
    return np.ascontiguousarray(out, dtype=np.float32)


def alternatives(dag: ComputeDag, accuracy: str) -> Iterator[ComputeDag]:
    """The DAG itself, then every other computation that the accuracy bound allows."""
    yield dag
    stage = dag.anchor
    if not _is_conv3x3(dag, stage):
        return
    height, width = stage.axes[2].extent, stage.axes[3].extent
    for m, error in ERROR.items():
        if error > BOUND[accuracy] or min(height, width) < m:
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
    """Whether a stage is a dense 3x3 convolution of stride 1 with constant weights."""
    body = stage.body
    if stage.reducer != "sum" or len(stage.axes) != 4 or len(stage.reduce_axes) != 3:
        return False
    if not (isinstance(body, Binary) and body.op == "mul" and stage.index is None):
        return False
    data, weight = body.x, body.y
    if not (isinstance(data, Read) and isinstance(weight, Read)):
        return False
    n, oc, oh, ow = (var(a.name) for a in stage.axes)
    ic, kh, kw = (var(a.name) for a in stage.reduce_axes)
    if weight.index != (oc, ic, kh, kw) or [a.extent for a in stage.reduce_axes[1:]] != [3, 3]:
        return False
    rows, columns = data.index[2] - oh - kh, data.index[3] - ow - kw
    if data.index[:2] != (n, ic) or rows.terms or columns.terms:
        return False
    return any(p.name == weight.tensor and p.constant for p in dag.placeholders)


def _winograd(dag: ComputeDag, conv: Stage, m: int, block: int) -> ComputeDag:
    body = conv.body
    assert isinstance(body, Binary) and isinstance(body.x, Read) and isinstance(body.y, Read)
    data, weight = body.x, body.y
    batch, out_channels, height, width = (a.extent for a in conv.axes)
    channels = conv.reduce_axes[0].extent
    pad_rows = data.index[2].const
    pad_columns = data.index[3].const
    size, columns = m + 2, -(-width // m)
    steps = -(-(-(-height // m)) // block)
    tiles = block * columns

    n, tb = Axis("n", batch), Axis("tb", steps)
    ti, tw, p = Axis("ti", block), Axis("tw", columns), Axis("p", tiles)
    x, y = Axis("x", size), Axis("y", size)
    at = var("ti") * columns + var("tw")
    row = var("tb") * (block * m) + var("ti") * m
    column = var("tw") * m

    def matrix(name: str, i: str, k: str) -> Read:
        return Read(name, (var(i), var(k)))

    ic = Axis("ic", channels)
    source = Read(
        data.tensor,
        (var("n"), var("ic"), row + var("a") + pad_rows, column + var("b") + pad_columns),
        0.0 if data.fill is None else data.fill,
    )
    rows_done = Stage(
        "wino_rows", (n, tb, ti, tw, ic, x, Axis("b", size)), matrix("BT", "x", "a") * source,
        (Axis("a", size),), "sum", unroll=("x", "b", "a"),
    )  # fmt: skip
    before = (var("n"), var("tb"), var("ti"), var("tw"), var("ic"), var("x"), var("b"))
    v = Stage(
        "wino_in", (n, tb, ti, tw, ic, x, y), matrix("BT", "y", "b") * Read("wino_rows", before),
        (Axis("b", size),), "sum",
        index=(var("n"), var("tb"), at, var("ic"), var("x"), var("y")),
        out_shape=(batch, steps, tiles, channels, size, size), unroll=("x", "y", "b"),
    )  # fmt: skip
    oc = Axis("oc", out_channels)
    product = Read("wino_in", (var("n"), var("tb"), var("p"), var("ic"), var("x"), var("y")))
    factor = Read("wino_weight", (var("x"), var("y"), var("ic"), var("oc")))
    gemm = Stage("wino_gemm", (x, y, n, tb, p, oc), product * factor, (ic,), "sum")
    result = Read("wino_gemm", (var("c"), var("y"), var("n"), var("tb"), at, var("oc")))
    i, j = Axis("i", m), Axis("j", m)
    half = Stage(
        "wino_half", (n, tb, ti, tw, oc, i, Axis("y", size)), matrix("AT", "i", "c") * result,
        (Axis("c", size),), "sum", unroll=("i", "y", "c"),
    )  # fmt: skip
    done = Read(
        "wino_half", (var("n"), var("tb"), var("ti"), var("tw"), var("oc"), var("i"), var("d"))
    )
    out = Stage(
        conv.name, (n, tb, ti, tw, oc, i, j), matrix("AT", "j", "d") * done,
        (Axis("d", size),), "sum",
        index=(var("n"), var("oc"), row + var("i"), column + var("j")),
        out_shape=conv.shape, unroll=("i", "j", "d"),
    )  # fmt: skip
    at_conv = dag.stages.index(conv)
    stages = (*dag.stages[:at_conv], rows_done, v, gemm, half, out, *dag.stages[at_conv + 1 :])
    derived = Placeholder(
        "wino_weight", (size, size, channels, out_channels), True, (f"winograd{m}", weight.tensor)
    )
    return replace(
        dag, placeholders=(*dag.placeholders, derived), stages=stages,
        algorithm=f"winograd{m}.rows{block}", constants={"BT": _BT[m], "AT": _AT[m]},
    )  # fmt: skip


__all__ = ["BOUND", "ERROR", "Affine", "alternatives", "weight_transform"]
