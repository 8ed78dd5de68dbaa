"""What the tuner minimises: a function of the networks' latencies.

In: how often each task occurs in each network, and what the user asks for.  Out: the objective's
value and its slope for every task's latency, which is what the task scheduler multiplies gains by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.graph.task import SearchTask
from engine.search.protocol import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """Weighted sum of the networks' latencies, by default.

    counts: float64[networks, tasks] occurrences; importance: float64[networks], all 1 for the sum
    and any weights for a weighted mean; requirement: float64[networks] seconds, below which a
    network need not get faster (0: as fast as possible); relative: judge each network by its
    logarithm (geometric mean), so that a small network counts as much as a large one.
    """

    counts: Floats
    importance: Floats
    requirement: Floats
    relative: bool = False

    def networks(self, latency: Floats) -> Floats:
        """float64[networks] seconds from float64[tasks]; a network with an unmeasured task is
        infinite."""
        known = np.isfinite(latency)
        seconds = self.counts @ np.where(known, latency, 0.0)
        missing = (self.counts[:, ~known] > 0).any(1)
        return np.where(missing, np.inf, seconds)

    def value(self, latency: Floats) -> float:
        """The objective: weighted seconds, or the weighted geometric mean if `relative`."""
        seconds = np.maximum(self.networks(latency), self.requirement)
        if self.relative:
            mean = self.importance @ np.log(np.maximum(seconds, 1e-12)) / self.importance.sum()
            return float(np.exp(mean))
        return float(self.importance @ seconds)

    def slope(self, latency: Floats) -> Floats:
        """float64[tasks]: change of the objective per second of each task's latency.

        Where every network meets its requirement the plain weighted sum is used, so that time left
        over is not lost.
        """
        seconds = self.networks(latency)
        share = self.importance / np.maximum(seconds, 1e-12) if self.relative else self.importance
        share = np.where(np.isfinite(seconds), share, self.importance)
        urgent = seconds > self.requirement
        chosen = np.where(urgent, share, 0.0) if urgent.any() else share
        return np.asarray(chosen @ self.counts)


def weighted_sum(tasks: Sequence[SearchTask]) -> Objective:
    """All networks as one: each task as often as its weight says."""
    counts = np.array([[float(t.weight) for t in tasks]]).reshape(1, len(tasks))
    return Objective(counts, np.ones(1), np.zeros(1))


def objective(
    counts: Sequence[Sequence[float]],
    *,
    importance: Sequence[float] | None = None,
    requirements: Sequence[float | None] | None = None,
    relative: bool = False,
) -> Objective:
    """Several networks: `counts[j][i]` is how often network j runs task i.

    `requirements` in seconds, None for a network that shall be as fast as possible.  ValueError
    when lengths do not fit or an importance is negative.
    """
    table = np.asarray(counts, np.float64)
    if table.ndim != 2:
        raise ValueError("counts must be a table of networks by tasks")
    weight = np.ones(len(table)) if importance is None else np.asarray(importance, np.float64)
    wanted = [0.0 if r is None else float(r) for r in requirements or [None] * len(table)]
    if len(weight) != len(table) or len(wanted) != len(table) or (weight < 0).any():
        raise ValueError("one importance (not negative) and one requirement a network are needed")
    return Objective(table, weight, np.array(wanted), relative)
