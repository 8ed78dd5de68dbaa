"""How much further trials of a task would probably bring, and when to stop.

In: the latencies of a task's trials in the order they were made, infinite for failures.  Out: the
expected gain of more trials, the chance that it is worth having, whether the task has converged.

The best trials are taken as the lower tail of what the search draws: excesses over the best are
about exponential with some scale, so that the best of t + m trials is expected log(1 + m/t) scales
below the best of t.  How fast the search still improved in its second half corrects that.  That a
record falls within the next m trials after s trials without one has the chance m / (s + m), as for
exchangeable draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log1p, log2

import numpy as np

from engine.records import MeasureRecord
from engine.search.protocol import Floats


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a task is done: fewer than `threshold` chances to gain `min_gain` in the next round."""

    min_gain: float = 0.01
    """Relative gain that matters; below it lies measuring noise."""
    threshold: float = 0.05
    """Chance below which no further round is given."""
    min_trials: int = 32
    """Trials before a task may be called converged."""
    round_size: int = 16
    """Trials that are looked ahead."""


def latencies(history: Sequence[MeasureRecord]) -> Floats:
    """float64[n] seconds in the order of the records, infinite for failed trials."""
    return np.array([r.latency if r.valid else np.inf for r in history], np.float64)


def predict_gain(seconds: Floats, more: int) -> float:
    """Expected relative gain (0 to 1) of `more` further trials; 0.5 while nothing is known."""
    good = seconds[np.isfinite(seconds)]
    if len(good) < 2:
        return 0.5
    tried = len(seconds)
    by_tail = _tail(good) * log1p(more / tried)
    by_pace = 0.5 * _pace(seconds) * log2(1.0 + more / tried)
    return 1.0 - exp(-0.5 * (by_tail + by_pace))


def gain_chance(seconds: Floats, more: int, min_gain: float) -> float:
    """Chance that `more` further trials lower the best by `min_gain` or more."""
    good = seconds[np.isfinite(seconds)]
    if len(good) < 2:
        return 1.0
    idle = _trials_since_gain(seconds, min_gain)
    scale = max(_tail(good), 1e-6)
    return more / (more + idle) * exp(-min_gain / scale)


def converged(history: Sequence[MeasureRecord], rule: StopRule = StopRule()) -> bool:
    """Whether the task's own records (of one scope) say that more trials would hardly help."""
    return stalled(latencies(history), rule)


def stalled(seconds: Floats, rule: StopRule = StopRule()) -> bool:
    """As `converged`, from the latencies."""
    if len(seconds) < rule.min_trials:
        return False
    return gain_chance(seconds, rule.round_size, rule.min_gain) < rule.threshold


def _tail(good: Floats) -> float:
    """Mean log excess of the next best few over the best."""
    count = min(len(good) - 1, max(3, int(len(good) ** 0.5)))
    best = np.sort(good)[: count + 1]
    return float(np.log(best[1:] / best[0]).mean())


def _pace(seconds: Floats) -> float:
    """Log gain of the newer half of the trials over the older half."""
    half = seconds[: len(seconds) // 2]
    before = half[np.isfinite(half)]
    now = seconds[np.isfinite(seconds)].min()
    return log(before.min() / now) if len(before) else 0.7


def _trials_since_gain(seconds: Floats, min_gain: float) -> int:
    """Trials after the best so far last came within `min_gain` of the final best."""
    best = np.minimum.accumulate(seconds)
    return int((best <= best[-1] * (1.0 + min_gain)).sum()) - 1
