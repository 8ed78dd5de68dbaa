"""Budgets: they end, and they cut rounds to what is left."""

from __future__ import annotations

import math

import pytest

from flows.budget import FIRST_ROUND, LARGEST_ROUND, SMALLEST_ROUND, Budget, Window


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_trials_are_spent_exactly() -> None:
    budget, rounds = Budget(trials=100), []
    while size := budget.next_round(3):
        rounds.append(size)
        budget.spend(size)
    assert sum(rounds) == 100
    assert budget.trials_left == 0


def test_trials_of_an_earlier_attempt_count() -> None:
    budget = Budget(trials=100, already=90)
    assert budget.next_round(1) == 10


def test_time_ends_it() -> None:
    clock = Clock()
    budget = Budget(seconds=60, clock=clock)
    assert budget.next_round(10) > 0
    clock.now += 61
    assert budget.next_round(10) == 0
    assert budget.seconds_left == 0


def test_last_round_fits_into_the_time_left() -> None:
    clock = Clock()
    budget = Budget(seconds=100, clock=clock)
    budget.next_round(2)
    clock.now += 90
    budget.spend(90)
    assert budget.rate == pytest.approx(1.0)
    assert budget.next_round(2) == 10


def test_unmeasured_tasks_all_get_a_round() -> None:
    clock = Clock()
    budget = Budget(seconds=60, clock=clock)
    budget.next_round(24, 24)
    clock.now += 10
    budget.spend(8)
    assert budget.next_round(24, 23) == FIRST_ROUND


@pytest.mark.parametrize("trials", [1, 7, 500, 100_000])
@pytest.mark.parametrize("tasks", [1, 29])
def test_round_sizes_stay_in_bounds(trials: int, tasks: int) -> None:
    size = Budget(trials=trials).next_round(tasks)
    assert min(trials, SMALLEST_ROUND) <= size <= LARGEST_ROUND


def test_without_limits_there_is_always_a_round() -> None:
    budget = Budget()
    assert budget.next_round(5) == LARGEST_ROUND
    assert budget.time_left is None


def test_the_reserve_is_not_for_rounds() -> None:
    clock = Clock()
    budget = Budget(seconds=60, clock=clock, reserve=20)
    assert budget.next_round(1) > 0
    clock.now += 41
    assert budget.next_round(1) == 0 and budget.seconds_left == 0
    assert budget.left == 19


def test_no_round_begins_that_cannot_end() -> None:
    clock = Clock()
    budget = Budget(seconds=60, clock=clock)
    budget.next_round(1)
    for seconds in (20, 8, 26):
        clock.now += seconds
        budget.spend(64, seconds)
    assert budget.left == 6 and budget.next_round(1) == 0, "the shortest took 8 seconds"


def test_an_earlier_attempt_has_spent_time() -> None:
    clock = Clock()
    budget = Budget(seconds=60, clock=clock, earlier=50)
    assert budget.seconds_left == 10 and budget.used == 0
    clock.now += 11
    assert budget.next_round(3) == 0


def test_without_an_end_there_is_always_time() -> None:
    assert Budget(trials=8).left == Window().left == math.inf


def test_a_window_ends_when_it_would_have_ended_at_first() -> None:
    clock = Clock()
    window = Window(100, clock)
    clock.now += 30
    assert (window.used, window.left) == (30, 70)
    window.began_before(90)
    assert (window.used, window.left) == (90, 10)
    window.began_before(20)
    assert window.left == 10, "a job does not begin twice"
    clock.now += 11
    assert window.left == 0
