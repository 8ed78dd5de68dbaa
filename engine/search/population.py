"""Populations: many candidates of a task's sketches as one integer matrix.

In: sketches with knobs.  Out: a `Pool`, whose row i is a candidate of sketch `which[i]` with the
knob values `rows[i]`, zero-padded to the widest sketch.  Sampling, mutation, crossover, validity
and deduplication are array operations; randomness comes from the caller's generator.

    positions [2, 0, 1]  --mutate-->  [2, 1, 1]  --values-->  [16, 2, 8]  --valid?-->  kept
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from engine.records import Schedule
from engine.search.protocol import Features, Integers, Mask, Rows, SketchLike

ENUMERATE = 1 << 14
"""Sketches of at most so many points are listed whole, so that exhaustion is exact."""
LIBRARY = 2048
"""Candidates of a task whose features are computed once and scored anew each round."""
_ATTEMPTS = 12
_LANDMARKS = 256
_NEIGHBOUR_SHARE = 0.75
_FEW_KNOBS = 0.55


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates: sketch number int64[n] and knob values int64[n, k]."""

    which: Integers
    rows: Rows

    def __len__(self) -> int:
        return len(self.which)

    def take(self, index: Integers | Mask | slice) -> Pool:
        return Pool(self.which[index], self.rows[index])

    @property
    def keys(self) -> NDArray[np.uint64]:
        """uint64[n], equal for equal candidates (a 64-bit mix of sketch and values)."""
        mixed = _mix(self.which.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        for column in self.rows.T:
            mixed = _mix(mixed ^ column.astype(np.uint64))
        return mixed

    def unique(self) -> Pool:
        """The first of each group of equal candidates, in the same order."""
        _, first = np.unique(self.keys, return_index=True)
        return self.take(np.sort(first))

    def without(self, seen: NDArray[np.uint64]) -> Pool:
        return self.take(~np.isin(self.keys, seen))


def join(pools: Sequence[Pool]) -> Pool:
    return Pool(np.concatenate([p.which for p in pools]), np.concatenate([p.rows for p in pools]))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of splitmix64 (Steele, Lea, Flood 2014)."""
    value = value * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


class TaskSpace:
    """The sketches of one task, seen as one space."""

    def __init__(self, sketches: Sequence[SketchLike], threads: int = 1) -> None:
        if not sketches:
            raise ValueError("a task needs at least one sketch")
        self.sketches = tuple(sketches)
        self.threads = threads
        self.width = max(len(s.knobs) for s in sketches)
        self._values = [[np.asarray(k.values, np.int64) for k in s.knobs] for s in sketches]
        self._counts = [np.array([len(v) for v in values], np.int64) for values in self._values]
        self._names = {s.name: i for i, s in enumerate(sketches)}

    @property
    def small(self) -> bool:
        """Whether the whole space is listed."""
        return all(prod(c.tolist()) <= ENUMERATE for c in self._counts)

    @cached_property
    def _listed(self) -> dict[int, Rows]:
        """Sketch number -> its valid rows, for sketches small enough to be listed."""
        found = {}
        for i, counts in enumerate(self._counts):
            size = prod(counts.tolist())
            if size <= ENUMERATE:
                grid = np.stack(np.unravel_index(np.arange(size), counts), 1) if len(counts) else (
                    np.zeros((1, 0), np.int64)
                )  # fmt: skip
                found[i] = self._legal(i, self._to_values(i, grid))
        return found

    @cached_property
    def library(self) -> tuple[Pool, Features]:
        """Legal candidates with their features, the same at every time: each sketch's share of
        LIBRARY draws, or the whole space if it is not larger."""
        number = LIBRARY * (len(self.sketches) if self.complete else 1)
        pool = self.sample(number, np.random.default_rng(0))
        return pool, self.features(pool)

    @cached_property
    def complete(self) -> bool:
        """Whether the library holds the whole space."""
        return self.small and self.size <= LIBRARY

    @cached_property
    def landmarks(self) -> Features:
        """float32[m, F] of some legal candidates: how far each feature ranges in this space."""
        features = self.library[1]
        return features[:: max(1, len(features) // _LANDMARKS)]

    @property
    def size(self) -> int:
        """Points of the space; exact (legal ones) where it is listed, else an upper bound."""
        return sum(
            len(self._listed[i]) if i in self._listed else prod(c.tolist())
            for i, c in enumerate(self._counts)
        )

    def pool(self, sketch: int, rows: Rows) -> Pool:
        rows = np.asarray(rows, np.int64).reshape(-1, len(self._counts[sketch]))
        padded = np.zeros((len(rows), self.width), np.int64)
        padded[:, : rows.shape[1]] = rows
        return Pool(np.full(len(rows), sketch, np.int64), padded)

    def empty(self) -> Pool:
        return Pool(np.zeros(0, np.int64), np.zeros((0, self.width), np.int64))

    def defaults(self) -> Pool:
        return join([self.pool(i, s.default()[None, :]) for i, s in enumerate(self.sketches)])

    def schedules(self, pool: Pool) -> list[Schedule]:
        return [
            self.sketches[w].schedule(row[: len(self._counts[w])])
            for w, row in zip(pool.which.tolist(), pool.rows, strict=True)
        ]

    def find(self, schedules: Sequence[Schedule]) -> tuple[Pool, Mask]:
        """Candidates of the schedules that are points of this space, and which ones are."""
        found, kept = [self.empty()], np.zeros(len(schedules), bool)
        for i, schedule in enumerate(schedules):
            which = self._names.get(schedule.sketch)
            row = None if which is None else self.sketches[which].row(schedule)
            if which is not None and row is not None:
                found.append(self.pool(which, row[None, :]))
                kept[i] = True
        return join(found), kept

    def features(self, pool: Pool) -> Features:
        """float32[n, F] of all candidates, whatever their sketch."""
        parts = [
            (where, self.sketches[i].features(rows, self.threads))
            for i, where, rows in self._split(pool)
        ]
        if not parts:
            probe = self.sketches[0].features(self.sketches[0].default()[None, :], self.threads)
            return np.zeros((0, probe.shape[1]), np.float32)
        result = np.zeros((len(pool), parts[0][1].shape[1]), np.float32)
        for where, block in parts:
            result[where] = block
        return result

    def sample(self, n: int, rng: np.random.Generator) -> Pool:
        """Up to n different legal candidates, drawn uniformly, each sketch an equal share.

        Fewer come back when a sketch has fewer points; a listed sketch then gives all of them.
        """
        share = -(-n // len(self.sketches))
        drawn = [self.pool(i, self._draw(i, share, rng)) for i in range(len(self.sketches))]
        return join(drawn)

    def mutate(self, pool: Pool, rng: np.random.Generator) -> Pool:
        """A legal changed copy of every candidate where one came out; fewer rows otherwise."""
        changed = [self.empty()]
        for i, _, rows in self._split(pool):
            where = self._move(i, self._to_positions(i, rows), rng)
            changed.append(self.pool(i, self._legal(i, self._to_values(i, where))))
        return join(changed)

    def cross(self, first: Pool, rng: np.random.Generator) -> Pool:
        """Legal children that take each knob from one of two parents of the same sketch."""
        born = [self.empty()]
        for i, _, rows in self._split(first):
            other = rows[rng.permutation(len(rows))]
            child = np.where(rng.random(rows.shape) < 0.5, rows, other)
            born.append(self.pool(i, self._legal(i, child)))
        return join(born)

    def nearest(self, schedule: Schedule, rng: np.random.Generator) -> Pool:
        """The legal candidate most like a schedule of another shape; empty if no sketch is alike.

        Of sketches the equal name or the most alike of the same algorithm is taken.  Each knob
        takes the value nearest on a log scale (missing ones their default); if the result is
        illegal, the closest legal point among mutants of it is taken.
        """
        which = self._likest(schedule.sketch)
        if which is None:
            return self.empty()
        goal = self._goal(which, schedule)
        rows = self._to_values(which, goal[None, :])
        if len(legal := self._legal(which, rows)):
            return self.pool(which, legal)
        start = np.repeat(goal[None, :], 256, 0)
        tried = np.concatenate([start := self._move(which, start, rng) for _ in range(3)])
        legal = self._legal(which, self._to_values(which, tried))
        if not len(legal):
            return self.empty()
        distance = np.abs(self._to_positions(which, legal) - goal).sum(1)
        return self.pool(which, legal[[int(distance.argmin())]])

    def _likest(self, name: str) -> int | None:
        """Number of the sketch of that name, or else of the one that shares most parts of it and
        its first part, the algorithm ("winograd4.rows2.tiled")."""
        if name in self._names:
            return self._names[name]
        parts = name.split(".")
        shared = [
            (len(set(parts) & set(other.split("."))), -i)
            for other, i in self._names.items()
            if other.split(".")[0] == parts[0]
        ]
        return -max(shared)[1] if shared else None

    def _goal(self, which: int, schedule: Schedule) -> Integers:
        default = self.sketches[which].default()
        goal = np.zeros(len(default), np.int64)
        for j, (knob, values) in enumerate(
            zip(self.sketches[which].knobs, self._values[which], strict=True)
        ):
            wanted = schedule.knobs.get(knob.name, int(default[j]))
            goal[j] = np.abs(_log(values) - _log(np.array([wanted]))).argmin()
        return goal

    def _split(self, pool: Pool) -> list[tuple[int, Integers, Rows]]:
        parts = []
        for i in range(len(self.sketches)):
            where = np.flatnonzero(pool.which == i)
            if len(where):
                parts.append((i, where, pool.rows[where, : len(self._counts[i])]))
        return parts

    def _legal(self, which: int, rows: Rows) -> Rows:
        return rows[self.sketches[which].valid(rows)] if len(rows) else rows

    def _draw(self, which: int, n: int, rng: np.random.Generator) -> Rows:
        if which in self._listed:
            listed = self._listed[which]
            return listed[rng.permutation(len(listed))[:n]]
        counts, batch = self._counts[which], max(4 * n, 256)
        found = np.zeros((0, len(counts)), np.int64)
        for _ in range(_ATTEMPTS):
            drawn = rng.integers(0, counts, (batch, len(counts)))
            legal = self._legal(which, self._to_values(which, drawn))
            found = self.pool(which, np.concatenate([found, legal])).unique().rows[:, : len(counts)]
            if len(found) >= n:
                break
        return found[:n]

    def _move(self, which: int, positions: Integers, rng: np.random.Generator) -> Integers:
        """Changes one knob or several of every row, mostly to a neighbouring value."""
        counts = self._counts[which]
        free = np.flatnonzero(counts > 1)
        if not len(free):
            return positions
        n = len(positions)
        order = rng.random((n, len(free))).argsort(1).argsort(1)
        touched = order < np.minimum(rng.geometric(_FEW_KNOBS, n), len(free))[:, None]
        near = rng.choice(np.array([-2, -1, -1, 1, 1, 2]), (n, len(free)))
        far = rng.integers(1, counts[free], (n, len(free)))
        old, limit = positions[:, free], counts[free]
        step = old + near
        step = np.where((step < 0) | (step >= limit), old - np.sign(near), step)
        jump = (old + far) % limit
        new = np.where(rng.random((n, len(free))) < _NEIGHBOUR_SHARE, step, jump)
        moved = positions.copy()
        moved[:, free] = np.where(touched, np.clip(new, 0, limit - 1), old)
        return moved

    def _to_values(self, which: int, positions: Integers) -> Rows:
        rows = np.empty_like(positions)
        for j, values in enumerate(self._values[which]):
            rows[:, j] = values[positions[:, j]]
        return rows

    def _to_positions(self, which: int, rows: Rows) -> Integers:
        positions = np.empty_like(rows)
        for j, values in enumerate(self._values[which]):
            order = np.argsort(values, kind="stable")
            positions[:, j] = order[np.searchsorted(values[order], rows[:, j])]
        return positions


def _log(values: Integers) -> NDArray[np.float64]:
    """Signed log, so that zero and negative codes are ordered as well."""
    wide = values.astype(np.float64)
    return np.asarray(np.sign(wide) * np.log2(1.0 + np.abs(wide)))
