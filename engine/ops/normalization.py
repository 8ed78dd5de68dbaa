"""Normalisations along one or several axes: DAGs of several stages over the same rows.

In: data of any rank.  Out: stages of reductions over the rows and elementwise stages; the last one
has the data's shape.
"""

from __future__ import annotations

from math import prod

from engine.expr import Affine, Axis, Binary, Const, Expr, Read, Stage, Unary, var
from engine.ops.reduction import here, row_axes
from engine.ops.registry import Call, Case, Kind, Operand, Stages, operator

_CASES = (
    Case(((2, 5),), {"axis": 1}),
    Case(((2, 3, 4, 5),), {"axis": 1}),
    Case(((2, 3, 7),), {"axis": 2}, low=-40.0, high=40.0),
)


def _peak_and_rows(call: Call) -> tuple[Stage, Expr, tuple[Axis, ...], Axis, tuple[Axis, ...]]:
    """The maximum of each row, an element minus it, all axes, the row axis and the others."""
    data, at = call.operand(0), int(call.attrs["axis"])
    axes, _ = row_axes(call, len(call.shape))
    row, outer = axes[at], axes[:at] + axes[at + 1 :]
    element = Read(data.tensor, here(axes))
    peak = Stage(call.namer.unique("softmax_max"), outer, element, (row,), "max")
    return peak, element - Read(peak.name, here(outer)), axes, row, outer


@operator("Softmax", Kind.ROWS, cases=_CASES)
def softmax(call: Call) -> Stages:
    """exp(x - max) / sum(exp(x - max))"""
    peak, centred, axes, row, outer = _peak_and_rows(call)
    power = Stage(call.namer.unique("softmax_exp"), axes, Unary("exp", centred))
    element = Read(power.name, here(axes))
    total = Stage(call.namer.unique("softmax_sum"), outer, element, (row,), "sum")
    result = element / Read(total.name, here(outer))
    return peak, power, total, Stage(call.namer.unique("softmax"), axes, result)


@operator("LogSoftmax", Kind.ROWS, cases=_CASES)
def log_softmax(call: Call) -> Stages:
    """x - max - log(sum(exp(x - max)))"""
    peak, centred, axes, row, outer = _peak_and_rows(call)
    total = Stage(call.namer.unique("softmax_sum"), outer, Unary("exp", centred), (row,), "sum")
    result = centred - Unary("log", Read(total.name, here(outer)))
    return peak, total, Stage(call.namer.unique("log_softmax"), axes, result)


@operator(
    "LayerNormalization",
    Kind.ROWS,
    roles=("data", "scale", "bias"),
    cases=(
        Case(((2, 3, 8), (8,), (8,)), {"axis": 2, "epsilon": 1e-5}, constant=(1, 2)),
        Case(((2, 8), (8,)), {"axis": 1, "epsilon": 1e-3}, constant=(1,)),
        Case(((2, 3, 8), (3, 8), (3, 8)), {"axis": 1, "epsilon": 1e-5}, constant=(1, 2)),
    ),
)
def layer_normalization(call: Call) -> Stages:
    """(x - mean) / sqrt(var + epsilon) * scale + bias over the axes from `axis` on."""
    data, first = call.operand(0), int(call.attrs["axis"])
    outer, row = row_axes(call, first)
    axes, size = outer + row, prod(a.extent for a in row)
    element = Read(data.tensor, here(axes))
    total = Stage(call.namer.unique("mean_sum"), outer, element, row, "sum")
    mean = Stage(
        call.namer.unique("mean"), outer, Read(total.name, here(outer)) * Const(1.0 / size)
    )
    centred = element - Read(mean.name, here(outer))
    squares = Stage(call.namer.unique("var_sum"), outer, centred * centred, row, "sum")
    variance = Read(squares.name, here(outer)) * Const(1.0 / size) + call.number("epsilon")
    factor = Stage(
        call.namer.unique("inv_std"), outer, Unary("reciprocal", Unary("sqrt", variance))
    )
    result = centred * Read(factor.name, here(outer)) * call.read(1)
    if len(call.inputs) > 2 and call.inputs[2] is not None:
        result = result + call.read(2)
    return total, mean, squares, factor, Stage(call.namer.unique("layer_norm"), axes, result)


