"""Loop nests: a compute DAG with every scheduling decision taken.

In: `engine.space.sketch` builds a Program from a DAG and knob values.  Out: `engine.codegen` turns
it into LLVM IR.  Notation: a level walks one axis in steps; `oc: 32, 16` means blocks of 32, then
tiles of 16.  Below the outer levels a register tile of space points is held in vector registers
while the reduction levels run; then the epilogue stages are applied and the tile is stored.

    for outer levels:                 # space; a split reduction goes between blocks and tiles
        acc[tile] = neutral           # from the second part of a split on: what is stored so far
        for reduction levels: acc[tile] = combine(acc[tile], body)
        store(epilogue(acc[tile]))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.expr import Affine, Axis, ComputeDag, Layout, Stage, var


@dataclass(frozen=True, slots=True)
class Level:
    """One loop over `axis` in steps of `step` elements; `unroll` copies the body instead."""

    axis: str
    step: int
    unroll: bool = False


@dataclass(frozen=True)
class Nest:
    """One stage's loops.

    `tile` gives points per space axis (for the vector axis: vectors of `lanes`).  `vector` is a
    space axis, or a reduction axis if `vector_reduces`, or None for scalar code.  `epilogue` stages
    follow the head point by point; `stores` names which of head and epilogue are written.  The
    first `blocks` outer levels are block loops.  `split` cuts a long reduction into parts that run
    around all tiles of a block, so that a part's operands stay in cache; partial sums wait in the
    tensor that is stored last.  `prefetch`: ask for constants ahead of their use.
    """

    stage: Stage
    epilogue: tuple[Stage, ...]
    stores: tuple[str, ...]
    vector: str | None
    lanes: int
    vector_reduces: bool
    outer: tuple[Level, ...]
    tile: Mapping[str, int]
    reduction: tuple[Level, ...]
    blocks: int = 0
    split: Level | None = None
    prefetch: bool = False

    def named(self) -> tuple[tuple[Level, str], ...]:
        """(level, name of its loop) of all levels in order: blocks, split, tiles, reduction."""
        counts: dict[str, int] = {}
        out = []
        middle = (self.split,) if self.split else ()
        for level in (*self.outer[: self.blocks], *middle, *self.outer[self.blocks :],
                      *self.reduction):  # fmt: skip
            number = counts.get(level.axis, 0)
            counts[level.axis] = number + 1
            out.append((level, f"{level.axis}.{number}"))
        return tuple(out)

    def sublevels(self) -> tuple[tuple[str, int], ...]:
        """(name, step) of every sub-loop in nest order: the levels, tile, lane."""
        out = [(name, level.step) for level, name in self.named()]
        for axis in self.stage.axes:
            if axis.name in self.tile:
                step = self.lanes if axis.name == self.vector else 1
                out.append((f"{axis.name}.t", step))
        if self.vector is not None:
            out.append((LANE, 1))
        return tuple(out)

    def axis_map(self, shared: tuple[Axis, ...] = ()) -> dict[str, Affine]:
        """Each axis of the head as an affine expression of sub-loops."""
        found: dict[str, Affine] = {a.name: var(a.name) for a in shared}
        for name, step in self.sublevels():
            axis = self.vector if name == LANE else name.rpartition(".")[0]
            assert axis is not None
            found[axis] = found.get(axis, Affine()) + var(name) * step
        for a in self.stage.axes + self.stage.reduce_axes:
            found.setdefault(a.name, Affine())
        return found


LANE = "@lane"
"""The sub-loop over the lanes of a vector."""


@dataclass(frozen=True)
class Region:
    """Nests between two barriers.

    With `shared` axes, threads split the points of those axes and run all nests for each point;
    otherwise there is one nest and threads split its first `parallel` outer levels.
    """

    nests: tuple[Nest, ...]
    shared: tuple[Axis, ...] = ()
    parallel: int = 1


@dataclass(frozen=True)
class Program:
    """A scheduled DAG.

    `inlined` stages are computed where they are read.  `temporaries` live in the workspace: per
    thread for those made and used inside one region with shared axes (their layout then leaves the
    shared axes out: stride 0), else shared by all threads.
    """

    dag: ComputeDag
    regions: tuple[Region, ...]
    inlined: Mapping[str, Stage] = field(default_factory=dict)
    temporaries: Mapping[str, tuple[Layout, bool]] = field(default_factory=dict)

    def __str__(self) -> str:
        from engine.space.printing import program_text

        return program_text(self)
