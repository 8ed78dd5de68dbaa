"""Minimal filtering of a convolution, instead of the direct sum.

F(m x m', r x r') computes m m' outputs of a convolution with r x r' taps from
(m + r - 1)(m' + r' - 1) products instead of m m' r r' (Lavin & Gray, "Fast Algorithms for
Convolutional Neural Networks", 2015; `engine.space.filtering` has the matrices).  A tile row of
`tw` tiles and `rows` such rows form one step `tb`:

    V[tb, p, ic, x, y] = B^T d B'     for the (m + r - 1)(m' + r' - 1) inputs of tile p
    M[tb, p, oc, x, y] += V[tb, p, ic, x, y] * U[x, y, ic, oc]        U = G w G', at compile time
    Y[n, oc, r, c]     = A^T M A'     for the m m' outputs of tile p

Along an axis with one tap m is 1 and nothing changes.  In three dimensions the depth is summed
directly: V is made for every input slice `d`, and M also sums over the kernel's depth.

A window with stride s is a sum of s s' windows with stride 1 over the input's phases: element
s i + e of an axis is element i of phase e, and of r taps each phase has ceil(r / s), some of them
zero.  A phase's channels are as good as other channels, so that `ic` runs through all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.expr import Affine, Axis, Binary, ComputeDag, Placeholder, Read, Stage, var
from engine.space.filtering import filtering

Tile = tuple[int, int]


class Window(NamedTuple):
    """The last two axes of a convolution."""

    taps: Tile
    strides: Tile = (1, 1)

    @property
    def phase_taps(self) -> Tile:
        """Taps of the window over each phase of the input."""
        down, along = (-(-r // s) for r, s in zip(self.taps, self.strides, strict=True))
        return down, along


_ERRORS: dict[Window, dict[Tile, float]] = {
    Window((3, 3)): {(2, 2): 2e-6, (4, 2): 5e-6, (4, 4): 2e-5},
    Window((5, 5)): {(2, 2): 2e-5},
    Window((1, 3)): {(1, 2): 2e-6, (1, 4): 5e-6},
    Window((3, 1)): {(2, 1): 2e-6, (4, 1): 5e-6},
    Window((1, 5)): {(1, 2): 5e-6, (1, 4): 5e-6},
    Window((5, 1)): {(2, 1): 5e-6, (4, 1): 5e-6},
    Window((1, 7)): {(1, 2): 5e-6, (1, 4): 2e-5},
    Window((7, 1)): {(2, 1): 5e-6, (4, 1): 2e-5},
    Window((3, 3), (2, 2)): {(4, 4): 2e-5},
    Window((7, 7), (2, 2)): {(4, 4): 2e-5},
}
"""Window -> tiles of outputs -> bound on a layer's error relative to its largest output.

