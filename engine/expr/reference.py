"""NumPy evaluation of any compute DAG, from its declaration alone.

In: a `ComputeDag` and an array per placeholder, logical axis order.  Out: an array per output.
Reads become strided views of the (padded) array; a stage loops in Python over window axes only
(reduction axes that share an index with another axis) and leaves the rest to NumPy: sums of
products become matrix products.  This is what generated kernels are checked against.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike, NDArray

from engine.expr.affine import Affine
from engine.expr.dag import REDUCERS, ComputeDag, Stage
from engine.expr.nodes import Binary, Compare, Const, Expr, Read, Select, Unary, reads

Array = NDArray[Any]

_GRID_LIMIT = 1 << 25
"""Elements that one evaluation of a body may span before its reduction is looped over."""

_erf = np.frompyfunc(math.erf, 1, 1)


def _round_trip(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: np.asarray(function(x)).astype(x.dtype)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "reciprocal": lambda x: np.asarray(1, x.dtype) / x, "tanh": np.tanh,
    "erf": _round_trip(_erf), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "sign": np.sign, "sin": np.sin, "cos": np.cos,
}  # fmt: skip
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum,
    "min": np.minimum, "pow": np.power, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_REDUCE: dict[str, Any] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
}  # fmt: skip


def reference(
    dag: ComputeDag, feeds: Mapping[str, Array], dtype: DTypeLike = np.float32
) -> dict[str, Array]:
    """Output name -> array, computed in `dtype` (float32 or float64).

    `feeds` holds every placeholder, derived ones too.  Maximum and minimum propagate NaN.
    Raises ValueError for a missing or ill-shaped array.
    """
    values = {name: np.asarray(rows, dtype) for name, rows in dag.constants.items()}
    for placeholder in dag.placeholders:
        if placeholder.name not in feeds:
            raise ValueError(f"no array for placeholder '{placeholder.name}'")
        array = np.asarray(feeds[placeholder.name], dtype)
        if array.shape != placeholder.shape:
            raise ValueError(f"'{placeholder.name}' is {array.shape}, not {placeholder.shape}")
        values[placeholder.name] = array
    with np.errstate(all="ignore"):
        for stage in dag.stages:
            values[stage.name] = evaluate(stage, values, dtype)
    return {name: values[name] for name in dag.outputs}


def evaluate(stage: Stage, values: Mapping[str, Array], dtype: DTypeLike = np.float32) -> Array:
    """The tensor that one stage fills, given the tensors that it reads."""
    space = tuple(a.name for a in stage.axes)
    looped = _looped(stage)
    rest = tuple(a.name for a in stage.reduce_axes if a.name not in looped)
    shape = tuple(a.extent for a in stage.axes)
    out = None
    for point in itertools.product(*(range(stage.extents[name]) for name in looped)):
        grid = _Grid(stage, values, dict(zip(looped, point, strict=True)), space + rest, dtype)
        part = np.broadcast_to(grid.reduced(stage.body, len(space)), shape)
        out = part if out is None else _REDUCE[stage.reducer or "sum"](out, part)
    if out is None:  # an empty reduction
        out = np.full(shape, REDUCERS[stage.reducer or "sum"])
    return _scatter(stage, np.asarray(out, dtype))


def _looped(stage: Stage) -> tuple[str, ...]:
    """Reduction axes to loop over: windows, and what would not fit in memory at once."""
    windows = {
        name
        for read in reads(stage.body)
        for index in read.index
        if len(index.axes) > 1
        for name in index.axes
    }
    names = [a.name for a in stage.reduce_axes if a.name in windows]
    if stage.reducer == "sum" and len(_factors(stage.body)) > 1:
        return tuple(names)
    size = prod(e for name, e in stage.extents.items() if name not in names)
    for axis in stage.reduce_axes:
        if size > _GRID_LIMIT and axis.name not in names:
            names.append(axis.name)
            size //= axis.extent
    return tuple(names)


def _factors(body: Expr) -> list[Expr]:
    if isinstance(body, Binary) and body.op == "mul":
        return _factors(body.x) + _factors(body.y)
    return [body]


class _Grid:
    """Evaluates expressions over a grid of axes while some other axes stand still."""

    def __init__(
        self,
        stage: Stage,
        values: Mapping[str, Array],
        fixed: Mapping[str, int],
        axes: Sequence[str],
        dtype: DTypeLike,
    ) -> None:
        self.stage, self.values, self.axes, self.dtype = stage, values, tuple(axes), dtype
        self.fixed = {name: Affine((), at) for name, at in fixed.items()}
        self.extents = stage.extents

    def reduced(self, body: Expr, kept: int) -> Array:
        """The body combined over all axes but the first `kept`; broadcastable to those."""
        if self.stage.reducer is None:
            return self.value(body)
        if self.stage.reducer == "sum":
            return self._sum(_factors(body), kept)
        shape = tuple(self.extents[a] for a in self.axes)
        gone = tuple(range(kept, len(shape)))
        full = self.value(body)
        if gone and self.stage.reducer == "prod":
            full = np.broadcast_to(full, full.shape[:kept] + shape[kept:])
        result: Array = _REDUCE[self.stage.reducer].reduce(full, axis=gone) if gone else full
        return result

    def _sum(self, factors: Sequence[Expr], kept: int) -> Array:
        scale = prod(f.value for f in factors if isinstance(f, Const))
        arrays = [self.value(f) for f in factors if not isinstance(f, Const)]
        for axis in range(kept, len(self.axes)):
            if all(a.shape[axis] == 1 for a in arrays):  # a sum of equal terms
                scale *= self.extents[self.axes[axis]]
        if not arrays:
            return np.full((1,) * kept, scale, self.dtype)
        while len(arrays) > 2:
            arrays[:2] = [_product(arrays[0], arrays[1], _alone(arrays, kept))]
        total = _product(arrays[0], arrays[1] if len(arrays) > 1 else None, range(kept, 99))
        result: Array = total * np.asarray(scale, total.dtype)
        return result.reshape(total.shape[:kept])

    def value(self, expr: Expr) -> Array:
        """The expression's values, one array axis per grid axis (length 1 where it is constant)."""
        match expr:
            case Const(number):
                return np.full((1,) * len(self.axes), number, self.dtype)
            case Read():
                return self._view(expr)
            case Unary(op, x):
                return _UNARY[op](self.value(x))
            case Binary(op, x, y) | Compare(op, x, y):
                return _BINARY[op](self.value(x), self.value(y))
            case Select(condition, x, y):
                return np.where(self.value(condition), self.value(x), self.value(y))
        raise TypeError(f"unknown expression {expr!r}")

    def _view(self, read: Read) -> Array:
        index = [i.substitute(self.fixed) for i in read.index]
        array, origin = _padded(self.values[read.tensor], index, self.extents, read)
        strides = [
            sum(i.coeff(axis) * s for i, s in zip(index, array.strides, strict=True))
            for axis in self.axes
        ]
        used = {name for i in index for name in i.axes}
        shape = [self.extents[axis] if axis in used else 1 for axis in self.axes]
        start = tuple(i.const + o for i, o in zip(index, origin, strict=True))
        corner = array[tuple(slice(s, s + 1) for s in start)]
        return as_strided(corner, shape, strides, writeable=False)