@operator(
    "GroupNormalization",
    Kind.ROWS,
    roles=("data", "scale", "bias"),
    cases=(
        Case(((2, 6, 4, 5), (6,), (6,)), {"num_groups": 3, "epsilon": 1e-5}, constant=(1, 2)),
        Case(((1, 4, 7), (4,), (4,)), {"num_groups": 1, "epsilon": 1e-3}, constant=(1, 2)),
    ),
)
def group_normalization(call: Call) -> Stages | None:
    """Mean and variance over groups of channels and all spatial axes; scale and bias [C]."""
    data, groups = call.operand(0), int(call.attrs["num_groups"])
    if call.operand(1).shape != (data.shape[1],):
        return None  # before operator set 21 the scale had one element for each group
    per_group, spatial = data.shape[1] // groups, data.shape[2:]
    outer = (Axis("n", data.shape[0]), Axis("g", groups))
    row = (Axis("cg", per_group), *(Axis(f"s{i}", e) for i, e in enumerate(spatial)))
    channel, size = var("g") * per_group + var("cg"), per_group * prod(spatial)
    index = (var("n"), channel, *here(row[1:]))
    element = Read(data.tensor, index)
    total = Stage(call.namer.unique("mean_sum"), outer, element, row, "sum")
    mean = Stage(
        call.namer.unique("mean"), outer, Read(total.name, here(outer)) * Const(1.0 / size)
    )
    centred = element - Read(mean.name, here(outer))
    squares = Stage(call.namer.unique("var_sum"), outer, centred * centred, row, "sum")
    variance = Read(squares.name, here(outer)) * Const(1.0 / size)
    factor = Stage(
        call.namer.unique("inv_std"),
        outer,
        Unary("reciprocal", Unary("sqrt", variance + float(call.attrs.get("epsilon", 1e-5)))),
    )
    scale, bias = (_per_channel(call.operand(i), channel) for i in (1, 2))
    result = centred * Read(factor.name, here(outer)) * scale + bias
    name = call.namer.unique("group_norm")
    last = Stage(name, outer + row, result, index=index, out_shape=data.shape)
    return total, mean, squares, factor, last


@operator(
    "LRN",
    Kind.ROWS,
    cases=(
        Case(((2, 9, 4, 5),), {"size": 5, "alpha": 0.3, "beta": 0.75, "bias": 1.0}),
        Case(((1, 3, 7, 2),), {"size": 3, "alpha": 0.01, "beta": 0.5, "bias": 2.0}),
    ),
)
def local_response(call: Call) -> Stages:
    """x / (bias + alpha * mean of squares of `size` channels around) ** beta

    An even size reaches one channel further up than down.
    """
    data, size = call.operand(0), int(call.attrs["size"])
    axes, _ = row_axes(call, len(call.shape))
    first, channel, *rest = here(axes)
    near = channel + var("k") - (size - 1) // 2
    fill = 0.0 if size > 1 else None
    element = Read(data.tensor, (first, near, *rest), fill)
    name = call.namer.unique("lrn_sum")
    total = Stage(name, axes, element * element, (Axis("k", size),), "sum")
    mean = Read(total.name, here(axes)) * Const(call.number("alpha") / size)
    scale = Binary("pow", mean + call.number("bias"), Const(-call.number("beta")))
    result = Read(data.tensor, here(axes)) * scale
    return total, Stage(call.namer.unique("lrn"), axes, result)


def _per_channel(operand: Operand, channel: Affine) -> Expr:
    number = operand.scalar
    return Read(operand.tensor, (channel,)) if number is None else Const(number)
