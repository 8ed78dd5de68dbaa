"""Elementwise operators with NumPy broadcasting: one table row each.

In: one or two operands of any shape.  Out: one stage over the output's axes whose body is the row's
expression.  Constants of one element become numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from engine.expr import Axis, Binary, Compare, Const, Expr, Select, Stage, Unary, relu
from engine.ops.registry import Call, Case, Kind, Stages, operator

Body = Callable[..., Expr]


def _maximum(x: Expr, y: Expr) -> Expr:
    return Binary("max", x, y)


def _minimum(x: Expr, y: Expr) -> Expr:
    return Binary("min", x, y)


def _power(x: Expr, y: Expr) -> Expr:
    exponent = y.value if isinstance(y, Const) else None
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    if exponent == 1.0:
        return x
    if exponent == -1.0:
        return Unary("reciprocal", x)
    return Binary("pow", x, y)


def _clip(x: Expr, call: Call) -> Expr:
    low, high = call.number("min"), call.number("max")
    x = x if low == -math.inf else _maximum(x, Const(low))
    return x if high == math.inf else _minimum(x, Const(high))


def _below_zero(x: Expr, below: Expr) -> Expr:
    """`below` where x < 0, else x."""
    return Select(Compare("lt", x, Const(0.0)), below, x)


def _elu(x: Expr, call: Call) -> Expr:
    return _below_zero(x, (Unary("exp", x) - 1.0) * call.number("alpha"))


def _hard_sigmoid(x: Expr, call: Call) -> Expr:
    line = x * call.number("alpha") + call.number("beta")
    return _maximum(_minimum(line, Const(1.0)), Const(0.0))


def _softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow."""
    return relu(x) + Unary("log", Unary("exp", Unary("neg", Unary("abs", x))) + 1.0)


def _gelu(x: Expr, call: Call) -> Expr:
    if call.attrs.get("approximate", "none") == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
        return x * 0.5 * (Unary("tanh", inner) + 1.0)
    return x * 0.5 * (Unary("erf", x * math.sqrt(0.5)) + 1.0)


_BROADCAST = (
    Case(((2, 3, 4, 5), (2, 3, 4, 5)), low=0.5),
    Case(((2, 3, 4, 5), (3, 1, 1)), constant=(1,), low=0.5),
    Case(((2, 3, 1, 5), (2, 1, 4, 5)), low=0.5),
    Case(((7,), (2, 3, 7)), low=0.5),
    Case(((2, 3), (1,)), constant=(1,), low=0.5),
    Case(((1, 1), (2, 3)), constant=(0,), low=0.5),
)
_SIGNED = (Case(((2, 3, 4, 5),)), Case(((7,),)), Case(((1, 4, 6),), low=-30.0, high=30.0))
_POSITIVE = (Case(((2, 3, 4, 5),), low=0.1), Case(((7,),), low=0.1, high=50.0))

BINARY: dict[str, Body] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": lambda x, y: x / y,
    "Max": _maximum,
    "Min": _minimum,
    "Pow": _power,
    "PRelu": lambda x, slope: _below_zero(x, x * slope),
}
UNARY: dict[str, tuple[Body, tuple[Case, ...]]] = {
    "Relu": (relu, _SIGNED),
    "Sigmoid": (lambda x: Unary("sigmoid", x), _SIGNED),
    "Tanh": (lambda x: Unary("tanh", x), _SIGNED),
    "Erf": (lambda x: Unary("erf", x), _SIGNED),
    "Exp": (lambda x: Unary("exp", x), _SIGNED[:2]),
    "Abs": (lambda x: Unary("abs", x), _SIGNED),
    "Neg": (lambda x: Unary("neg", x), _SIGNED),
    "Sign": (lambda x: Unary("sign", x), _SIGNED),
    "Floor": (lambda x: Unary("floor", x), _SIGNED),
    "Ceil": (lambda x: Unary("ceil", x), _SIGNED),
    "Round": (lambda x: Unary("round", x), _SIGNED),
    "Sin": (lambda x: Unary("sin", x), _SIGNED[:2]),
    "Cos": (lambda x: Unary("cos", x), _SIGNED[:2]),
    "Log": (lambda x: Unary("log", x), _POSITIVE),
    "Sqrt": (lambda x: Unary("sqrt", x), _POSITIVE),
    "Reciprocal": (lambda x: Unary("reciprocal", x), _POSITIVE),
    "Softplus": (_softplus, _SIGNED),
}
WITH_ATTRIBUTES: dict[str, tuple[Callable[[Expr, Call], Expr], tuple[dict[str, Any], ...]]] = {
    "LeakyRelu": (
        lambda x, call: _below_zero(x, x * call.number("alpha")),
        ({"alpha": 0.01}, {"alpha": 0.3}),
    ),
    "Elu": (_elu, ({"alpha": 1.0}, {"alpha": 0.5})),
    "HardSigmoid": (_hard_sigmoid, ({"alpha": 0.2, "beta": 0.5}, {"alpha": 1 / 6, "beta": 0.5})),
    "Clip": (
        _clip,
        (
            {"min": 0.0, "max": 6.0},
            {"min": -math.inf, "max": 1.5},
            {"min": -0.25, "max": math.inf},
        ),
    ),
    "Gelu": (_gelu, ({"approximate": "none"}, {"approximate": "tanh"})),
}
EPILOGUE = {"Mul": "multiply", "Sub": "subtract", "Div": "divide", "Max": "maximum",
            "Min": "minimum", "LeakyRelu": "leaky_relu", "HardSigmoid": "hard_sigmoid"}  # fmt: skip
"""Printed names that are not the operator's own in lower case."""


def stage_name(op: str) -> str:
    """The printed name of an elementwise operator."""
    return EPILOGUE.get(op, op.lower())


def _stage(call: Call, body: Expr) -> Stages:
    axes = tuple(Axis(a, e) for a, e in zip(call.axes, call.shape, strict=True))
    return (Stage(call.namer.unique(stage_name(call.op)), axes, body),)


def _enter_binary(name: str, body: Body) -> None:
    @operator(name, Kind.ELEMENTWISE, roles=("data", "other"), cases=_BROADCAST)
    def declare(call: Call) -> Stages:
        return _stage(call, body(call.read(0), call.read(1)))


def _enter_unary(name: str, body: Body, cases: tuple[Case, ...]) -> None:
    @operator(name, Kind.ELEMENTWISE, cases=cases)
    def declare(call: Call) -> Stages:
        return _stage(call, body(call.read(0)))


def _enter_attributes(
    name: str, body: Callable[[Expr, Call], Expr], attrs: tuple[dict[str, Any], ...]
) -> None:
    cases = tuple(Case(((2, 3, 4, 5),), a, low=-8.0, high=8.0) for a in attrs)

    @operator(name, Kind.ELEMENTWISE, cases=cases)
    def declare(call: Call) -> Stages:
        return _stage(call, body(call.read(0), call))


for _name, _body in BINARY.items():
    _enter_binary(_name, _body)
for _name, (_body, _cases) in UNARY.items():
    _enter_unary(_name, _body, _cases)
for _name, (_expr, _attributes) in WITH_ATTRIBUTES.items():
    _enter_attributes(_name, _expr, _attributes)
