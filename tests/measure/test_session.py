"""How many calls make a repeat, and what a clock that shows nothing leads to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.measure.plugins import CandidateError, Sample
from engine.measure.session import MAX_CALLS, one_repeat
from engine.records import ErrorKind


def clock(seconds_per_call: float, seen: list[int]) -> Callable[[int], Sample]:
    def sample(calls: int) -> Sample:
        seen.append(calls)
        total = calls * seconds_per_call
        return Sample(total, total, total)

    return sample


@pytest.mark.parametrize("seconds", [1e-9, 3e-8, 1e-6, 2e-3, 5.0])
def test_repeat_lasts_long_enough(seconds: float) -> None:
    seen: list[int] = []
    got, quiet, calls = one_repeat(clock(seconds, seen), 1, 1e-3)
    assert got == pytest.approx(seconds) and quiet
    assert calls * seconds >= 1e-3 or calls == MAX_CALLS
    assert sum(seen) <= 25 * max(1.0, 1e-3 / seconds)


@pytest.mark.parametrize("seconds", [0.0, -1e-9, float("nan")])
def test_time_of_zero(seconds: float) -> None:
    """G2-01: repeats are raised as far as they go; then the candidate is called unmeasurable."""
    seen: list[int] = []
    with pytest.raises(CandidateError) as caught:
        one_repeat(clock(seconds, seen), 1, 1e-3)
    assert caught.value.kind is ErrorKind.UNMEASURABLE
    assert seen[-1] == MAX_CALLS or seconds != seconds


def test_clock_that_ticks_late() -> None:
    """A coarse clock shows zero at first."""
    got, _, calls = one_repeat(
        lambda n: Sample(*(n * 1e-7 // 1e-3 * 1e-3,) * 3), calls=1, floor_s=1e-2
    )
    assert calls * 1e-7 >= 1e-2 and got == pytest.approx(1e-7, rel=0.11)


def test_known_number_of_calls_is_used_at_once() -> None:
    seen: list[int] = []
    one_repeat(clock(1e-6, seen), 1100, 1e-3)
    assert seen == [1100]


def test_long_flushing_is_long_enough() -> None:
    _, _, calls = one_repeat(lambda n: Sample(n * 1e-6, n * 1e-2, n * 1e-2), 1, 1e-3)
    assert calls == 1


def test_repeat_off_the_core_is_made_again() -> None:
    walls = iter([0.5, 0.01])
    got, quiet, _ = one_repeat(lambda n: Sample(0.01, next(walls), 0.01), 1, 1e-3)
    assert quiet and got == 0.01 and next(walls, None) is None


def test_always_off_the_core_is_disturbed() -> None:
    got, quiet, _ = one_repeat(lambda n: Sample(0.01, 0.5, 0.01), 1, 1e-3)
    assert not quiet and got == 0.01
