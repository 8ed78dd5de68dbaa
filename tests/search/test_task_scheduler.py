"""Which task comes next."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.graph.task import SearchTask
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule
from engine.search.gain import StopRule, converged, gain_chance, predict_gain
from engine.search.objective import objective, weighted_sum
from engine.search.task_scheduler import (
    SchedulerOptions,
    TaskState,
    expected_gains,
    remaining_gain,
    select_search_task,
    similarity_tag,
    task_states,
)
from tests.search.synthetic import SCOPE, search_task

TASKS = (
    search_task(2_000_000, key="a"),
    search_task(8_000_000, key="b", weight=3),
    search_task(40_000_000, key="c", anchor="conv2d"),
)


def trials(
    key: str, seconds: list[float], round_index: int = 0, scope: RecordScope = SCOPE
) -> list[MeasureRecord]:
    """Records of one round; infinity stands for a crash."""
    return [
        MeasureRecord(
            key, scope, Schedule("s", {"i": i + 1000 * round_index}),
            (t,) if math.isfinite(t) else (),
            ErrorKind.OK if math.isfinite(t) else ErrorKind.CRASH,
            "" if math.isfinite(t) else "signal 11",
            run_id="r", round_index=round_index,
        )
        for i, t in enumerate(seconds)
    ]  # fmt: skip


def falling(
    key: str, rounds: int, start: float, factor: float, first: int = 0
) -> list[MeasureRecord]:
    """Rounds of 8 whose best falls by `factor` each time."""
    found = []
    for r in range(rounds):
        best = start * factor**r
        found += trials(key, [best * (1 + 0.3 * i) for i in range(8)], first + r)
    return found


def choose(
    tasks: tuple[SearchTask, ...], history: list[MeasureRecord], **options: object
) -> int | None:
    settings = SchedulerOptions(**options)  # type: ignore[arg-type]
    choice = select_search_task(
        tasks, task_states(tasks, history, options=settings), None, settings
    )
    return None if choice is None else choice.index


def test_states_are_rebuilt_from_the_records() -> None:
    history = trials("a", [3e-3, math.inf, 2e-3], 0) + trials("b", [math.inf], 1)
    history += trials("a", [4e-3, 1e-3], 2) + trials("x", [1e-9], 3)
    history += trials("a", [1e-9], 4, replace(SCOPE, threads=1))
    a, b, c = task_states(TASKS, history)
    assert (a.trials, a.failures, a.best, a.curve) == (5, 1, 1e-3, (2e-3, 1e-3))
    assert (a.last_round, b.last_round, c.last_round) == (2, 1, -1)
    assert math.isinf(b.best) and "signal 11" in b.first_error and not b.dead
    assert c == TaskState("c")


def test_warm_up_gives_each_task_one_round_heaviest_first() -> None:
    history: list[MeasureRecord] = []
    order = []
    for r in range(3):
        choice = select_search_task(TASKS, task_states(TASKS, history))
        assert choice is not None and "first round" in choice.reason
        order.append(TASKS[choice.index].key)
        history += trials(TASKS[choice.index].key, [1e-3, 2e-3], r)
    assert order == ["c", "b", "a"]


def test_no_second_warm_up_after_a_resume() -> None:
    """G3-06: tasks that have records in the scope are past their warm-up."""
    history = falling("c", 2, 1e-3, 0.9) + falling("b", 2, 1e-3, 0.9, 2)
    assert choose(TASKS, history) == 0
    assert choose(TASKS[1:], history) is not None
    choice = select_search_task(TASKS[1:], task_states(TASKS[1:], history))
    assert choice is not None and "first round" not in choice.reason


def test_the_heavier_task_wins_when_all_else_is_equal() -> None:
    tasks = (search_task(2_000_000, key="a"), search_task(2_000_000, key="b", weight=5))
    history = falling("a", 3, 1e-3, 0.9) + falling("b", 3, 1e-3, 0.9, 3)
    assert choose(tasks, history) == 1


def test_the_task_that_still_improves_wins() -> None:
    tasks = (search_task(2_000_000, key="a"), search_task(2_000_000, key="b"))
    history = falling("a", 6, 2e-3, 0.8) + falling("b", 6, 2e-3 * 0.8**5, 0.999, 6)
    a, b = task_states(tasks, history)
    assert a.best == pytest.approx(b.best, rel=0.01)
    assert choose(tasks, history) == 0


def test_a_slow_task_is_expected_to_reach_its_like() -> None:
    """Two equal computations, one at a tenth of the other's speed."""
    tasks = (search_task(2_000_000, key="a"), search_task(2_000_000, key="b"))
    history = falling("a", 4, 1e-3, 0.99) + falling("b", 4, 1e-2, 0.99, 4)
    states = task_states(tasks, history)
    without = expected_gains(tasks, states, weighted_sum(tasks), SchedulerOptions(beta=1e9))
    guided = expected_gains(tasks, states, weighted_sum(tasks), SchedulerOptions(beta=1.0, gamma=0))
    assert guided[1] > 2 * without[1]
    assert similarity_tag(tasks[0]) == similarity_tag(tasks[1]) != similarity_tag(TASKS[2])


