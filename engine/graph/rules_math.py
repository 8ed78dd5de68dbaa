"""Rules for arithmetic: elementwise operators, reductions, matrix products.

In: a call.  Out: values built of the dialect in `engine.graph.canonical`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from engine.graph.builder import Builder, Call, Result, Unsupported, rule
from engine.graph.dialect import dtype_of
from engine.graph.proto import HALF

_SAME = (
    "Sub", "Div", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
    "GreaterOrEqual", "Where", "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt",
    "Reciprocal", "Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan", "Asin",
    "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Softplus", "Not",
)  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Gelu": {"approximate": "none"},
    "Mod": {"fmod": 0},
}


@rule(*_SAME)
def same(b: Builder, c: Call) -> Result:
    return b.emit(c.op, *c.inputs)


@rule("PRelu")
def prelu(b: Builder, c: Call) -> Result:
    """The slope broadcasts to the input's shape, never the other way round."""
    x, slope = c.inputs
    check_broadcast(b, "slope", slope, b.shape(x))
    return b.emit("PRelu", x, slope)


def check_broadcast(b: Builder, what: str, name: str, shape: tuple[int, ...]) -> None:
    """Raises Unsupported unless the value broadcasts to the shape without widening it."""
    try:
        fits = np.broadcast_shapes(b.shape(name), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise Unsupported(f"the {what} {list(b.shape(name))} does not fit {list(shape)}")


@rule(*_DEFAULTS)
def with_defaults(b: Builder, c: Call) -> Result:
    return b.emit(c.op, *c.inputs, **{**_DEFAULTS[c.op], **c.attrs})


@rule("Add", "Mul", "Max", "Min", "Sum")
def chain(b: Builder, c: Call) -> Result:
    """op(a, b, c) --> op(op(a, b), c)"""
    op = "Add" if c.op == "Sum" else c.op
    return reduce(lambda left, right: b.emit(op, left, right), c.inputs)


@rule("Mean")
def mean(b: Builder, c: Call) -> Result:
    total = reduce(lambda left, right: b.emit("Add", left, right), c.inputs)
    return b.emit("Mul", total, b.like(total, 1.0 / len(c.inputs)))


@rule("Pow")
def power(b: Builder, c: Call) -> Result:
    base, exponent = c.inputs
    if b.dtype(base) != b.dtype(exponent) and "float" in b.dtype(base):
        exponent = b.emit("Cast", exponent, to=b.dtype(base))
    return b.emit("Pow", base, exponent)


@rule("Identity")
def identity(b: Builder, c: Call) -> Result:
    return c.inputs[0]


@rule("Cast", "CastLike")
def cast(b: Builder, c: Call) -> Result:
    to = dtype_of(c.attrs["to"]) if c.op == "Cast" else b.dtype(c.inputs[1])
    to = "float32" if to in HALF else to
    return c.inputs[0] if b.dtype(c.inputs[0]) == to else b.emit("Cast", c.inputs[0], to=to)


@rule("HardSwish")
def hard_swish(b: Builder, c: Call) -> Result:
    gate = b.emit("HardSigmoid", c.inputs[0], alpha=1.0 / 6.0, beta=0.5)
    return b.emit("Mul", c.inputs[0], gate)


@rule("Clip")
def clip(b: Builder, c: Call) -> Result:
    """Constant bounds become attributes, others a Max and a Min; no bound at all goes away."""
    x, limits = c.inputs[0], _limits(b.dtype(c.inputs[0]))
    if c.opset < 11:
        bounds = [c.attr("min", limits[0]), c.attr("max", limits[1])]
    else:
        names = (c.input(1), c.input(2))
        if any(name and b.const(name) is None for name in names):
            low = b.emit("Max", x, names[0]) if names[0] else x
            return b.emit("Min", low, names[1]) if names[1] else low
        bounds = [_scalar(b, name, limit) for name, limit in zip(names, limits, strict=True)]
    if tuple(bounds) == limits:
        return x
    return b.emit("Clip", x, min=bounds[0], max=bounds[1])


def _limits(dtype: str) -> tuple[Any, Any]:
    if "float" in dtype:
        return -np.inf, np.inf
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _scalar(b: Builder, name: str, default: Any) -> Any:
    array = b.const(name)
    return default if array is None else array.reshape(-1)[0].item()


@rule("Dropout")
def dropout(b: Builder, c: Call) -> Result:
    """Inference: the input itself; the mask keeps everything."""
    training = b.const(c.input(2)) if c.input(2) else np.zeros(1)
    if training is None or training.any():
        raise Unsupported("training mode is not supported")
    if not c.uses(1):
        return c.inputs[0]
    kind = bool if c.opset >= 10 else b.dtype(c.inputs[0])
    one = b.constant(np.ones((), kind))
    return c.inputs[0], b.emit("Expand", one, shape=b.shape(c.inputs[0]))


# matrix products -------------------------------------------------------------------------------
@rule("Gemm")
def gemm(b: Builder, c: Call) -> Result:
    """alpha * A' @ B' + beta * C --> MatMul, Add; factors go into constants where there are any"""
    left, right, bias = c.inputs[0], c.inputs[1], c.input(2)
    left = b.transpose(left, (1, 0)) if c.attr("transA", 0) else left
    right = b.transpose(right, (1, 0)) if c.attr("transB", 0) else right
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    if alpha != 1.0 and b.const(left) is not None:
        left = b.emit("Mul", left, b.like(left, alpha))
    elif alpha != 1.0:
        right = b.emit("Mul", right, b.like(right, alpha))
    y = b.emit("MatMul", left, right)
    if not bias or beta == 0.0:
        return y
    check_broadcast(b, "bias", bias, b.shape(y))
    return b.emit("Add", y, bias if beta == 1.0 else b.emit("Mul", bias, b.like(bias, beta)))


@rule("MatMul")
def matmul(b: Builder, c: Call) -> Result:
    """Rank-1 operands become matrices, and the product loses that axis again."""
    left, right = c.inputs
    first, second = b.rank(left) == 1, b.rank(right) == 1
    left = b.reshape(left, (1, *b.shape(left))) if first else left
    right = b.reshape(right, (*b.shape(right), 1)) if second else right
    y = b.emit("MatMul", left, right)
    shape = b.shape(y)
    shape = shape[:-1] if second else shape
    if first:
        shape = shape[:-1] if second else (*shape[:-2], shape[-1])
    return b.reshape(y, shape)


# reductions ------------------------------------------------------------------------------------
@rule(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare",
)  # fmt: skip
def reduction(b: Builder, c: Call) -> Result:
    """Axes become an attribute; norms become elementwise operators around a ReduceSum."""
    x = c.inputs[0]
    if c.op in ("ReduceL2", "ReduceSumSquare"):
        x = b.emit("Mul", x, x)
    if c.op == "ReduceL1":
        x = b.emit("Abs", x)
    axes = _axes(b, c, b.rank(x))
    plain = {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"}
    op = "ReduceSum" if c.op in plain else c.op
    keepdims = int(c.attr("keepdims", 1))
    y = x if not axes and op != "ReduceLogSumExp" else b.emit(op, x, axes=axes, keepdims=keepdims)
    after = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log"}.get(c.op)
    return b.emit(after, y) if after else y


def _axes(b: Builder, c: Call, rank: int) -> tuple[int, ...]:
    """Empty where nothing is reduced."""
    by_input = 13 if c.op == "ReduceSum" else 18
    if c.opset >= by_input:
        axes = b.ints(c.input(1), "list of axes") if c.input(1) else ()
    else:
        axes = tuple(c.attr("axes", ()))
    if not axes:
        return () if c.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis_of(a, rank) for a in axes}))


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front; raises Unsupported outside the rank."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank if rank else 0


