"""Sketches: a skeleton with named knobs; a population is an integer matrix (candidates x knobs).

In: a workload and a target.  Out: programs for the code generator, features for the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from engine.expr import ComputeDag, row_major
from engine.graph.task import Workload
from engine.records import Schedule
from engine.space import features as feature_module
from engine.space.algorithms import alternatives
from engine.space.nest import Program, Region
from engine.space.rules import derive
from engine.space.skeleton import Skeleton
from engine.space.tiling import Knob, Tiling
from engine.target import Target

Matrix = NDArray[np.int64]


@dataclass(frozen=True)
class Sketch:
    """One structure of loops for one workload; rows of knob values make it a schedule."""

    name: str
    skeleton: Skeleton
    threads: int

    @cached_property
    def tilings(self) -> tuple[Tiling, ...]:
        return tuple(Tiling(self.skeleton, g, self.threads) for g in self.skeleton.groups)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return tuple(k for t in self.tilings for k in t.knobs)

    @cached_property
    def size(self) -> int:
        """Points of the space, legal or not."""
        return prod(len(k.values) for k in self.knobs)

    @property
    def dag(self) -> ComputeDag:
        return self.skeleton.dag

    def columns(self, matrix: Matrix) -> dict[str, Matrix]:
        return {k.name: matrix[:, i] for i, k in enumerate(self.knobs)}

    def valid(self, matrix: Matrix) -> NDArray[np.bool_]:
        """Which rows (n, knobs) are legal and not hopeless: shape (n,)."""
        matrix = np.atleast_2d(matrix)
        columns, n = self.columns(matrix), len(matrix)
        ok = np.ones(n, dtype=bool)
        for tiling in self.tilings:
            ok &= tiling.valid(columns, n)
        return ok

    def features(self, matrix: Matrix, threads: int | None = None) -> NDArray[np.float32]:
        """What the machine sees of each row: shape (n, len(FEATURES))."""
        return feature_module.features(self, np.atleast_2d(matrix))

    @cached_property
    def _default(self) -> Matrix:
        """The best of a fixed sample by the machine model; no measurement needed."""
        rng = np.random.default_rng(0)
        rows = (
            np.stack([rng.choice(np.array(k.values), 2048) for k in self.knobs], axis=1)
            if (self.knobs)
            else np.zeros((1, 0), dtype=np.int64)
        )
        rows = rows.astype(np.int64)
        legal = rows[self.valid(rows)]
        if not len(legal):
            return np.array([min(k.values) for k in self.knobs], dtype=np.int64)
        seconds = feature_module.prior(self.features(legal), self.skeleton.target)
        best: Matrix = legal[int(np.argmin(seconds))]
        return best

    def default(self) -> Matrix:
        """A sensible row, shape (knobs,)."""
        return self._default.copy()

    def schedule(self, row: Matrix) -> Schedule:
        return Schedule(self.name, {k.name: int(v) for k, v in zip(self.knobs, row, strict=True)})

    def row(self, schedule: Schedule) -> Matrix | None:
        """The row of a schedule; None if it belongs to another sketch, has other knobs, or asks for
        a register tile far beyond the registers."""
        if schedule.sketch != self.name or set(schedule.knobs) != {k.name for k in self.knobs}:
            return None
        row = np.array([schedule.knobs[k.name] for k in self.knobs], dtype=np.int64)
        legal = all(v in k.values for v, k in zip(row, self.knobs, strict=True))
        columns = self.columns(row[None])
        return row if legal and all(t.fits(columns, 1)[0] for t in self.tilings) else None

    def program(self, schedule: Schedule) -> Program:
        """All loops of a schedule of this sketch."""
        nests = [t.nest(schedule.knobs) for t in self.tilings]
        if self.skeleton.shared:
            regions: tuple[Region, ...] = (
                Region(tuple(n for n, _ in nests), self.skeleton.shared),
            )
        else:
            regions = tuple(Region((n,), (), depth) for n, depth in nests)
        per_thread = bool(self.skeleton.shared)
        temporaries = {
            name: (self.skeleton.layouts[name], per_thread) for name in self.skeleton.temporaries
        }
        return Program(self.dag, regions, self.skeleton.inlined, temporaries)


def sketches(
    workload: Workload, target: Target, threads: int = 1, *, accuracy: str = "default"
) -> tuple[Sketch, ...]:
    """All sketches of a workload; the first is the safe default.

    `accuracy`: "strict" allows direct sums only, "default" algorithms with a relative error (to the
    largest output) below 1e-4, "fast" below 1e-3.
    """
    return tuple(
        sketch
        for dag in alternatives(workload.dag, accuracy)
        for sketch in _of_dag(workload, dag, target, threads)
    )


def _of_dag(
    workload: Workload, dag: ComputeDag, target: Target, threads: int
) -> tuple[Sketch, ...]:
    layouts = {**{p.name: row_major(p.shape) for p in dag.placeholders}, **workload.layouts}
    found = []
    for skeleton in derive(Skeleton(dag, target, layouts)):
        form = "attached" if skeleton.shared else "tiled"
        found.append(Sketch(f"{dag.algorithm}.{form}", skeleton, threads))
    return tuple(found)


def find_sketch(
    workload: Workload, schedule: Schedule, target: Target, threads: int = 1
) -> Sketch | None:
    """The workload's sketch that takes a schedule; only the algorithm it names is derived."""
    algorithm = schedule.sketch.rpartition(".")[0]
    return find(_of_algorithm(_Same(workload), algorithm, target, threads), schedule)


class _Same:
    """A workload that equals no other: its tables cannot be hashed."""

    __slots__ = ("workload",)

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.workload is other.workload

    def __hash__(self) -> int:
        return id(self.workload)


@lru_cache(maxsize=64)
def _of_algorithm(same: _Same, algorithm: str, target: Target, threads: int) -> tuple[Sketch, ...]:
    """Sketches of one algorithm, kept for the next candidates of the workload."""
    for dag in alternatives(same.workload.dag, "fast"):
        if dag.algorithm == algorithm:
            return _of_dag(same.workload, dag, target, threads)
    return ()


def find(sketch_list: tuple[Sketch, ...], schedule: Schedule) -> Sketch | None:
    """The sketch that a schedule belongs to, None if there is none (or its knobs differ)."""
    return next((s for s in sketch_list if s.row(schedule) is not None), None)
