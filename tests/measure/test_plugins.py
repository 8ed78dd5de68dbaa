"""What every builder and every runner must do, over all rows of the tables and the test's own."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hostile import BUILDER, bad, good, search_task
from stub_runner import RUNNER

from engine.errors import NoctuneError
from engine.measure import MeasureOptions, Measurer
from engine.measure.plugins import BUILDERS, RUNNERS, Runner, find
from engine.measure.protocol import Built, Problem
from engine.records import ErrorKind, TimingMode
from engine.target import host

BUILDER_NAMES = (*BUILDERS, BUILDER)
RUNNER_NAMES = (*RUNNERS, RUNNER)


def problem(timing_mode: TimingMode = TimingMode.COLD_WEIGHTS) -> Problem:
    workload = search_task().workload
    return Problem("k", workload, host(), 1, timing_mode)


@pytest.mark.parametrize("name", RUNNER_NAMES)
class TestRunner:
    def runner(self, name: str) -> Runner:
        made: Runner = find(name, RUNNERS)(
            asdict(MeasureOptions()), tuple(os.sched_getaffinity(0))[:1]
        )
        return made

    def test_life_of_a_candidate(self, name: str) -> None:
        runner = self.runner(name)
        reference = runner.prepare(problem(), None)
        built: Built = find(BUILDER, BUILDERS)(problem(), good())
        error, seconds = runner.load(1, good(), built)
        assert 0.0 <= error < 1e-3 and seconds > 0.0
        few, many = runner.sample(1, 3), runner.sample(1, 300)
        assert 0.0 < few.seconds < many.seconds
        assert many.wall >= many.seconds * 0.999
        runner.check(1)
        assert runner.held_bytes() >= 0
        runner.drop(1)
        runner.drop(1)
        again = pickle.loads(pickle.dumps(reference))
        assert pickle.dumps(runner.prepare(problem(), again)) == pickle.dumps(again)
        assert 0.0 <= runner.load(2, good(), built)[0] < 1e-3

    @pytest.mark.parametrize("mode", list(TimingMode))
    def test_every_timing_mode(self, name: str, mode: TimingMode) -> None:
        runner = self.runner(name)
        runner.prepare(problem(mode), None)
        runner.load(1, good(), find(BUILDER, BUILDERS)(problem(mode), good()))
        assert runner.sample(1, 10).seconds > 0

    def test_probe(self, name: str) -> None:
        assert 0.0 < self.runner(name).probe() < 10.0


@pytest.mark.parametrize("seconds", [0, 1])
def test_time_of_zero_in_a_round(measurer: Callable[..., Measurer], seconds: int) -> None:
    """G2-01: 0.0 s and 1e-9 s a call; the round goes on."""
    maker = measurer(runner=RUNNER)
    zero, other = maker.measure(search_task(), [good(seconds), good(2000)])
    assert other.valid and other.latency == pytest.approx(2e-6)
    if seconds == 0:
        assert zero.error is ErrorKind.UNMEASURABLE and zero.times == ()
    else:
        assert zero.valid and zero.latency == pytest.approx(1e-9)


def test_unknown_plugin() -> None:
    with pytest.raises(NoctuneError, match="unknown plug-in 'nonsense'"):
        find("nonsense", BUILDERS)


def test_times_are_those_of_the_anchors_minute(measurer: Callable[..., Measurer]) -> None:
    """The anchor takes a quarter longer than on record: so does everything, and it is undone."""
    maker = measurer(runner=RUNNER)
    (before,) = maker.measure(search_task(), [good(1000)])
    assert before.extra["scale"] == 1.0
    then = replace(before, times=(before.latency * 0.8,))
    faster, slower = maker.measure(search_task(), [good(800), good(3000)], anchor=then)
    assert faster.latency == pytest.approx(640e-9) and slower.latency == pytest.approx(2400e-9)
    assert faster.extra["scale"] == pytest.approx(0.8)
    slow = replace(before, times=(before.latency * 2,))
    (record,) = maker.measure(search_task(), [good(800)], anchor=slow)
    assert record.latency == pytest.approx(1600e-9)


def test_a_disturbed_round_does_not_make_its_lucky_ones_fast(
    measurer: Callable[..., Measurer],
) -> None:
    """The anchor takes ten times as long as on record: no machine is so slow, only so busy."""
    maker = measurer(runner=RUNNER)
    (before,) = maker.measure(search_task(), [good(1000)])
    then = replace(before, times=(before.latency / 10,))
    (record,) = maker.measure(search_task(), [good(800)], anchor=then)
    assert record.latency == pytest.approx(0.8 * 800e-9)


@pytest.mark.parametrize("fault", [{"sketch": "build_error"}, {"error": ErrorKind.CRASH}])
def test_an_anchor_that_fails_scales_nothing(
    fault: dict[str, Any], measurer: Callable[..., Measurer]
) -> None:
    maker = measurer(runner=RUNNER)
    (before,) = maker.measure(search_task(), [good(1000)])
    if "sketch" in fault:
        then = replace(before, schedule=bad(fault["sketch"]))
    else:
        then = replace(before, **fault)
    (record,) = maker.measure(search_task(), [good(800)], anchor=then)
    assert record.latency == pytest.approx(800e-9) and record.extra["scale"] == 1.0
    assert maker.measure(search_task(), [], anchor=before) == ()
