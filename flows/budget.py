"""Budgets: how much a run may still spend, and how large its next round is.

In: a number of trials, a number of seconds, or both.  Out: the next round's size, 0 at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LARGEST_ROUND = 64
SMALLEST_ROUND = 12
FIRST_ROUND = 2
"""Trials that a task's first round has even if time is short: default schedules."""
ROUNDS_PER_TASK = 4
"""Rounds are made so small that the budget gives each task about this many."""
FIRST_RATE = 10.0
"""Trials a second assumed before any are measured."""


@dataclass
class Budget:
    """Trials and seconds that a run may spend; None means no limit.  `clock` gives seconds."""

    trials: int | None = None
    seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    already: int = 0
    """Trials that an earlier attempt of the same run has spent."""
    earlier: float = 0.0
    """Seconds that an earlier attempt of the same run has spent."""
    reserve: float = 0.0
    """Seconds that are held back for what follows the rounds."""
    spent_trials: int = field(init=False, default=0)
    _started: float = field(init=False)
    _tuning_since: float | None = field(init=False, default=None)
    _shortest: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def used(self) -> float:
        """Seconds since the budget was made."""
        return self.clock() - self._started

    @property
    def left(self) -> float:
        """Seconds until the very end, infinite without one."""
        if self.seconds is None:
            return math.inf
        return max(self.seconds - self.earlier - self.used, 0.0)

    @property
    def seconds_left(self) -> float | None:
        """Seconds left for rounds: the reserve is not theirs."""
        return None if self.seconds is None else max(self.left - self.reserve, 0.0)

    @property
    def trials_left(self) -> int | None:
        return (
            None if self.trials is None else max(self.trials - self.already - self.spent_trials, 0)
        )

    @property
    def rate(self) -> float:
        """Trials a second since tuning began; 0 before the first round is done."""
        if self._tuning_since is None or not self.spent_trials:
            return 0.0
        return self.spent_trials / max(self.clock() - self._tuning_since, 1e-9)

    @property
    def time_left(self) -> float | None:
        """Seconds that the run will still take, as far as one can tell."""
        by_trials = math.inf
        if self.trials_left is not None and self.rate:
            by_trials = self.trials_left / self.rate
        found = min(by_trials, self.left)
        return found if math.isfinite(found) else None

    def spend(self, trials: int, seconds: float = 0.0) -> None:
        """Note a finished round and how long it took."""
        self.spent_trials += trials
        self._shortest = min(seconds, self._shortest) if self._shortest else seconds

    def next_round(self, search_tasks: int, unmeasured: int = 0) -> int:
        """Trials of the next round, 0 when the budget is spent.

        A round is cut so that it ends in time at the rate seen so far, and so that the tasks that
        are still `unmeasured` get a round each.  None begins when there is less time than the
        shortest has taken.
        """
        if self._tuning_since is None:
            self._tuning_since = self.clock()
        rate = self.rate or FIRST_RATE
        left = self.seconds_left
        reach = None if left is None else left * rate
        if left is not None and (left * rate < 1 or left < self._shortest):
            return 0
        limits = [x for x in (self.trials_left, reach) if x is not None]
        total = min(
            [x for x in (self.trials, self.seconds and self.seconds * rate) if x is not None],
            default=float(LARGEST_ROUND * ROUNDS_PER_TASK * search_tasks),
        )
        size = round(total / (ROUNDS_PER_TASK * max(search_tasks, 1)))
        size = min(max(size, SMALLEST_ROUND), LARGEST_ROUND)
        if unmeasured and limits:
            size = min(size, max(int(min(limits) / unmeasured), FIRST_ROUND))
        return max(int(min([size, *limits])), 0)


@dataclass
class Window:
    """A stretch of time within which all of a job is to be done; None seconds have no end."""

    seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def began_before(self, seconds: float) -> None:
        """The job began so long ago, in an earlier attempt; harmless if repeated."""
        self._began = min(self._began, self.clock() - seconds)

    @property
    def used(self) -> float:
        """Seconds since the job began."""
        return self.clock() - self._began

    @property
    def left(self) -> float:
        """Seconds until the end, infinite without one."""
        return math.inf if self.seconds is None else max(self.seconds - self.used, 0.0)