def test_a_dead_end_gets_little_of_the_budget() -> None:
    """G2-08: 400 trials, one task never improves."""
    tasks = (search_task(2_000_000, key="a"), search_task(2_000_000, key="b"))
    history: list[MeasureRecord] = []
    given = {"a": 0, "b": 0}
    for r in range(50):
        index = choose(tasks, history)
        if index is None:
            break
        key = tasks[index].key
        level = 5e-3 if key == "a" else 1e-3 * 0.97 ** (given["b"] / 8)
        history += trials(key, [level * (1 + 0.001 * i) for i in range(8)], r)
        given[key] += 8
    assert given["a"] <= 100
    assert given["b"] >= 300


def test_dead_and_exhausted_tasks_are_skipped() -> None:
    """G2-03: a task whose candidates all fail is given up and is never best."""
    history = trials("c", [math.inf] * 16, 0) + trials("c", [math.inf] * 16, 1)
    states = task_states(TASKS, history, exhausted={"b"})
    assert states[2].dead and states[1].dead and math.isinf(states[2].best)
    choice = select_search_task(TASKS, states)
    assert choice is not None and choice.index == 0
    assert select_search_task(TASKS[1:], states[1:]) is None


def test_a_failing_task_is_tried_again_before_it_is_given_up() -> None:
    history = falling("a", 2, 1e-3, 0.9) + falling("b", 2, 1e-3, 0.9, 2)
    history += trials("c", [math.inf] * 8, 4)
    choice = select_search_task(TASKS, task_states(TASKS, history))
    assert choice is not None and choice.index == 2 and "signal 11" in choice.reason


def test_no_task_starves() -> None:
    """A tiny task beside a huge one that goes on improving."""
    tasks = (search_task(2_000, key="a"), search_task(80_000_000, key="b", weight=50))
    history = trials("a", [1e-6, 2e-6], 0) + trials("b", [1.0, 2.0], 1)
    turns = []
    for r in range(2, 40):
        index = choose(tasks, history)
        assert index is not None
        turns.append(index)
        level = 0.9**r if index else 1e-6 * 0.999**r
        history += trials(tasks[index].key, [level, 2 * level], r)
    assert turns.count(0) >= 2
    assert turns.count(1) > 4 * turns.count(0)


def test_all_converged_ends_the_search_unless_asked_to_go_on() -> None:
    history = [r for i, t in enumerate(TASKS) for r in trials(t.key, [1e-3] * 100, i)]
    assert all(s.converged for s in task_states(TASKS, history))
    assert choose(TASKS, history) is None
    assert choose(TASKS, history, keep_going=True) is not None


def test_convergence_looks_at_chance_and_size_of_a_gain() -> None:
    flat = trials("a", [1e-3 * (1 + 1e-4 * (i % 7)) for i in range(40)])
    steep = trials("a", [1e-3 * 0.98**i for i in range(40)])
    spread = trials("a", [1e-3 * (1 + 0.05 * ((i * 7) % 40)) for i in range(40)])
    assert converged(flat) and not converged(steep) and not converged(spread)
    assert not converged(flat[:8])
    assert not converged(trials("a", [math.inf] * 40))
    assert converged(spread, StopRule(threshold=0.9))