def _padded(
    array: Array, index: Sequence[Affine], extents: Mapping[str, int], read: Read
) -> tuple[Array, list[int]]:
    """The array with as much `fill` around it as the read reaches, and where element 0 is now."""
    pads = []
    for affine, size in zip(index, array.shape, strict=True):
        low, high = affine.bounds(extents)
        pads.append((max(0, -low), max(0, high - size + 1)))
    if all(p == (0, 0) for p in pads):
        return array, [0] * len(pads)
    if read.fill is None:
        raise ValueError(f"{read} leaves its tensor of shape {array.shape}")
    return np.pad(array, pads, constant_values=read.fill), [p for p, _ in pads]


def _alone(arrays: Sequence[Array], kept: int) -> list[int]:
    """Reduction axes that only the first two arrays have."""
    return [
        axis for axis in range(kept, arrays[0].ndim) if all(a.shape[axis] == 1 for a in arrays[2:])
    ]


def _product(x: Array, y: Array | None, summed: Sequence[int]) -> Array:
    """x * y summed over those axes (kept with length 1); axes that only one has are outer."""
    gone = [axis for axis in range(x.ndim) if axis in summed]
    if y is None:
        result: Array = x.sum(axis=tuple(gone), keepdims=True, dtype=x.dtype)
        return result
    x, y = (_presum(a, b, gone) for a, b in ((x, y), (y, x)))
    both = [axis for axis in range(x.ndim) if x.shape[axis] > 1 and y.shape[axis] > 1]
    inner = [axis for axis in both if axis in gone]
    if not inner:
        return x * y
    batch = [axis for axis in both if axis not in gone]
    rows, cols = (
        [axis for axis in range(x.ndim) if axis not in both and a.shape[axis] > 1] for a in (x, y)
    )
    ones = [a for a in range(x.ndim) if a not in batch + rows + cols + inner]
    left = _matrix(x, batch, rows, inner, cols + ones)
    right = _matrix(y, batch, inner, cols, rows + ones)
    flat = left @ right
    order = batch + rows + cols + inner + ones
    sizes = [1 if axis in inner else max(x.shape[axis], y.shape[axis]) for axis in order]
    return flat.reshape(sizes).transpose(np.argsort(order))


def _presum(x: Array, other: Array, gone: Sequence[int]) -> Array:
    """x summed over the axes of `gone` that the other array lacks."""
    own = tuple(axis for axis in gone if x.shape[axis] > 1 and other.shape[axis] == 1)
    result: Array = x.sum(axis=own, keepdims=True, dtype=x.dtype) if own else x
    return result


def _matrix(
    x: Array, batch: Sequence[int], rows: Sequence[int], cols: Sequence[int], ones: Sequence[int]
) -> Array:
    """x as a stack of matrices whose rows and columns run over the given axes."""
    ordered = x.transpose([*batch, *rows, *cols, *ones])
    sizes = [prod(x.shape[a] for a in group) for group in (batch, rows, cols)]
    return ordered.reshape(sizes)


def _scatter(stage: Stage, values: Array) -> Array:
    """`values` (one axis per space axis) placed where the stage's index says."""
    if stage.index is None:
        return values.reshape(stage.shape)
    shape, grid = stage.shape, np.ogrid[tuple(slice(a.extent) for a in stage.axes)]
    at = dict(zip((a.name for a in stage.axes), grid, strict=True))
    picks = [
        reduce(np.add, (at[name] * c for name, c in i.terms), np.asarray(i.const))
        for i in stage.index
    ]
    full = np.broadcast_arrays(*picks, values)
    inside = np.ones(values.shape, bool)
    for pick, size in zip(full[:-1], shape, strict=True):
        inside &= (pick >= 0) & (pick < size)
    out = np.zeros(shape, values.dtype)
    out[tuple(pick[inside] for pick in full[:-1])] = values[inside]
    return out
