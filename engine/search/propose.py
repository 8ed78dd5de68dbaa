"""One round of proposals for one search task.

In: the task's sketches, what was measured of it, a model, the round's size and a generator.  Out:
candidates that were never measured, best first.  Pure: the same inputs give the same round, so that
a run that was stopped goes on as if it had not been.

First round: the default schedule that looks best, the best schedules of similar workloads carried
over to this shape, then what the model (before any record, that of the machine) likes.  Later
rounds: evolution around the best and a small random share.  Every round takes a look at sketches
that were hardly tried, as long as they may hold the best candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.graph.task import SearchTask
from engine.records import MeasureRecord, Schedule
from engine.search.cost_model import Predictor
from engine.search.evolve import Evaluator, EvolveOptions, Scored, diverse, evolve
from engine.search.population import Pool, TaskSpace, join
from engine.search.protocol import SketchLike

PARENTS = 32
"""So many of the best measured candidates start the evolution."""
_SIMILAR_SHARE = 0.5
_SKETCHES_SHARE = 0.25
_HARDLY_TRIED = 4
_MAY_BE_BEST = 1.5
"""Before any record a sketch is worth a look if its best candidate seems slower than the best of
all by no more than this factor."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to measure: `predicted` are the seconds the model expects, `origin` says why it
    is here (default, similar, model, sketch, random); `features` may be stored with the record, so
    that other networks' records can be learned from without their computations."""

    schedule: Schedule
    predicted: float
    origin: str
    features: tuple[float, ...] = ()


def propose_round(
    task: SearchTask,
    sketches: Sequence[SketchLike] | TaskSpace,
    history: Sequence[MeasureRecord],
    model: Predictor,
    n: int,
    rng: np.random.Generator,
    similar: Sequence[Schedule] = (),
    options: EvolveOptions = EvolveOptions(),  # noqa: B008
) -> list[Proposal]:
    """At most n new candidates of `task`; none when its space is exhausted.

    `history` are the task's own records in its scope (others are ignored), `similar` good schedules
    of like workloads, best first.  Pass a `TaskSpace` to reuse what it has cached.
    """
    space = sketches if isinstance(sketches, TaskSpace) else TaskSpace(sketches, task.threads)
    own = [r for r in history if r.workload_key == task.key and r.scope == task.scope]
    round_ = _Round(space, own, model, n, rng, options)
    if not own:
        round_.add(space.defaults(), "default", limit=1)
        round_.add(_carried_over(space, similar, rng), "similar", int(n * _SIMILAR_SHARE))
    round_.take(round_.hardly_tried(), "sketch", int(n * _SKETCHES_SHARE))
    round_.fill()
    return round_.proposals()


class _Round:
    """The round being put together: what was seen, what is chosen so far."""

    def __init__(
        self,
        space: TaskSpace,
        own: Sequence[MeasureRecord],
        model: Predictor,
        n: int,
        rng: np.random.Generator,
        options: EvolveOptions,
    ) -> None:
        self.space, self.n, self.rng, self.options = space, n, rng, options
        self.evaluate = Evaluator(space, model, options.curiosity)
        self.measured, known = space.find([r.schedule for r in own])
        times = np.array([r.latency if r.valid else np.inf for r in own])[known]
        self.parents = self.measured.take(np.argsort(times, kind="stable")[:PARENTS])
        self.best = float(times.min(initial=np.inf))
        self.chosen: list[tuple[Scored, str]] = []
        self.seen: NDArray[np.uint64] = self.measured.keys

    @property
    def left(self) -> int:
        return self.n - sum(len(s) for s, _ in self.chosen)

    def add(self, pool: Pool, origin: str, limit: int) -> None:
        """Chooses the best unseen of `pool`, at most `limit`."""
        self.take(self.evaluate(pool.unique().without(self.seen)), origin, limit)

    def take(self, scored: Scored, origin: str, limit: int) -> None:
        scored = scored.take(slice(0, max(0, min(limit, self.left))))
        if len(scored):
            self.chosen.append((scored, origin))
            self.seen = np.concatenate([self.seen, scored.pool.keys])

    def hardly_tried(self) -> Scored:
        """The best looking candidate of every sketch with next to no measurements that may hold
        the best one."""
        tried = np.bincount(self.measured.which, minlength=len(self.space.sketches))
        scored = self.evaluate.library
        if np.isfinite(self.best):
            hopeful = scored.merit < np.log(self.best)
        else:
            hopeful = scored.merit <= scored.merit.min(initial=np.inf) + np.log(_MAY_BE_BEST)
        fresh = ~np.isin(scored.pool.keys, self.seen)
        scored = scored.take(fresh & hopeful & (tried[scored.pool.which] < _HARDLY_TRIED))
        _, first = np.unique(scored.pool.which, return_index=True)
        return scored.take(np.sort(first))

    def fill(self) -> None:
        """The rest of the round: evolved candidates and a random share."""
        if self.left <= 0:
            return
        whim = min(self.left - 1, int(self.rng.binomial(self.n, self.options.random_share)))
        start = join([self.parents, *(s.pool for s, _ in self.chosen)])
        best = evolve(self.evaluate, start, self.seen, self.rng, self.options)
        wanted = self.left - max(0, whim)
        self.take(diverse(best, wanted, self.options.distance), "model", wanted)
        if self.left > 0:
            drawn = self.space.sample(max(64, 8 * self.left), self.rng).unique()
            fresh = drawn.without(self.seen)
            picked = fresh.take(self.rng.permutation(len(fresh))[: self.left])
            self.take(self.evaluate(picked), "random", self.left)

    def proposals(self) -> list[Proposal]:
        found: list[Proposal] = []
        for scored, origin in self.chosen:
            seconds = np.exp(scored.log_seconds).tolist()
            rows = scored.features.tolist()
            schedules = self.space.schedules(scored.pool)
            found += [
                Proposal(s, t, origin, tuple(f))
                for s, t, f in zip(schedules, seconds, rows, strict=True)
            ]
        return found


def _carried_over(space: TaskSpace, similar: Sequence[Schedule], rng: np.random.Generator) -> Pool:
    return join([space.empty(), *(space.nearest(s, rng) for s in similar)])


def propose_random(
    task: SearchTask,
    sketches: Sequence[SketchLike] | TaskSpace,
    history: Sequence[MeasureRecord],
    n: int,
    rng: np.random.Generator,
) -> list[Schedule]:
    """n unseen candidates drawn uniformly: the yardstick for the search."""
    space = sketches if isinstance(sketches, TaskSpace) else TaskSpace(sketches, task.threads)
    seen = space.find([r.schedule for r in history if r.workload_key == task.key])[0].keys
    fresh = space.sample(max(64, 4 * (n + len(seen))), rng).unique().without(seen)
    return space.schedules(fresh.take(rng.permutation(len(fresh))[:n]))
