"""How much further trials of a task would probably bring, and when to stop.

In: the latencies of a task's trials in the order they were made, infinite for failures.  Out: the
expected gain of more trials, the chance that it is worth having, whether the task has converged.

Latencies have a floor that the search draws near to.  If the chance of a draw within x of it is
proportional to x, the best of t draws lies one mean spacing d of the best few above the floor, and
m more draws bring d m / (t + m).  The gain of the newer half of the trials over the older half is a
second estimate of d, which sees that a guided search still moves.  The chance that a record falls
within the next m trials after s trials without one is m / (s + m), as for exchangeable draws; the
chance that it gains x is exp(-x / d).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

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
    spacing = 0.5 * (_spacing(good) + _pace(seconds))
    return 1.0 - exp(-spacing * more / (len(seconds) + more))


def gain_chance(seconds: Floats, more: int, min_gain: float) -> float:
    """Chance that `more` further trials lower the best by `min_gain` or more."""
    good = seconds[np.isfinite(seconds)]
    if len(good) < 2:
        return 1.0
    idle = _trials_since_gain(seconds, min_gain)
    scale = max(_spacing(good), 0.5 * _pace(seconds), 1e-6)
    return more / (more + idle) * exp(-min_gain / scale)


def converged(history: Sequence[MeasureRecord], rule: StopRule = StopRule()) -> bool:
    """Whether the task's own records (of one scope) say that more trials would hardly help."""
    return stalled(latencies(history), rule)


def stalled(seconds: Floats, rule: StopRule = StopRule()) -> bool:
    """As `converged`, from the latencies."""
    if len(seconds) < rule.min_trials:
        return False
    return gain_chance(seconds, rule.round_size, rule.min_gain) < rule.threshold


def _spacing(good: Floats) -> float:
    """Mean log step between the best few."""
    count = min(len(good) - 1, max(3, int(len(good) ** 0.5)))
    best = np.log(np.sort(good)[: count + 1])
    return float(np.mean((best[1:] - best[0]) / np.arange(1, count + 1)))


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
