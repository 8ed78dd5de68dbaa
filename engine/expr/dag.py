"""Compute DAGs: what a search task computes, without any word on how.

A DAG is a list of stages over placeholders.  A stage fills one tensor: for every point of its space
axes it combines `body` over its reduction axes.  Indices are logical (batch, channels, rows, ...);
where elements lie in memory is the business of `engine.expr.layout`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from engine.expr.affine import Affine, var
from engine.expr.nodes import Binary, Expr, Unary, reads, walk

REDUCERS = {"sum": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
"""Reduction -> its neutral element."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop axis that runs over `range(extent)`."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An input of the DAG; `constant` if its values are known at compile time.

    `derive` names a compile-time transform of another constant: (transform, source constant).
    """

    name: str
    shape: tuple[int, ...]
    constant: bool = False
    derive: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One tensor and its computation.

    `reducer` is a key of REDUCERS or None.  `index` says which element of the tensor the point of
    the space axes fills (identity if None); points outside `shape` are dropped.
    `unroll` names axes whose values must be known when code is generated (constant transforms).
    """

    name: str
    axes: tuple[Axis, ...]
    body: Expr
    reduce_axes: tuple[Axis, ...] = ()
    reducer: str | None = None
    index: tuple[Affine, ...] | None = None
    out_shape: tuple[int, ...] | None = None
    unroll: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.out_shape or tuple(a.extent for a in self.axes)

    @property
    def store_index(self) -> tuple[Affine, ...]:
        return self.index or tuple(var(a.name) for a in self.axes)

    @property
    def extents(self) -> dict[str, int]:
        return {a.name: a.extent for a in self.axes + self.reduce_axes}

    @property
    def flops(self) -> int:
        """Floating-point operations of this stage; a multiply-add counts two."""
        ops = sum(isinstance(e, Binary | Unary) for e in walk(self.body)) + bool(self.reducer)
        return ops * prod(self.extents.values())

    def __str__(self) -> str:
        left = ", ".join(a.name for a in self.axes)
        if self.index is not None:
            left = ", ".join(str(i) for i in self.index)
        sign = {None: "=", "sum": "+=", "prod": "*="}.get(self.reducer, f"{self.reducer}=")
        return f"{self.name}({left}) {sign} {self.body}"


@dataclass(frozen=True)
class ComputeDag:
    """Placeholders, stages in topological order, and the names of the stages that are outputs.

    `algorithm` tells alternatives of one computation apart ("direct", "winograd4").
    `constants` gives small constant matrices that code generation may unroll.
    """

    placeholders: tuple[Placeholder, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    algorithm: str = "direct"
    constants: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        return next(s for s in self.stages if s.name == name)

    def placeholder(self, name: str) -> Placeholder:
        return next(p for p in self.placeholders if p.name == name)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {p.name: p.shape for p in self.placeholders}
        found.update({s.name: s.shape for s in self.stages})
        return found

    @property
    def flops(self) -> int:
        """Floating-point operations of the heaviest stage (the anchor)."""
        return max(s.flops for s in self.stages)

    @property
    def anchor(self) -> Stage:
        """The stage that dominates: the reduction with most operations, else the last stage."""
        reducing = [s for s in self.stages if s.reducer]
        return max(reducing, key=lambda s: s.flops) if reducing else self.stages[-1]

    def consumers(self, name: str) -> tuple[Stage, ...]:
        return tuple(s for s in self.stages if any(r.tensor == name for r in reads(s.body)))

    def __str__(self) -> str:
        lines = [
            f"{p.name} = PLACEHOLDER {list(p.shape)}{' constant' if p.constant else ''}"
            for p in self.placeholders
        ]
        return "\n".join(lines + [str(s) for s in self.stages])


def workload_key(dag: ComputeDag) -> str:
    """JSON list [hash of the DAG's text without shapes, shape of each placeholder and output...].

    Equal DAGs with equal shapes have equal keys.  Same form as in Ansor.
    """
    extents = [[a.extent for a in s.axes + s.reduce_axes] for s in dag.stages]
    text = re.sub(r"PLACEHOLDER \[.*?\]", "PLACEHOLDER", str(dag))
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    shapes = [list(p.shape) for p in dag.placeholders]
    outputs = [list(dag.stage(o).shape) for o in dag.outputs]
    loops = hashlib.md5(json.dumps(extents).encode(), usedforsecurity=False).hexdigest()[:8]
    return json.dumps([digest, *shapes, *outputs, loops], separators=(",", ":"))
