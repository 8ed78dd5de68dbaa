"""Pooling: the maximum or the mean of sliding windows, or of a whole plane.

In: data [N, C, *].  Out: one stage for a maximum; a sum and its scaling for a mean.  A mean that
leaves padding out reads reciprocals of the windows' sizes from a constant [*].
"""

from __future__ import annotations

from math import prod

import numpy as np

from engine.expr import Axis, Const, Expr, Read, Stage, var
from engine.ops.conv import window
from engine.ops.registry import SPATIAL_AXES, Call, Case, Kind, Stages, operator


def _attrs(kernel: int, stride: int, pads: tuple[int, ...], **more: object) -> dict[str, object]:
    n = len(pads) // 2
    return {
        "kernel_shape": (kernel,) * n,
        "strides": (stride,) * n,
        "dilations": (1,) * n,
        "pads": pads,
        **more,
    }


@operator(
    "MaxPool",
    Kind.WINDOW,
    cases=(
        Case(((1, 3, 9, 8),), _attrs(3, 2, (1, 1, 1, 1))),
        Case(((2, 2, 7, 7),), _attrs(2, 2, (0, 0, 1, 1))),
        Case(((1, 2, 9, 9),), {**_attrs(2, 1, (0, 0, 0, 0)), "dilations": (2, 3)}),
        Case(((1, 3, 9),), _attrs(3, 1, (1, 1))),
        Case(((1, 2, 4, 6, 5),), _attrs(2, 2, (0,) * 6)),
    ),
)
def max_pool(call: Call) -> Stages | None:
    """MaxPool; padding never wins: it reads -inf, or 0 where the data has nothing below."""
    data = call.operand(0)
    if not 3 <= len(data.shape) <= 5:
        return None
    win = window(call)
    fill = 0.0 if data.nonnegative else -np.inf
    source = Read(data.tensor, (var("n"), var("c"), *win.index), fill if win.padded else None)
    axes = (Axis("n", call.shape[0]), Axis("c", call.shape[1]), *win.out)
    name = call.namer.unique(f"max_pool{len(win.out)}d")
    return (Stage(name, axes, source, win.kernel, "max"),)


@operator(
    "AveragePool",
    Kind.WINDOW,
    cases=(
        Case(((1, 3, 9, 8),), _attrs(3, 2, (1, 1, 1, 1), count_include_pad=1)),
        Case(((1, 3, 9, 8),), _attrs(3, 2, (1, 1, 1, 1), count_include_pad=0)),
        Case(((1, 3, 8, 8),), _attrs(2, 2, (0, 0, 0, 0), count_include_pad=0)),
        Case(((1, 3, 9),), _attrs(3, 1, (1, 1), count_include_pad=0)),
        Case(((1, 2, 4, 6, 5),), _attrs(2, 2, (0,) * 6, count_include_pad=0)),
    ),
)
def average_pool(call: Call) -> Stages | None:
    """AveragePool, the padding counted or not."""
    data = call.operand(0)
    if not 3 <= len(data.shape) <= 5:
        return None
    win = window(call)
    axes = (Axis("n", call.shape[0]), Axis("c", call.shape[1]), *win.out)
    source = Read(data.tensor, (var("n"), var("c"), *win.index), 0.0 if win.padded else None)
    dims = len(win.out)
    total = Stage(call.namer.unique(f"pool{dims}d_sum"), axes, source, win.kernel, "sum")
    mean = Read(total.name, tuple(var(a.name) for a in axes)) * _reciprocal(call)
    return total, Stage(call.namer.unique(f"avg_pool{dims}d"), axes, mean)


def _reciprocal(call: Call) -> Expr:
    """1 / cells of a window: a number if all windows are alike, else a constant over the plane."""
    kernel, pads = call.ints("kernel_shape"), call.ints("pads")
    if call.attrs["count_include_pad"] or not any(pads):
        return Const(1.0 / prod(kernel))
    counts = np.ones((), np.float64)
    for i, size in enumerate(call.operand(0).shape[2:]):
        starts = np.arange(call.shape[2 + i]) * call.ints("strides")[i] - pads[i]
        cells = starts[:, None] + np.arange(kernel[i]) * call.ints("dilations")[i]
        inside = ((cells >= 0) & (cells < size)).sum(axis=1)
        counts = np.multiply.outer(counts, inside)
    if counts.min() == counts.max():
        return Const(1.0 / float(counts.flat[0]))
    scale = call.namer.constant("reciprocal", (1.0 / counts).astype(np.float32))
    names = SPATIAL_AXES[len(kernel)]
    return Read(scale.tensor, tuple(var(f"o{a}") for a in names))


@operator(
    "GlobalMaxPool",
    Kind.WINDOW,
    cases=(Case(((2, 3, 5, 4),)), Case(((1, 3, 7),)), Case(((1, 3, 2, 3, 4),))),
)
def global_max_pool(call: Call) -> Stages | None:
    """GlobalMaxPool: one maximum for each plane."""
    return (_plane(call, "global_max_pool", "max"),)


@operator(
    "GlobalAveragePool",
    Kind.WINDOW,
    cases=(Case(((2, 3, 5, 4),)), Case(((1, 3, 7),)), Case(((1, 3, 2, 3, 4),))),
)
def global_average_pool(call: Call) -> Stages | None:
    """GlobalAveragePool: one mean for each plane."""
    total = _plane(call, "global_pool_sum", "sum")
    size = prod(call.operand(0).shape[2:])
    mean = Read(total.name, tuple(var(a.name) for a in total.axes)) * Const(1.0 / size)
    name = call.namer.unique(f"global_avg_pool{len(call.shape) - 2}d")
    return total, Stage(name, total.axes, mean)


def _plane(call: Call, name: str, reducer: str) -> Stage:
    data = call.operand(0)
    names = SPATIAL_AXES.get(len(data.shape) - 2) or tuple(
        f"s{i}" for i in range(len(data.shape) - 2)
    )
    axes = tuple(
        Axis(a, e) for a, e in zip(("n", "c", *(f"o{a}" for a in names)), call.shape, strict=True)
    )
    inner = tuple(Axis(f"k{a}", e) for a, e in zip(names, data.shape[2:], strict=True))
    body = Read(data.tensor, (var("n"), var("c"), *(var(a.name) for a in inner)))
    base = f"{name}{'' if name.endswith('sum') else f'{len(names)}d'}"
    return Stage(call.namer.unique(base), axes, body, inner, reducer)
