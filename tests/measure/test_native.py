"""The runner on kernels of the real code generator: blocked channels, zero borders, damage."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest

from engine.expr import (
    Axis,
    ComputeDag,
    Placeholder,
    Read,
    Stage,
    channel_blocked,
    var,
    workload_key,
)  # fmt: skip
from engine.graph.task import SearchTask, Workload
from engine.measure import MeasureOptions, Measurer
from engine.measure.build import build
from engine.measure.native import NativeRunner
from engine.measure.plugins import CandidateError
from engine.measure.protocol import Problem
from engine.records import ErrorKind, Schedule, TimingMode
from engine.space.sketch import sketches
from engine.target import host

CHANNELS, SIDE, BLOCK = 20, 6, 8


def conv_task() -> SearchTask:
    """A 3x3 convolution, 20 channels in blocks of 8, with a border of one on both sides."""
    names, sizes = ("n", "oc", "h", "w"), (1, CHANNELS, SIDE, SIDE)
    axes = tuple(Axis(n, e) for n, e in zip(names, sizes, strict=True))
    window = (Axis("ic", CHANNELS), Axis("kh", 3), Axis("kw", 3))
    at = (var("n"), var("ic"), var("h") + var("kh") - 1, var("w") + var("kw") - 1)
    x = Read("x", at, fill=0.0)
    w = Read("w", (var("oc"), var("ic"), var("kh"), var("kw")))
    dag = ComputeDag(
        (Placeholder("x", sizes), Placeholder("w", (CHANNELS, CHANNELS, 3, 3), constant=True)),
        (Stage("y", axes, x * w, window, "sum"),),
        ("y",),
    )
    layout = channel_blocked(sizes, BLOCK, ((0, 0), (0, 0), (1, 1), (1, 1)))
    workload = Workload(workload_key(dag), dag, {"x": layout, "y": layout}, "conv2d")
    return SearchTask(workload, host())


def default_schedules(task: SearchTask) -> list[Schedule]:
    return [s.schedule(s.default()) for s in sketches(task.workload, task.target, accuracy="fast")]


def loaded(mode: TimingMode = TimingMode.COLD_WEIGHTS) -> NativeRunner:
    """A runner that holds the default schedule as number 1."""
    task = conv_task()
    problem = Problem(task.key, task.workload, task.target, 1, mode)
    runner = NativeRunner(asdict(MeasureOptions()), tuple(os.sched_getaffinity(0))[:1])
    runner.prepare(problem, None)
    schedule = default_schedules(task)[0]
    error, seconds = runner.load(1, schedule, build(problem, schedule))
    assert error < 1e-5 and seconds > 0
    return runner


def test_every_algorithm_is_right(measurer: Callable[..., Measurer]) -> None:
    task = conv_task()
    schedules = default_schedules(task)
    assert any(s.sketch.startswith("winograd") for s in schedules)
    records = measurer(builder="llvm").measure(task, schedules)
    assert all(r.valid for r in records), records
    assert all(r.extra["max_rel_error"] < 1e-3 for r in records)


def test_illegal_schedule(measurer: Callable[..., Measurer]) -> None:
    (record,) = measurer(builder="llvm").measure(conv_task(), [Schedule("direct.none", {"x": 3})])
    assert record.error is ErrorKind.INVALID_SCHEDULE


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda out: out.buffer.data.__setitem__(out.outside[0], 1.0), "zero border"),
        (lambda out: out.buffer.data.__setitem__(out.lanes[-1], np.nan), "padded channels"),
        (lambda out: out.buffer.data.__setitem__(np.isnan(out.blank), 7.0), "differs"),
        (lambda out: out.buffer._strips[1].__setitem__(0, 0), "outside of y"),
    ],
)
def test_damage_shows(damage: Callable[[object], None], words: str) -> None:
    runner = loaded()
    (output,) = runner._data.outputs.values()
    damage(output)
    with pytest.raises(CandidateError, match=words) as caught:
        runner.check(1)
    assert caught.value.kind is ErrorKind.WRONG_RESULT


def test_undamaged_output_passes() -> None:
    runner = loaded()
    assert runner.sample(1, 20).seconds > 0
    runner.check(1)
    runner.check(1)


def test_ranges_of_each_timing_mode() -> None:
    """Cold weights: the constants only.  Flush all: every buffer.  Hot: none."""
    held = {mode: loaded(mode)._loaded[1] for mode in TimingMode}
    cold = held[TimingMode.COLD_WEIGHTS]
    weights = cold.kernel.arguments.index("w")
    if host().is_x86:
        assert [r.address for r in cold.ranges] == [cold.buffers[weights].address]
        everything = held[TimingMode.FLUSH_ALL]
        assert len(everything.ranges) == len(everything.buffers)
    assert len(held[TimingMode.HOT].ranges) == 0


def test_constants_of_one_packing_are_shared() -> None:
    runner = loaded()
    task = conv_task()
    problem = Problem(task.key, task.workload, task.target, 1, TimingMode.COLD_WEIGHTS)
    schedule = default_schedules(task)[0]
    before = runner.held_bytes()
    runner.load(2, schedule, build(problem, schedule))
    assert runner.held_bytes() == before > 0
    runner.drop(1)
    runner.drop(2)
    assert runner.held_bytes() == 0


def test_seed_changes_the_inputs() -> None:
    task = conv_task()
    problem = Problem(task.key, task.workload, task.target, 1, TimingMode.HOT)
    results = []
    for seed in (0, 0, 1):
        options = asdict(replace(MeasureOptions(), seed=seed))
        _, expected = NativeRunner(options, (0,)).prepare(problem, None)
        results.append(expected["y"])
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


def test_numbers_are_kept_for_the_next_round() -> None:
    """Coming back to a problem brings the very same inputs and reference; candidates are gone."""
    runner, task = loaded(), conv_task()
    first = runner._data
    other = Problem("other", task.workload, task.target, 1, TimingMode.HOT)
    positive, expected = runner.prepare(other, None)
    assert runner._data is not first and not runner.held_bytes()
    problem = Problem(task.key, task.workload, task.target, 1, TimingMode.COLD_WEIGHTS)
    again, known = runner.prepare(problem, (positive, {"y": expected["y"] + 1.0}))
    assert runner._data is first and again == first.positive
    assert all(known[name] is first.expected[name] for name in known)
    with pytest.raises(KeyError):
        runner.sample(1, 1)


def test_old_numbers_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.measure.native._KEPT_BYTES", 1)
    runner, task = loaded(), conv_task()
    first = runner._data
    runner.prepare(Problem("other", task.workload, task.target, 1, TimingMode.HOT), None)
    problem = Problem(task.key, task.workload, task.target, 1, TimingMode.COLD_WEIGHTS)
    runner.prepare(problem, None)
    assert runner._data is not first
    np.testing.assert_array_equal(runner._data.expected["y"], first.expected["y"])