@rule("ArgMax", "ArgMin")
def arg_extreme(b: Builder, c: Call) -> Result:
    return b.emit(
        c.op,
        c.inputs[0],
        axis=axis_of(c.attr("axis", 0), b.rank(c.inputs[0])),
        keepdims=int(c.attr("keepdims", 1)),
        select_last_index=int(c.attr("select_last_index", 0)),
    )


@rule("CumSum")
def cumulative(b: Builder, c: Call) -> Result:
    axis = axis_of(b.ints(c.inputs[1], "axis")[0], b.rank(c.inputs[0]))
    position = b.constant(np.asarray(axis, np.int64))
    flags = {k: int(c.attr(k, 0)) for k in ("exclusive", "reverse")}
    return b.emit("CumSum", c.inputs[0], position, **flags)


@rule("Softmax", "LogSoftmax", "Hardmax")
def softmax(b: Builder, c: Call) -> Result:
    """Before operator set 13 everything from `axis` on is one axis."""
    x, shape = c.inputs[0], b.shape(c.inputs[0])
    axis = axis_of(c.attr("axis", -1 if c.opset >= 13 else 1), len(shape))
    if c.opset >= 13 or axis == len(shape) - 1:
        return b.emit(c.op, x, axis=axis)
    rows = (int(np.prod(shape[:axis], dtype=np.int64)), int(np.prod(shape[axis:], dtype=np.int64)))
    return b.reshape(b.emit(c.op, b.reshape(x, rows), axis=1), shape)
