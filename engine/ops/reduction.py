"""Reductions over any axes.

In: one operand; `axes` sorted, `keepdims`.  Out: a stage per combination and, where the result is
not the combination itself, an elementwise stage over the reduced shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from engine.expr import Affine, Axis, Const, Expr, Read, Stage, Unary, var
from engine.ops.registry import Call, Case, Kind, Stages, operator

_CASES = (
    Case(((2, 3, 4),), {"axes": (2,), "keepdims": 1}),
    Case(((2, 3, 4),), {"axes": (1,), "keepdims": 0}),
    Case(((2, 3, 4, 5),), {"axes": (2, 3), "keepdims": 1}),
    Case(((3, 4),), {"axes": (0, 1), "keepdims": 0}),
)


def reduced(
    call: Call, name: str, reducer: str, body: Callable[[Expr], Expr] = lambda x: x
) -> Stage:
    """`reducer` over the node's axes of `body` of each element."""
    data = call.operand(0)
    gone, keep = set(call.ints("axes")), bool(call.attrs["keepdims"])
    spare = iter(call.axes)
    axes, inner, index = [], [], []
    for position, extent in enumerate(data.shape):
        if position in gone:
            inner.append(Axis(f"k{position}", extent))
            index.append(var(f"k{position}"))
            if keep:
                axes.append(Axis(next(spare), 1))
        else:
            axes.append(Axis(next(spare), extent))
            index.append(var(axes[-1].name))
    value = body(Read(data.tensor, tuple(index)))
    return Stage(call.namer.unique(name), tuple(axes), value, tuple(inner), reducer)


def at_own(stage: Stage) -> Read:
    """The element of a stage at the same point."""
    return Read(stage.name, tuple(var(a.name) for a in stage.axes))


def elementwise(call: Call, name: str, like: Stage, body: Expr) -> Stage:
    """A stage over the same axes as another."""
    return Stage(call.namer.unique(name), like.axes, body)


def _enter(op: str, reducer: str) -> None:
    @operator(op, Kind.ROWS, cases=_CASES)
    def declare(call: Call) -> Stages | None:
        if not call.ints("axes"):
            return None
        return (reduced(call, f"reduce_{reducer}", reducer),)


for _op, _reducer in {
    "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
}.items():  # fmt: skip
    _enter(_op, _reducer)


@operator("ReduceMean", Kind.ROWS, cases=_CASES)
def reduce_mean(call: Call) -> Stages | None:
    """ReduceMean: a sum and its scaling."""
    axes = call.ints("axes")
    if not axes:
        return None
    total = reduced(call, "reduce_sum", "sum")
    size = prod(call.operand(0).shape[a] for a in axes)
    return total, elementwise(call, "reduce_mean", total, at_own(total) * Const(1.0 / size))


@operator("ReduceLogSumExp", Kind.ROWS, cases=_CASES)
def reduce_log_sum_exp(call: Call) -> Stages | None:
    """log(sum(exp(x - max))) + max"""
    axes = call.ints("axes")
    if not axes:
        return None
    high = reduced(call, "reduce_max", "max")
    peak = at_own(high)
    total = reduced(call, "reduce_sum", "sum", lambda x: Unary("exp", x - peak))
    result = Unary("log", at_own(total)) + at_own(high)
    return high, total, elementwise(call, "reduce_log_sum_exp", total, result)


def row_axes(call: Call, first: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """(outer axes, axes from `first` on) of the output."""
    axes = tuple(Axis(a, e) for a, e in zip(call.axes, call.shape, strict=True))
    return axes[:first], axes[first:]


def here(axes: Sequence[Axis]) -> tuple[Affine, ...]:
    """The point of those axes."""
    return tuple(var(a.name) for a in axes)
