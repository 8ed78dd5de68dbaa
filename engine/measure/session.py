"""The measuring worker's jobs: prepare a problem, time candidates, time the probe.

In: `Prepare`, `Time` and `Probe`.  Out: the reference, `Timed`, or seconds.  Which calls are made
is decided here; the runner makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from engine.measure.plugins import CandidateError, Runner, Sample
from engine.measure.protocol import Prepare, Probe, Time, Timed, problem_of
from engine.records import ErrorKind

MAX_CALLS = 1 << 20
_GROW = 10
_RETRIES = 1
_MANY = 8
_WALL_FACTOR = 4.0
"""A repeat with its flushing may last this many times the floor; then it is long enough."""
_DISTURBED_SHARE = 0.05
_ROBUST_SHARE = 0.25
_DISTURBED_S = 100e-6


class Session:
    """What the worker remembers between jobs: which candidates it holds and how often they run."""

    def __init__(self, runner: Runner, options: Mapping[str, Any]) -> None:
        self._runner, self._options = runner, options
        self._held: dict[int, tuple[float, float]] = {}
        """(relative error, seconds of the first run) of each candidate that is loaded."""

    def handle(self, job: Any) -> Any:
        match job:
            case Prepare(problem, reference):
                self._drop(list(self._held))
                return self._runner.prepare(problem_of(problem), reference)
            case Probe():
                return self._runner.probe()
            case Time():
                return self._time(job)
        raise TypeError(f"unknown job {job!r}")

    def _time(self, job: Time) -> Timed:
        self._drop([n for n in self._held if n < job.first])
        dropped = self._load(job)
        floor = float(self._options["min_repeat_ms"]) / 1e3
        error, first = self._held[job.number]
        times, disturbed, calls = [], 0, job.calls or _more(1, first, floor)
        try:
            for _ in range(job.repeats):
                seconds, quiet, calls = one_repeat(
                    lambda n: self._runner.sample(job.number, n), calls, floor
                )
                times.append(seconds)
                disturbed += not quiet
            self._runner.check(job.number)
        except CandidateError:
            self._drop([job.number])
            raise
        return Timed(tuple(times), disturbed, calls, error, tuple(dropped))

    def _load(self, job: Time) -> list[int]:
        if job.built is None:
            return []
        self._held[job.number] = self._runner.load(job.number, job.schedule, job.built)
        others = [n for n in self._held if n != job.number]
        dropped = []
        while others and self._runner.held_bytes() > self._options["resident_bytes"]:
            dropped.append(others.pop())  # passes go round: what is held longest is next
            self._drop(dropped[-1:])
        return dropped

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            self._held.pop(number, None)
            self._runner.drop(number)


def one_repeat(
    sample: Callable[[int], Sample], calls: int, floor_s: float
) -> tuple[float, bool, int]:
    """(seconds of one call, undisturbed, calls made) of a repeat that lasts at least `floor_s`.

    Calls are added until the timed seconds reach the floor (or flushing has taken long).  A
    repeat in which the thread was off its core is made again; what is left after that is called
    disturbed.  CandidateError (UNMEASURABLE) if even `MAX_CALLS` calls take no time.
    """
    retries = 0
    while True:
        got = sample(calls)
        short = got.seconds < floor_s and got.wall < _WALL_FACTOR * floor_s
        if (short or got.seconds <= 0.0) and calls < MAX_CALLS:
            calls = _more(calls, got.seconds, floor_s)
            continue
        if not math.isfinite(got.seconds) or got.seconds <= 0.0:
            raise CandidateError(
                ErrorKind.UNMEASURABLE, f"{calls} calls took {got.seconds:g} s by the clock"
            )
        quiet = _is_quiet(got, calls)
        if quiet or retries == _RETRIES:
            return got.median or got.seconds / calls, quiet, calls
        retries += 1


def _is_quiet(got: Sample, calls: int) -> bool:
    """Whether the thread kept its core; the median of many calls bears more than a mean."""
    share = _ROBUST_SHARE if got.median and calls >= _MANY else _DISTURBED_SHARE
    return got.wall - got.cpu <= _DISTURBED_S + share * got.wall


def _more(calls: int, seconds: float, floor_s: float) -> int:
    """Calls to try next; at most ten times as many, as a short sample promises little."""
    if seconds <= 0.0 or not math.isfinite(seconds):
        return min(calls * _GROW, MAX_CALLS)
    wanted = math.ceil(calls * 1.1 * floor_s / seconds)
    return min(max(wanted, calls + 1), calls * _GROW, MAX_CALLS)
