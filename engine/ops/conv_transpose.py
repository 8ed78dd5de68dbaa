"""Transposed convolutions.

In: data [N, C, *] and weight [C, M/group, *].  Out: one stage.  With u = oh + pad, the sum runs
over the taps kh for which u - kh*dilation is a multiple of the stride.  Stride 1 is a convolution
with the window turned round.  A larger stride is cut into phases, u = s*q + r, taps kh = s*t + r:

    conv2d_transpose(n, oc, s*qh + rh - p, s*qw + rw - p)
        += data[n, ic, qh - th, qw - tw | else 0] * weight[ic, oc, s*th + rh, s*tw + rw | else 0]
"""

from __future__ import annotations

from engine.expr import Affine, Axis, Read, Stage, var
from engine.ops.conv import leaves
from engine.ops.registry import SPATIAL_AXES, Call, Case, Kind, Stages, operator


def _attrs(n: int, kernel: int, stride: int, pad: int, **more: object) -> dict[str, object]:
    return {
        "kernel_shape": (kernel,) * n,
        "strides": (stride,) * n,
        "dilations": (1,) * n,
        "pads": (pad,) * 2 * n,
        "output_padding": (0,) * n,
        "group": 1,
        **more,
    }


_CASES = (
    Case(((1, 4, 5, 6), (4, 2, 3, 3)), _attrs(2, 3, 2, 1, output_padding=(1, 1), group=2)),
    Case(((2, 3, 4, 5), (3, 5, 4, 4)), _attrs(2, 4, 2, 1), constant=(1,)),
    Case(((1, 3, 4, 5), (3, 2, 3, 3)), _attrs(2, 3, 1, 1), constant=(1,)),
    Case(((1, 3, 4, 5), (3, 2, 3, 3)), _attrs(2, 3, 1, 0, dilations=(2, 2)), constant=(1,)),
    Case(((1, 3, 7), (3, 2, 2)), _attrs(1, 2, 3, 0), constant=(1,)),
    Case(((1, 2, 3, 4, 3), (2, 3, 2, 2, 2)), _attrs(3, 2, 2, 0), constant=(1,)),
)


@operator("ConvTranspose", Kind.WINDOW, roles=("data", "weight"), cases=_CASES)
def transposed_convolution(call: Call) -> Stages | None:
    """ConvTranspose without bias; None for strides and dilations both above 1."""
    kernel, strides, dilations = (call.ints(k) for k in ("kernel_shape", "strides", "dilations"))
    if len(kernel) > 3 or (max(strides) > 1 and max(dilations) > 1):
        return None
    phases = _Phases(call)
    group, per_out = int(call.attrs["group"]), call.operand(1).shape[1]
    per_in = call.operand(0).shape[1] // group
    grouped = group > 1
    shift = (lambda size: var("g") * size) if grouped else (lambda size: Affine())
    channel, out_channel = shift(per_in) + var("ic"), shift(per_out) + var("oc")
    lead = (Axis("n", call.shape[0]), *((Axis("g", group),) if grouped else ()))
    axes = (*lead, Axis("oc", per_out), *phases.space)
    inner = (Axis("ic", per_in), *phases.taps)
    data, weight = call.operand(0), call.operand(1)
    body = Read(data.tensor, (var("n"), channel, *phases.source), phases.source_fill) * Read(
        weight.tensor, (channel, var("oc"), *phases.tap), phases.tap_fill
    )
    index = (var("n"), out_channel, *phases.target)
    plain = index == tuple(var(a.name) for a in axes)
    name = call.namer.unique(f"conv{len(kernel)}d_transpose")
    where = (None, None) if plain else (index, call.shape)
    return (Stage(name, axes, body, inner, "sum", *where),)


class _Phases:
    """Axes and indices of the spatial part, stride 1 in the direct form, others in phases."""

    def __init__(self, call: Call) -> None:
        self.space: list[Axis] = []
        self.taps: list[Axis] = []
        self.source: list[Affine] = []
        self.tap: list[Affine] = []
        self.target: list[Affine] = []
        names = SPATIAL_AXES[len(call.ints("kernel_shape"))]
        for i, name in enumerate(names):
            stride, size = call.ints("strides")[i], call.shape[2 + i]
            kernel, pad = call.ints("kernel_shape")[i], call.ints("pads")[i]
            if stride == 1:
                self._direct(name, size, kernel, pad, call.ints("dilations")[i])
            else:
                self._phased(name, size, kernel, pad, stride)
        moving = self.space + self.taps
        inside = call.operand(0).shape[2:]
        self.source_fill = 0.0 if leaves(self.source, moving, inside) else None
        weights = call.operand(1).shape[2:]
        self.tap_fill = 0.0 if leaves(self.tap, moving, weights) else None

    def _direct(self, name: str, size: int, kernel: int, pad: int, dilation: int) -> None:
        self.space.append(Axis(f"o{name}", size))
        self.taps.append(Axis(f"k{name}", kernel))
        self.source.append(var(f"o{name}") - var(f"k{name}") * dilation + pad)
        self.tap.append(var(f"k{name}"))
        self.target.append(var(f"o{name}"))

    def _phased(self, name: str, size: int, kernel: int, pad: int, stride: int) -> None:
        steps = (pad + size - 1) // stride + 1
        self.space += [Axis(f"q{name}", steps), Axis(f"r{name}", stride)]
        self.taps.append(Axis(f"t{name}", -(-kernel // stride)))
        self.source.append(var(f"q{name}") - var(f"t{name}"))
        self.tap.append(var(f"t{name}") * stride + var(f"r{name}"))
        self.target.append(var(f"q{name}") * stride + var(f"r{name}") - pad)
