"""The searches that are compared, each a function from what was measured to the next round.

random: uniform draws.  evolution: mutants and children of the best measured, no model.
model: the search as noctune runs it, from nothing.  history: the same with records of other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.graph.task import SearchTask
from engine.records import MeasureRecord, Schedule
from engine.search import (
    FeatureTable,
    ModelCache,
    TaskSpace,
    propose_random,
    propose_round,
    similar_schedules,
)
from engine.search.population import join
from engine.search.protocol import Prior

STRATEGIES = ("random", "evolution", "model", "history")


@dataclass
class Problem:
    """A task of a network, its space, and what is known of other tasks (for `history`)."""

    name: str
    task: SearchTask
    space: TaskSpace
    prior: Prior
    spaces: Callable[[str], TaskSpace | None]
    network: str = ""
    others: Sequence[MeasureRecord] = ()
    _tables: dict[str, tuple[FeatureTable, ModelCache]] = field(default_factory=dict)

    def tools(self, slot: str) -> tuple[FeatureTable, ModelCache]:
        """Caches of one run; they save time and change nothing."""
        if slot not in self._tables:
            self._tables[slot] = (FeatureTable(self.spaces), ModelCache(self.prior))
        return self._tables[slot]


def propose(
    strategy: str, problem: Problem, own: Sequence[MeasureRecord], n: int, seed: int
) -> list[Schedule]:
    """The next n schedules; the same for the same arguments."""
    rng = np.random.default_rng([seed, len(own)])
    if strategy == "random":
        return propose_random(problem.task, problem.space, own, n, rng)
    if strategy == "evolution":
        return _evolution(problem, own, n, rng)
    others = problem.others if strategy == "history" else ()
    table, cache = problem.tools(f"{strategy}{seed}")
    samples = table.samples([*others, *own])
    model = cache.model(problem.task.scope, samples, problem.task.key, problem.space)
    similar = () if own else similar_schedules(problem.task.key, problem.task.scope, others)
    found = propose_round(problem.task, problem.space, own, model, n, rng, similar)
    return [p.schedule for p in found]


def _evolution(
    problem: Problem, own: Sequence[MeasureRecord], n: int, rng: np.random.Generator
) -> list[Schedule]:
    """Children of the best quarter of what was measured, one draw in five anew."""
    space = problem.space
    if not own:
        return propose_random(problem.task, space, own, n, rng)
    fast = sorted((r for r in own if r.valid), key=lambda r: r.latency)[: max(2, len(own) // 4)]
    parents, _ = space.find([r.schedule for r in fast])
    seen = space.find([r.schedule for r in own])[0].keys
    drawn = parents.take(rng.integers(0, max(1, len(parents)), 4 * n if len(parents) else 0))
    pool = join([
        space.mutate(drawn, rng), space.cross(drawn.take(slice(0, n)), rng), space.sample(n, rng),
    ]).unique().without(seen)  # fmt: skip
    return space.schedules(pool.take(rng.permutation(len(pool))[:n]))
