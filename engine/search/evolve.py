"""Evolutionary search over a task's whole population, scored by the cost model.

In: a space, a model, good starting points, keys of what was measured.  Out: the best unseen
candidates, best first, with what the model expects of each.  One generation:

    parents (by rank) --mutate | cross | fresh sample--> legal children --score--> best `population`

A candidate's merit is its lower confidence bound: log seconds minus `curiosity` deviations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.search.cost_model import Prediction, Predictor
from engine.search.population import Pool, TaskSpace, join
from engine.search.protocol import Floats, Integers


@dataclass(frozen=True, slots=True)
class EvolveOptions:
    """Sizes and rates of the search."""

    population: int = 1024
    """Candidates kept from one generation to the next."""
    generations: int = 4
    """Rounds of children after the first sample."""
    fresh: float = 0.1
    """Share of each generation drawn anew."""
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
    """Candidates with the model's view of them, best merit (lowest) first."""

    pool: Pool
    merit: Floats
    log_seconds: Floats

    def __len__(self) -> int:
        return len(self.pool)

    def take(self, index: Integers | slice) -> Scored:
        return Scored(self.pool.take(index), self.merit[index], self.log_seconds[index])


Evaluate = Callable[[Pool], Scored]


def evaluator(space: TaskSpace, model: Predictor, curiosity: float) -> Evaluate:
    """A function that scores any pool of the space."""

    def evaluate(pool: Pool) -> Scored:
        found: Prediction = model.predict(space.features(pool))
        merit = found.log_seconds - curiosity * found.deviation
        order = np.argsort(merit, kind="stable")
        return Scored(pool, merit, found.log_seconds).take(order)

    return evaluate


def evolve(
    space: TaskSpace,
    evaluate: Evaluate,
    start: Pool,
    seen: NDArray[np.uint64],
    rng: np.random.Generator,
    options: EvolveOptions = EvolveOptions(),
) -> Scored:
    """The best unseen candidates found, best first.

    `start` are known good candidates (measured ones too: they are parents, never proposals).  A
    space small enough to be listed is scored whole instead.
    """
    n = options.population
    if space.small and space.size <= n * options.generations:
        everything = space.sample(len(space.sketches) * n * options.generations, rng)
        return evaluate(everything.without(seen))
    alive = evaluate(join([start, space.sample(n, rng)]).unique())
    best = _unseen(alive, seen, n)
    for _ in range(options.generations):
        born = evaluate(_children(space, alive, rng, options).unique().without(alive.pool.keys))
        alive = _merge(alive, born, n)
        best = _merge(best, _unseen(born, seen, n), n)
    return best


def _children(
    space: TaskSpace, alive: Scored, rng: np.random.Generator, options: EvolveOptions
) -> Pool:
    """Children of parents drawn with a probability that falls with their rank."""
    n = options.population
    rank = np.arange(len(alive))
    chance = np.exp(-4.0 * rank / max(1, len(rank)))
    count = int(n * (1.0 - options.fresh))
    parents = alive.pool.take(rng.choice(len(rank), count, p=chance / chance.sum()))
    pairs = int(count * options.crossover)
    return join([
        space.cross(parents.take(slice(0, pairs)), rng),
        space.mutate(parents.take(slice(pairs, None)), rng),
        space.sample(n - count, rng),
    ])  # fmt: skip


def _unseen(scored: Scored, seen: NDArray[np.uint64], n: int) -> Scored:
    return scored.take(np.flatnonzero(~np.isin(scored.pool.keys, seen))[:n])


def _merge(left: Scored, right: Scored, n: int) -> Scored:
    """The best n different candidates of both."""
    pool = join([left.pool, right.pool])
    merit = np.concatenate([left.merit, right.merit])
    seconds = np.concatenate([left.log_seconds, right.log_seconds])
    _, first = np.unique(pool.keys, return_index=True)
    order = first[np.lexsort((first, merit[first]))][:n]
    return Scored(pool, merit, seconds).take(order)


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
