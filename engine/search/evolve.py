"""Evolutionary search over a task's whole population, scored by the cost model.

In: a space, a model, good starting points, keys of what was measured.  Out: the best unseen
candidates, best first, with what the model expects of each.  The space's library is scored first
and tells which sketches are worth a closer look; then, generation by generation,

    parents (by rank) --mutate | cross--> legal children --score--> best `population`

A candidate's merit is its lower confidence bound: log seconds minus `curiosity` deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.search.cost_model import Predictor
from engine.search.population import Pool, TaskSpace, join
from engine.search.protocol import Features, Floats, Integers, Mask


@dataclass(frozen=True, slots=True)
class EvolveOptions:
    """Sizes and rates of the search."""

    population: int = 256
    """Candidates kept, and children born, in each generation."""
    generations: int = 3
    """Rounds of children after the library is scored."""
    sketches: int = 4
    """Sketches, by their best candidate, that go on evolving."""
    crossover: float = 0.25
    """Share of the children with two parents; the others are mutants."""
    curiosity: float = 1.0
    """Deviations below the mean at which a candidate is judged; more explores more."""
    random_share: float = 0.05
    """Share of a round that is drawn at random whatever the model says (eps-greedy)."""
    distance: int = 2
    """Knobs in which two proposals of a round differ if there is a choice."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Candidates with their features and the model's view of them, best merit (lowest) first."""

    pool: Pool
    features: Features
    merit: Floats
    log_seconds: Floats

    def __len__(self) -> int:
        return len(self.pool)

    def take(self, index: Integers | Mask | slice) -> Scored:
        return Scored(
            self.pool.take(index), self.features[index], self.merit[index], self.log_seconds[index]
        )


@dataclass(frozen=True)
class Evaluator:
    """Scores any candidates of the space; the library once."""

    space: TaskSpace
    model: Predictor
    curiosity: float

    def __call__(self, pool: Pool, features: Features | None = None) -> Scored:
        """The candidates in the order of their merit."""
        known = self.space.features(pool) if features is None else features
        found = self.model.predict(known)
        merit = found.log_seconds - self.curiosity * found.deviation
        order = np.argsort(merit, kind="stable")
        return Scored(pool, known, merit, found.log_seconds).take(order)

    @cached_property
    def library(self) -> Scored:
        return self(*self.space.library)


def evolve(
    evaluate: Evaluator,
    start: Pool,
    seen: NDArray[np.uint64],
    rng: np.random.Generator,
    options: EvolveOptions = EvolveOptions(),
) -> Scored:
    """The best unseen candidates found, best first.

    `start` are known good candidates (measured ones too: they are parents, never proposals).  A
    space that the library holds whole is scored without evolution.
    """
    n, library = options.population, evaluate.library
    if evaluate.space.complete:
        return _unseen(library, seen, len(library))
    best = _unseen(library, seen, n)
    alive = _promising(_merge(evaluate(start.unique()), library, len(library)), options)
    for _ in range(options.generations):
        children = _children(evaluate.space, alive, rng, options)
        born = evaluate(children.unique().without(alive.pool.keys))
        alive = _merge(alive, born, n)
        best = _merge(best, _unseen(born, seen, n), n)
    return best


def _promising(scored: Scored, options: EvolveOptions) -> Scored:
    """The best candidates of the best few sketches."""
    _, first = np.unique(scored.pool.which, return_index=True)
    chosen = scored.pool.which[np.sort(first)[: options.sketches]]
    kept = np.flatnonzero(np.isin(scored.pool.which, chosen))
    return scored.take(kept[: options.population])


def _children(
    space: TaskSpace, alive: Scored, rng: np.random.Generator, options: EvolveOptions
) -> Pool:
    """Children of parents drawn with a probability that falls with their rank."""
    rank = np.arange(len(alive))
    chance = np.exp(-4.0 * rank / max(1, len(rank)))
    drawn = rng.choice(len(rank), options.population, p=chance / chance.sum())
    parents = alive.pool.take(drawn)
    pairs = int(len(parents) * options.crossover)
    crossed = space.cross(parents.take(slice(0, pairs)), rng)
    return join([crossed, space.mutate(parents.take(slice(pairs, None)), rng)])


def _unseen(scored: Scored, seen: NDArray[np.uint64], n: int) -> Scored:
    return scored.take(np.flatnonzero(~np.isin(scored.pool.keys, seen))[:n])


def _merge(left: Scored, right: Scored, n: int) -> Scored:
    """The best n different candidates of both."""
    both = Scored(
        join([left.pool, right.pool]),
        np.concatenate([left.features, right.features]),
        np.concatenate([left.merit, right.merit]),
        np.concatenate([left.log_seconds, right.log_seconds]),
    )
    _, first = np.unique(both.pool.keys, return_index=True)
    return both.take(first[np.lexsort((first, both.merit[first]))][:n])


def diverse(scored: Scored, n: int, distance: int) -> Scored:
    """The n best that differ pairwise in `distance` knobs, filled up with the best others."""
    if len(scored) <= n:
        return scored
    limit = min(len(scored), 16 * n)
    which, rows = scored.pool.which[:limit], scored.pool.rows[:limit]
    free = np.ones(limit, bool)
    chosen: list[int] = []
    for i in range(limit):
        if len(chosen) == n:
            break
        if free[i]:
            chosen.append(i)
            apart = ((rows != rows[i]).sum(1) >= distance) | (which != which[i])
            free &= apart
    rest = [i for i in range(limit) if i not in set(chosen)]
    return scored.take(np.array((chosen + rest)[:n], np.int64))
