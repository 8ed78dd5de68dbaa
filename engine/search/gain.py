"""How much further trials of a task would probably bring, and when to stop.

In: the latencies of a task's trials in the order they were made, infinite for failures.  Out: the
expected gain of more trials, the chance that it is worth having, whether the task has converged.

Latencies have a floor that the search draws near to.  If the chance of a draw within x of it is
proportional to x, the best of t draws lies one mean spacing d of the best few above the floor, and
m more draws bring d m / (t + m).  The gain of the newer half of the trials over the older half is a
second estimate of d, which sees that a guided search still moves.  The chance that a record falls
within the next m trials after s trials without one is m / (s + m), as for exchangeable draws; the
chance that it gains x is exp(-x / d).  The task scheduler and the stop rule go by this.

That law of blind draws is too low for a guided search over many tasks: runs showed several times as
much (benchmarks/GAIN.md).  `predict_total`, what people are told, learns the pace from the curves
instead.  With b the best of j trials of a task, its pace is c = - d log b / d log j, constant for a
power law.  After n trials it is seen as the mean of j * (log gain of trial j) over those behind
the first round.  Tasks share what they know: a target's mean pace is drawn towards one known from
other runs, each task's towards the target's.  From n on, trial j gains c n^s / j^(1 + s), so
    log b(n) - log b(n + m) = c / s * (1 - (n / (n + m))^s),
and the trials to come go to where the next one saves most, as the task scheduler gives them.
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


@dataclass(frozen=True, slots=True)
class PaceLaw:
    """Constants of `predict_total`, fitted to recorded runs (benchmarks/GAIN.md)."""

    first_round: int = 10
    """Trials of a task before its pace is observed."""
    pace: float = 0.15
    """Log gain per e-fold of trials that other runs showed."""
    prior: float = 0.1
    """How much that counts: 1 is as much as tasks with very many trials."""
    pooling: float = 2.0
    """How much the target's mean pace counts in each task's; unit as above."""
    slowing: float = 0.8
    """The exponent s by which the pace falls with further trials."""


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


def predict_total(
    cost: Floats, seconds: Sequence[Floats], more: int, law: PaceLaw = PaceLaw()
) -> float:
    """What `more` further trials of all tasks together would probably save, in the unit of `cost`.

    cost: float64[tasks], each task's part of the objective now (weight times best latency).
    seconds: the latencies of each task's trials, one valid at least.  0 without tasks.
    """
    if more <= 0 or not cost.sum() > 0:
        return 0.0
    pace = paces(cost, seconds, law)
    trials = np.array([max(len(s), law.first_round) for s in seconds], np.float64)
    after = trials + _share_out(cost * pace, trials, more, law.slowing)
    fall = pace / law.slowing * (1.0 - (trials / after) ** law.slowing)
    return float(cost @ -np.expm1(-fall))


def paces(cost: Floats, seconds: Sequence[Floats], law: PaceLaw = PaceLaw()) -> Floats:
    """float64[tasks]: the log gain per e-fold of trials at which each task goes on."""
    share = cost / cost.sum()
    seen, known = np.array([_observed_pace(s, law.first_round) for s in seconds]).T
    mean = (share @ seen + law.prior * law.pace) / (share @ known + law.prior)
    return np.asarray((seen + law.pooling * mean) / (known + law.pooling))


def _observed_pace(seconds: Floats, first_round: int) -> tuple[float, float]:
    """Pace behind the first round, times its evidence; the evidence, 0 to 1."""
    best = np.minimum.accumulate(seconds)
    before, trial = best[first_round - 1 : -1], np.arange(first_round + 1, len(best) + 1)
    if not len(trial):
        return 0.0, 0.0
    known = np.isfinite(before)
    gains = np.log(before[known] / best[first_round:][known])
    return float(gains @ trial[known]) / len(best), len(trial) / len(best)


def _share_out(weight: Floats, trials: Floats, more: int, slowing: float) -> Floats:
    """float64[tasks]: `more` trials, shared so that the next one saves equally much of each task
    that gets any: weight * trials^slowing / (trials + given)^(1 + slowing)."""
    rate = np.log(weight / trials)
    low, high = float(rate.min()) - 60.0, float(rate.max())
    for _ in range(60):
        level = (low + high) / 2.0
        given = trials * np.expm1(np.maximum(rate - level, 0.0) / (1.0 + slowing))
        low, high = (level, high) if given.sum() > more else (low, level)
    return np.asarray(given)


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
