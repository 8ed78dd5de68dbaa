"""Side-by-side timing: several engines on the same inputs, interleaved in one run.

In: named callables.  Out: for each, seconds of every call, by group.  The engines take turns, group
by group, each time in another order, so that a slow spell of the machine hits all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

WARM_CALLS = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each call, in the groups in which they were measured."""

    groups: tuple[tuple[float, ...], ...]

    @property
    def calls(self) -> tuple[float, ...]:
        return tuple(t for group in self.groups for t in group)

    @property
    def median(self) -> float:
        return statistics.median(self.calls)

    @property
    def minimum(self) -> float:
        return min(self.calls)

    @property
    def mean(self) -> float:
        """Mean of the groups' means."""
        return statistics.fmean(statistics.fmean(g) for g in self.groups)

    @property
    def deviation(self) -> float:
        """Standard deviation of the groups' means; 0 for a single group."""
        means = [statistics.fmean(g) for g in self.groups]
        return statistics.stdev(means) if len(means) > 1 else 0.0


def side_by_side(
    engines: Mapping[str, Callable[[], object]],
    repeat: int = 3,
    min_seconds: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """`repeat` groups of calls of each engine; a group lasts at least `min_seconds`."""
    names = list(engines)
    groups: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for turn in range(repeat):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            groups[name].append(_group(engines[name], min_seconds, clock))
    return {name: Timing(tuple(found)) for name, found in groups.items()}


def _group(
    call: Callable[[], object], min_seconds: float, clock: Callable[[], float]
) -> tuple[float, ...]:
    for _ in range(WARM_CALLS):
        call()
    times: list[float] = []
    began = now = clock()
    while not times or now - began < min_seconds:
        call()
        after = clock()
        times.append(after - now)
        now = after
    return tuple(times)
