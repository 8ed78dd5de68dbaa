"""Convolutions of one to three spatial axes: plain, grouped and depthwise.

In: data [N, C, *] and weight [M, C/group, *].  Out: one stage

    conv2d(n, oc, oh, ow) += data[n, ic, oh*s + kh*d - p, ow*s + kw*d - p] * weight[oc, ic, kh, kw]

Grouped: axes (n, g, oc, ...), element g*OCG + oc.  Depthwise: axes (n, c, ...), no channel sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.expr import Affine, Axis, Read, Stage, var
from engine.ops.registry import SPATIAL_AXES, Call, Case, Kind, Operand, Stages, operator


@dataclass(frozen=True, slots=True)
class Window:
    """Where a window lies: output and window axes, and input positions as expressions of both."""

    out: tuple[Axis, ...]
    kernel: tuple[Axis, ...]
    index: tuple[Affine, ...]
    padded: bool


def window(call: Call) -> Window:
    """The sliding window that the attributes describe; `padded` if it leaves the data."""
    kernel, strides = call.ints("kernel_shape"), call.ints("strides")
    dilations, pads = call.ints("dilations"), call.ints("pads")
    names = SPATIAL_AXES[len(kernel)]
    out = tuple(Axis(f"o{a}", e) for a, e in zip(names, call.shape[2:], strict=True))
    taps = tuple(Axis(f"k{a}", e) for a, e in zip(names, kernel, strict=True))
    index = tuple(
        var(o.name) * s + var(k.name) * d - p
        for o, k, s, d, p in zip(out, taps, strides, dilations, pads, strict=False)
    )
    sizes = call.operand(0).shape[2:]
    return Window(out, taps, index, leaves(index, out + taps, sizes))


def leaves(index: Sequence[Affine], axes: Sequence[Axis], sizes: Sequence[int]) -> bool:
    """Whether any index leaves `range(size)` while the axes run."""
    extents = {a.name: a.extent for a in axes}
    bounds = [i.bounds(extents) for i in index]
    return any(low < 0 or high >= size for (low, high), size in zip(bounds, sizes, strict=True))


def _attrs(
    kernel: Sequence[int],
    stride: Sequence[int] | int = 1,
    pads: Sequence[int] | int = 0,
    dilation: int = 1,
    group: int = 1,
) -> dict[str, object]:
    n = len(kernel)
    return {
        "kernel_shape": tuple(kernel),
        "strides": (stride,) * n if isinstance(stride, int) else tuple(stride),
        "dilations": (dilation,) * n,
        "pads": (pads,) * 2 * n if isinstance(pads, int) else tuple(pads),
        "group": group,
    }


_CASES = (
    Case(((1, 3, 9, 8), (5, 3, 3, 3)), _attrs((3, 3), pads=1), constant=(1,)),
    Case(((2, 4, 9, 8), (6, 4, 1, 1)), _attrs((1, 1), stride=2), constant=(1,)),
    Case(((1, 2, 11, 9), (3, 2, 3, 2)), _attrs((3, 2), pads=(0, 1, 2, 0)), constant=(1,)),
    Case(((1, 2, 11, 12), (3, 2, 3, 3)), _attrs((3, 3), 2, 2, dilation=2), constant=(1,)),
    Case(((1, 8, 7, 7), (12, 4, 3, 3)), _attrs((3, 3), pads=1, group=2), constant=(1,)),
    Case(((1, 4, 7, 7), (8, 1, 3, 3)), _attrs((3, 3), pads=1, group=4), constant=(1,)),
    Case(((2, 6, 7, 9), (6, 1, 3, 3)), _attrs((3, 3), 2, 1, group=6), constant=(1,)),
    Case(((1, 3, 11), (4, 3, 5)), _attrs((5,), 2, 2), constant=(1,)),
    Case(((1, 3, 5, 6, 7), (4, 3, 3, 3, 3)), _attrs((3, 3, 3), 1, 1), constant=(1,)),
    Case(((1, 3, 13, 20), (20, 3, 7, 7)), _attrs((7, 7), 2, 3), constant=(1,)),
    Case(((1, 16, 12, 15), (5, 16, 3, 3)), _attrs((3, 3), 2, 1), constant=(1,)),
    Case(((1, 3, 4, 9, 16), (4, 3, 3, 7, 7)), _attrs((3, 7, 7), (1, 2, 2), 3), constant=(1,)),
    Case(((1, 3, 6, 5), (4, 3, 3, 3)), _attrs((3, 3), pads=1)),
)


@operator("Conv", Kind.WINDOW, roles=("data", "weight"), cases=_CASES)
def convolution(call: Call) -> Stages | None:
    """Conv without bias; None above three spatial axes or for a window longer than the data."""
    data, weight = call.operand(0), call.operand(1)
    if not 3 <= len(data.shape) <= 5:
        return None
    group, channels = int(call.attrs["group"]), data.shape[1]
    if group == 1:
        return (_plain(call, data, weight),)
    if group == channels == weight.shape[0]:
        return (_depthwise(call, data, weight),)
    return (_grouped(call, data, weight, group),)


def _plain(call: Call, data: Operand, weight: Operand) -> Stage:
    win = window(call)
    axes = (Axis("n", call.shape[0]), Axis("oc", call.shape[1]), *win.out)
    inner = (Axis("ic", data.shape[1]), *win.kernel)
    source = Read(data.tensor, (var("n"), var("ic"), *win.index), 0.0 if win.padded else None)
    taps = tuple(var(a.name) for a in win.kernel)
    body = source * Read(weight.tensor, (var("oc"), var("ic"), *taps))
    return Stage(call.namer.unique(f"conv{len(taps)}d"), axes, body, inner, "sum")


def _depthwise(call: Call, data: Operand, weight: Operand) -> Stage:
    win = window(call)
    axes = (Axis("n", call.shape[0]), Axis("c", call.shape[1]), *win.out)
    source = Read(data.tensor, (var("n"), var("c"), *win.index), 0.0 if win.padded else None)
    taps = tuple(var(a.name) for a in win.kernel)
    body = source * Read(weight.tensor, (var("c"), Affine(), *taps))
    name = call.namer.unique(f"depthwise_conv{len(taps)}d")
    return Stage(name, axes, body, win.kernel, "sum")


def _grouped(call: Call, data: Operand, weight: Operand, group: int) -> Stage:
    win = window(call)
    per_out, per_in = call.shape[1] // group, weight.shape[1]
    axes = (Axis("n", call.shape[0]), Axis("g", group), Axis("oc", per_out), *win.out)
    inner = (Axis("ic", per_in), *win.kernel)
    channel = var("g") * per_in + var("ic")
    source = Read(data.tensor, (var("n"), channel, *win.index), 0.0 if win.padded else None)
    taps = tuple(var(a.name) for a in win.kernel)
    out_channel = var("g") * per_out + var("oc")
    body = source * Read(weight.tensor, (out_channel, var("ic"), *taps))
    index = (var("n"), out_channel, *(var(a.name) for a in win.out))
    name = call.namer.unique(f"group_conv{len(taps)}d")
    return Stage(name, axes, body, inner, "sum", index, call.shape)