Seen with normal data: 9e-7, 8e-7 and 1.4e-5 for 3x3, 7e-6 for 5x5; 4e-7 and 2e-6 for 3 taps, 2e-6
twice for 5, 2e-6 and 1e-5 for 7; 8e-6 and 1.1e-5 for 3x3 and 7x7 with stride 2.
"""


def algorithm_of(tile: Tile, window: Window) -> str:
    """ "winograd4" for tiles of 4 x 4 outputs of 3x3 windows, else like "winograd1x4of1x7", with
    strides like "winograd4x4of7x7s2x2"."""
    if window == Window((3, 3)) and tile[0] == tile[1]:
        return f"winograd{tile[0]}"
    name = "winograd{}x{}of{}x{}".format(*tile, *window.taps)
    return name if window.strides == (1, 1) else name + "s{}x{}".format(*window.strides)


TILES = {
    algorithm_of(tile, window): (tile, window)
    for window, tiles in _ERRORS.items()
    for tile in tiles
}
"""Algorithm -> its tile of outputs, and its window."""
ERROR = {algorithm: _ERRORS[window][tile] for algorithm, (tile, window) in TILES.items()}
"""Algorithm -> bound on its error."""
_FEW = 8
"""Tiles of an image up to which weights take longer to read than tiles to compute, so that an
oblong tile, which has fewer of them than the next larger square, may be best."""


def window_of(algorithm: str) -> Window:
    """The window of "winograd4" or "winograd4.rows2"."""
    return TILES[algorithm.partition(".")[0]][1]


def weight_transform(
    tile: Tile, window: Window, weight: NDArray[np.float32]
) -> NDArray[np.float32]:
    """U[x, y, (kd,) ic, oc] of weights [oc, ic, (kd,) kh, kw], computed in float64; `ic` runs
    through the channels of all phases."""
    (s, t), (a, b) = window.strides, window.phase_taps
    kh, kw = window.taps
    room = [(0, 0)] * (weight.ndim - 2) + [(0, s * a - kh), (0, t * b - kw)]
    phases = np.pad(weight.astype(np.float64), room).reshape(*weight.shape[:-2], a, s, b, t)
    down, along = (np.array(filtering(m, r).taps) for m, r in zip(tile, (a, b), strict=True))
    out = np.einsum("xa,oi...apbq,yb->xy...pqio", down, phases, along, optimize=True)
    *outer, _, _, channels, outputs = out.shape
    return np.ascontiguousarray(out.reshape(*outer, s * t * channels, outputs), dtype=np.float32)


def alternatives(dag: ComputeDag) -> Iterator[ComputeDag]:
    """The DAG with its anchor filtered minimally, for each tile and several sizes of a step."""
    stage = dag.anchor
    window = _window(dag, stage)
    if window not in _ERRORS:
        return
    height, width = (a.extent for a in stage.axes[-2:])
    for tile in _ERRORS[window]:
        rows, columns = -(-height // tile[0]), -(-width // tile[1])
        oblong = min(tile) > 1 and tile[0] != tile[1]
        if height < tile[0] or width < tile[1] or (oblong and rows * columns > _FEW):
            continue
        seen = set()
        for wanted in (1, 2, 4, rows):
            steps = -(-rows // wanted)
            block = -(-rows // steps)
            if block in seen or (block != rows and block * columns < 6):
                continue
            seen.add(block)
            yield _winograd(dag, stage, window, tile, block)


def _window(dag: ComputeDag, stage: Stage) -> Window | None:
    """The window of a dense 2-D or 3-D convolution with constant weights and no dilation in the
    last two axes; None for other stages."""
    body = stage.body
    rank = len(stage.axes)
    if stage.reducer != "sum" or rank not in (4, 5) or len(stage.reduce_axes) != rank - 1:
        return None
    if not (isinstance(body, Binary) and body.op == "mul" and stage.index is None):
        return None
    data, weight = body.x, body.y
    if not (isinstance(data, Read) and isinstance(weight, Read)) or len(data.index) != rank:
        return None
    own = [var(a.name) for a in stage.axes]
    kernel = [var(a.name) for a in stage.reduce_axes]
    if weight.index != (own[1], *kernel) or data.index[:2] != (own[0], kernel[0]):
        return None
    if not any(p.name == weight.tensor and p.constant for p in dag.placeholders):
        return None
    strides = [data.index[d].coeff(stage.axes[d].name) for d in (-2, -1)]
    moved = (own[d] * s + kernel[d] for d, s in zip((-2, -1), strides, strict=True))
    if any((data.index[d] - m).terms for d, m in zip((-2, -1), moved, strict=True)):
        return None
    height, width = (a.extent for a in stage.reduce_axes[-2:])
    return Window((height, width), (strides[0], strides[1]))


def _winograd(dag: ComputeDag, conv: Stage, window: Window, tile: Tile, block: int) -> ComputeDag:
    """The DAG with `conv` replaced by transform, product and inverse transform."""
    body = conv.body
    assert isinstance(body, Binary) and isinstance(body.x, Read) and isinstance(body.y, Read)
    data, weight = body.x, body.y
    n, oc, *depth, rows, cols = conv.axes
    ic, *kernel_depth = conv.reduce_axes[:-2]
    down, along = (filtering(m, r) for m, r in zip(tile, window.phase_taps, strict=True))
    tile_rows, columns = -(-rows.extent // tile[0]), -(-cols.extent // tile[1])
    tb, p = Axis("tb", -(-tile_rows // block)), Axis("p", block * columns)
    ti, tw = Axis("ti", block), Axis("tw", columns)
    at = var("ti") * columns + var("tw")
    row = var("tb") * (block * tile[0]) + var("ti") * tile[0]
    column = var("tw") * tile[1]

    below, beside = window.strides
    phases = [Axis(name, s) for name, s in (("py", below), ("px", beside)) if s > 1]
    py, px = (var(name) if s > 1 else Affine() for name, s in (("py", below), ("px", beside)))
    channel = (py * beside + px) * ic.extent + var(ic.name)
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
            (row + var("a")) * below + py + data.index[-2].const,
            (column + var("b")) * beside + px + data.index[-1].const,
        ),
        0.0 if data.fill is None else data.fill,
    )  # fmt: skip
    x, y = Axis("x", len(down.inputs)), Axis("y", len(along.inputs))
    channels = Axis(ic.name, below * beside * ic.extent)
    outer_in = (n, tb, *slices, ti, tw, *phases, ic)
    rows_done = Stage(
        "wino_rows", (*outer_in, x, Axis("b", y.extent)), matrix("BT_down", "x", "a") * source,
        (Axis("a", x.extent),), "sum", unroll=("x", "b", "a"),
    )  # fmt: skip
    v = Stage(
        "wino_in", (*outer_in, x, y),
        matrix("BT_along", "y", "b") * Read("wino_rows", (*names(outer_in), var("x"), var("b"))),
        (Axis("b", y.extent),), "sum",
        index=(*names((n, tb, *slices)), at, channel, var("x"), var("y")),
        out_shape=(
            n.extent, tb.extent, *(a.extent for a in slices), p.extent, channels.extent,
            x.extent, y.extent,
        ),
        unroll=("x", "y", "b"),
    )  # fmt: skip
    factors = Read("wino_in", (
        var(n.name), var("tb"), *product_index, var("p"), var(ic.name), var("x"), var("y"),
    ))  # fmt: skip
    weights = Read(
        "wino_weight", (var("x"), var("y"), *names(kernel_depth), var(ic.name), var(oc.name))
    )
    product = factors * weights
    gemm = Stage(
        "wino_gemm", (x, y, n, tb, *depth, p, oc), product, (*kernel_depth, channels), "sum"
    )
    outer_out = (n, tb, *depth, ti, tw, oc)
    result = Read("wino_gemm", (
        var("c"), var("y"), var(n.name), var("tb"), *names(depth), at, var(oc.name),
    ))  # fmt: skip
    half = Stage(
        "wino_half", (*outer_out, Axis("i", tile[0]), y), matrix("AT_down", "i", "c") * result,
        (Axis("c", x.extent),), "sum", unroll=("i", "y", "c"),
    )  # fmt: skip
    out = Stage(
        conv.name, (*outer_out, Axis("i", tile[0]), Axis("j", tile[1])),
        matrix("AT_along", "j", "d2") * Read("wino_half", (*names(outer_out), var("i"), var("d2"))),
        (Axis("d2", y.extent),), "sum",
        index=(var(n.name), var(oc.name), *names(depth), row + var("i"), column + var("j")),
        out_shape=conv.shape, unroll=("i", "j", "d2"),
    )  # fmt: skip
    place = dag.stages.index(conv)
    stages = (*dag.stages[:place], rows_done, v, gemm, half, out, *dag.stages[place + 1 :])
    shape = (x.extent, y.extent, *(a.extent for a in kernel_depth), channels.extent, oc.extent)
    algorithm = algorithm_of(tile, window)
    derived = Placeholder("wino_weight", shape, True, (algorithm, weight.tensor))
    constants = {
        "BT_down": down.inputs, "BT_along": along.inputs,
        "AT_down": down.outputs, "AT_along": along.outputs,
    }  # fmt: skip
    return replace(
        dag, placeholders=(*dag.placeholders, derived), stages=stages,
        algorithm=f"{algorithm}.rows{block}", constants=constants,
    )  # fmt: skip
