"""Scalar expressions: the right-hand side of a compute declaration.

Values are float32; comparisons give truth values that only `Select` takes.  `Read` is the only leaf
that touches memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from engine.expr.affine import Affine

UNARY = (
    "neg", "abs", "exp", "log", "sqrt", "reciprocal", "tanh", "erf", "sigmoid",
    "floor", "ceil", "round", "sign", "sin", "cos",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "max", "min", "pow")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
_SIGN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">",
         "ge": ">=", "eq": "==", "ne": "!="}  # fmt: skip


class Expr:
    """Base of all scalar expressions; supports + - * / with expressions and numbers."""

    __slots__ = ()

    def __add__(self, other: Expr | float) -> Expr:
        return Binary("add", self, as_expr(other))

    def __radd__(self, other: float) -> Expr:
        return Binary("add", as_expr(other), self)

    def __sub__(self, other: Expr | float) -> Expr:
        return Binary("sub", self, as_expr(other))

    def __rsub__(self, other: float) -> Expr:
        return Binary("sub", as_expr(other), self)

    def __mul__(self, other: Expr | float) -> Expr:
        return Binary("mul", self, as_expr(other))

    def __rmul__(self, other: float) -> Expr:
        return Binary("mul", as_expr(other), self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return Binary("div", self, as_expr(other))

    def __rtruediv__(self, other: float) -> Expr:
        return Binary("div", as_expr(other), self)


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A number."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Read(Expr):
    """An element of a tensor; outside it gives `fill` (None: it is never outside)."""

    tensor: str
    index: tuple[Affine, ...]
    fill: float | None = None

    def __str__(self) -> str:
        inside = ", ".join(str(i) for i in self.index)
        return (
            f"{self.tensor}[{inside}]"
            if self.fill is None
            else (f"{self.tensor}[{inside} | else {self.fill:g}]")
        )


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """`op` of UNARY applied to one value."""

    op: str
    x: Expr

    def __str__(self) -> str:
        return f"{self.op}({self.x})"


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`op` of BINARY applied to two values."""

    op: str
    x: Expr
    y: Expr

    def __str__(self) -> str:
        sign = _SIGN.get(self.op)
        return f"({self.x} {sign} {self.y})" if sign else f"{self.op}({self.x}, {self.y})"


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """A truth value; NaN compares false except with "ne"."""

    op: str
    x: Expr
    y: Expr

    def __str__(self) -> str:
        return f"({self.x} {_SIGN[self.op]} {self.y})"


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """`x` where `condition` holds, else `y`."""

    condition: Compare
    x: Expr
    y: Expr

    def __str__(self) -> str:
        return f"select({self.condition}, {self.x}, {self.y})"


def as_expr(value: Expr | float) -> Expr:
    return value if isinstance(value, Expr) else Const(float(value))


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Unary(_, x):
            return (x,)
        case Binary(_, x, y) | Compare(_, x, y):
            return (x, y)
        case Select(c, x, y):
            return (c, x, y)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all below it, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def reads(expr: Expr) -> tuple[Read, ...]:
    return tuple(e for e in walk(expr) if isinstance(e, Read))


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with every node for which `leaf` answers replaced, top down."""
    new = leaf(expr)
    if new is not None:
        return new
    match expr:
        case Unary(op, x):
            return Unary(op, rewrite(x, leaf))
        case Binary(op, x, y):
            return Binary(op, rewrite(x, leaf), rewrite(y, leaf))
        case Compare(op, x, y):
            return Compare(op, rewrite(x, leaf), rewrite(y, leaf))
        case Select(c, x, y):
            condition = rewrite(c, leaf)
            assert isinstance(condition, Compare)
            return Select(condition, rewrite(x, leaf), rewrite(y, leaf))
    return expr


def relu(x: Expr) -> Expr:
    return Binary("max", x, Const(0.0))


def total(values: Sequence[Expr]) -> Expr:
    out = values[0]
    for value in values[1:]:
        out = out + value
    return out
