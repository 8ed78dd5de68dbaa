"""What an operator's declaration sees, and the table of all declarations.

An operator is one function with one row above it:

    @operator("Relu", Kind.ELEMENTWISE, cases=(Case(((2, 3),)),))
    def declare_relu(call: Call) -> Stages: ...

In: a `Call` (attributes explicit, operands, output shape).  Out: stages in topological order, of
which the last is the node's output; None if these attributes have no compute declaration, so that
the node becomes a host call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.expr import Affine, Const, Expr, Read, Stage, var

Stages = tuple[Stage, ...]
Array = NDArray[Any]

DEFAULT_AXES: dict[int, tuple[str, ...]] = {
    0: (), 1: ("i",), 2: ("m", "n"), 3: ("b", "m", "n"), 4: ("n", "c", "h", "w"),
    5: ("n", "c", "d", "h", "w"),
}  # fmt: skip
"""Names of a tensor's axes by rank, where no producer names them."""

SPATIAL_AXES = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Suffixes of the spatial axes of convolutions and pools by their number."""


class Kind(StrEnum):
    """How a node may be grouped with its neighbours."""

    WINDOW = "window"
    """Reduces over windows or channels of a spatial tensor (convolutions, pools)."""
    MATRIX = "matrix"
    """Matrix products."""
    ROWS = "rows"
    """Reductions and normalisations of plain tensors."""
    ELEMENTWISE = "elementwise"
    """Each output element from single elements, with broadcasting."""
    COPY = "copy"
    """Moves elements without arithmetic."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of the DAG; `array` holds a constant's values.

    `nonnegative` promises that no element is below zero.
    """

    tensor: str
    shape: tuple[int, ...]
    array: Array | None = None
    nonnegative: bool = False

    @property
    def constant(self) -> bool:
        return self.array is not None

    @property
    def scalar(self) -> float | None:
        """The number that a constant of one element is."""
        if self.array is None or self.array.size != 1:
            return None
        return float(self.array.reshape(-1)[0])


class Namer(Protocol):
    """The DAG under construction, as declarations see it."""

    def unique(self, base: str) -> str:
        """A stage name that the DAG does not hold yet."""
        ...

    def constant(self, base: str, array: Array) -> Operand:
        """A new constant placeholder."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One node; omitted inputs are None, `axes` names the axes of the output."""

    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[Operand | None, ...]
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    namer: Namer

    def operand(self, position: int) -> Operand:
        found = self.inputs[position]
        assert found is not None
        return found

    def ints(self, key: str) -> tuple[int, ...]:
        return tuple(int(v) for v in self.attrs[key])

    def number(self, key: str) -> float:
        return float(self.attrs[key])

    def read(self, position: int, axes: Sequence[str] = (), shape: Sequence[int] = ()) -> Expr:
        """The operand's element at a point of `axes`, broadcast as NumPy does."""
        return broadcast_read(self.operand(position), axes or self.axes, shape or self.shape)


def broadcast_read(operand: Operand, axes: Sequence[str], shape: Sequence[int]) -> Expr:
    """The element at the point `axes` of a tensor of `shape`; a number for a scalar constant."""
    if operand.scalar is not None:
        return Const(operand.scalar)
    lead = len(axes) - len(operand.shape)
    index = tuple(
        var(name) if size == full else Affine()
        for name, size, full in zip(axes[lead:], operand.shape, shape[lead:], strict=True)
    )
    if operand.array is not None and operand.array.ndim < len(operand.shape):
        index = tuple(i for i, size in zip(index, operand.shape, strict=True) if size > 1)
    return Read(operand.tensor, index)


def axis_names(rank: int) -> tuple[str, ...]:
    """Default axis names of a tensor of that rank."""
    return DEFAULT_AXES.get(rank) or tuple(f"i{k}" for k in range(rank))


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs to check a declaration with: shapes (None: omitted), attributes, constant inputs.

    Values are drawn from `low` to `high`.
    """

    shapes: tuple[tuple[int, ...] | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    low: float = -2.0
    high: float = 2.0

    def arrays(self, rng: np.random.Generator) -> list[Array | None]:
        """One random float32 array per input."""
        return [
            None if s is None else rng.uniform(self.low, self.high, s).astype(np.float32)
            for s in self.shapes
        ]


Declare = Callable[[Call], Stages | None]


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table; `roles` names the placeholders of the inputs."""

    name: str
    kind: Kind
    declare: Declare
    roles: tuple[str, ...]
    cases: tuple[Case, ...]


OPERATORS: dict[str, Operator] = {}
"""Registry: ONNX operator -> its row."""


def operator(
    name: str, kind: Kind, *, cases: tuple[Case, ...], roles: tuple[str, ...] = ("data",)
) -> Callable[[Declare], Declare]:
    """Enters the function that follows as the declaration of ONNX operator `name`."""

    def enter(declare: Declare) -> Declare:
        assert name not in OPERATORS, name
        OPERATORS[name] = Operator(name, kind, declare, roles, cases)
        return declare

    return enter