def test_the_gain_shrinks_with_trials_and_grows_with_those_to_come() -> None:
    rng = np.random.default_rng(0)
    seconds = 1e-3 * np.exp(rng.exponential(0.1, 400))
    early, late = predict_gain(seconds[:20], 16), predict_gain(seconds, 16)
    assert 0 < late < early < 0.5
    assert predict_gain(seconds, 16) < predict_gain(seconds, 160) < 1
    assert gain_chance(seconds, 16, 0.01) < gain_chance(seconds[:20], 16, 0.01)
    assert predict_gain(np.array([]), 16) == 0.5 and gain_chance(np.array([1.0]), 16, 0.01) == 1.0


@pytest.mark.parametrize("shape", ["exponential", "power"])
def test_the_predicted_gain_is_right_on_average(shape: str) -> None:
    """Within a factor of two of what further draws bring, over many searches."""
    rng = np.random.default_rng(1)
    said, came = 0.0, 0.0
    for _ in range(200):
        excess = rng.exponential(0.2, 192) if shape == "exponential" else rng.power(1.5, 192)
        seconds = 1e-3 * np.exp(excess)
        said += predict_gain(seconds[:64], 128)
        came += 1 - seconds.min() / seconds[:64].min()
    assert 0.5 < said / came < 2.0


def test_the_remaining_gain_adds_up_over_tasks() -> None:
    rng = np.random.default_rng(0)
    history = {
        t.key: trials(t.key, (1e-3 * np.exp(rng.exponential(0.2, 40))).tolist()) for t in TASKS
    }
    rows = [history[t.key] for t in TASKS]
    some, more = remaining_gain(TASKS, rows, 60), remaining_gain(TASKS, rows, 600)
    total = sum(t.weight * min(r.latency for r in history[t.key]) for t in TASKS)
    assert 0 < some < more < total
    assert remaining_gain(TASKS, [[], [], []], 60) == 0.0


def test_objectives_weigh_networks() -> None:
    tasks = (search_task(2_000_000, key="a"), search_task(2_000_000, key="b"))
    latency = np.array([1e-3, 2e-3])
    both = objective([[4, 0], [1, 3]], importance=[1, 2])
    assert both.value(latency) == pytest.approx(4e-3 + 2 * 7e-3)
    assert both.slope(latency).tolist() == [6, 6]
    mean = objective([[4, 0], [1, 3]], relative=True)
    assert mean.value(latency) == pytest.approx(math.sqrt(4e-3 * 7e-3))
    assert mean.slope(latency)[0] == pytest.approx(4 / 4e-3 + 1 / 7e-3)
    assert weighted_sum(tasks).value(latency) == pytest.approx(3e-3)


def test_a_network_that_meets_its_requirement_gets_no_time_until_all_do() -> None:
    tasks = (search_task(2_000_000, key="a"), search_task(2_000_000, key="b"))
    wanted = objective([[1, 0], [0, 1]], requirements=[5e-3, 1e-3])
    history = falling("a", 3, 4e-3, 0.9) + falling("b", 3, 2e-3, 0.98, 3)
    states = task_states(tasks, history)
    plain = select_search_task(tasks, states)
    strict = select_search_task(tasks, states, wanted)
    assert plain is not None and plain.index == 0
    assert strict is not None and strict.index == 1
    done = objective([[1, 0], [0, 1]], requirements=[1.0, 1.0])
    assert done.slope(np.array([1e-3, 1e-3])).tolist() == [1, 1]


def test_an_unmeasured_task_makes_its_network_infinite() -> None:
    two = objective([[1, 1], [0, 2]])
    assert two.networks(np.array([math.inf, 1e-3])).tolist() == [math.inf, 2e-3]
    assert math.isinf(two.value(np.array([math.inf, 1e-3])))
    assert np.isfinite(two.slope(np.array([math.inf, 1e-3]))).all()


@pytest.mark.parametrize(
    "arguments",
    [{"importance": [1]}, {"requirements": [1.0]}, {"importance": [1, -1]}],
)
def test_objectives_that_do_not_fit_are_refused(arguments: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="network"):
        objective([[1, 0], [0, 1]], **arguments)  # type: ignore[arg-type]
