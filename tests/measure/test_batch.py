"""A round's steps, with workers that answer from a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hostile import good, search_task

from engine.errors import NoctuneError
from engine.measure.batch import Batch, Memory, Result
from engine.measure.fleet import Event
from engine.measure.options import MeasureOptions
from engine.measure.protocol import Built, Compile, Done, Failed, Prepare, Probe, Time, Timed
from engine.records import ErrorKind, Schedule

OPTIONS = MeasureOptions(passes=3, repeat=1, finalists=2, final_passes=2)


@dataclass
class ScriptedWorker:
    fleet: ScriptedFleet
    generation: int = 1
    busy: bool = False

    @property
    def idle(self) -> bool:
        return not self.busy

    def submit(self, token: object, message: Any, seconds: float) -> None:
        assert not self.busy
        self.busy = True
        self.fleet.inbox.append((self, token, message))

    def kill(self) -> None:
        self.generation += 1
        self.busy = False


@dataclass
class ScriptedFleet:
    """`latency(delay, turn)` is what candidate `delay` takes the turn-th time, or a Failed."""

    latency: Callable[[int, int], float | Failed]
    probes: list[float] = field(default_factory=list)
    inbox: list[tuple[ScriptedWorker, Any, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    turns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workers: Any = [ScriptedWorker(self), ScriptedWorker(self)]

    def start(self) -> None:
        pass

    def poll(self, timeout_s: float = 0.0) -> list[Event]:
        jobs, self.inbox = self.inbox, []
        events = []
        for worker, token, message in jobs:
            worker.busy = False
            events.append(Event(worker, token, self.answer(worker, message)))  # type: ignore[arg-type]
        return events

    def answer(self, worker: ScriptedWorker, message: Any) -> Done | Failed:
        match message:
            case Compile():
                self.log.append(f"compile {message.schedule.knobs['delay']}")
                return Done(Built(None, b"code", 0.1))
            case Prepare():
                self.log.append("prepare")
                self.held.clear()
                return Done("reference")
            case Probe():
                self.log.append("probe")
                return Done(self.probes.pop(0) if self.probes else 1.0)
        assert isinstance(message, Time)
        delay = message.schedule.knobs["delay"]
        assert message.built is not None or message.number in self.held
        self.held.add(message.number)
        self.log.append(f"{delay}x{message.repeats}")
        times = []
        for _ in range(message.repeats):
            self.turns[delay] = self.turns.get(delay, -1) + 1
            got = self.latency(delay, self.turns[delay])
            if isinstance(got, Failed):
                worker.kill()
                self.held.clear()
                return got
            times.append(got)
        return Done(Timed(tuple(times), 0, 7, 1e-7))


def run(
    fleet: ScriptedFleet,
    schedules: list[Schedule],
    options: MeasureOptions = OPTIONS,
    memory: Memory | None = None,
) -> list[Result]:
    memory = Memory() if memory is None else memory
    batch = Batch(fleet, memory, search_task(), options, print)  # type: ignore[arg-type]
    return batch.run(schedules, always=0, built=int)


def records(results: list[Result], schedules: list[Schedule]) -> list[Any]:
    task = search_task()
    return [r.record(task, s, "", 0, None, 0.0) for r, s in zip(results, schedules, strict=True)]


def test_passes_are_interleaved_and_the_best_measured_again() -> None:
    fleet = ScriptedFleet(lambda delay, turn: float(delay))
    schedules = [good(15), good(10), good(12)]
    results = run(fleet, schedules)
    timed = [entry for entry in fleet.log if "x" in entry]
    first, passes = ["15x0", "10x0", "12x0", "15x1", "10x1", "12x1"], ["10x1", "12x1"] * 2
    assert timed == [*first, *passes, *passes]
    assert [len(r.samples) for r in results] == [1, 5, 5]
    assert fleet.log.count("prepare") == 1


def test_the_first_few_are_in_every_pass_however_slow() -> None:
    fleet = ScriptedFleet(lambda delay, turn: float(delay))
    schedules = [good(50), good(10), good(12), good(11)]
    batch = Batch(fleet, Memory(), search_task(), OPTIONS, print)  # type: ignore[arg-type]
    results = batch.run(schedules, always=1, built=int)
    assert [len(r.samples) for r in results] == [5, 5, 3, 5]


def test_hopeless_candidates_get_one_pass() -> None:
    fleet = ScriptedFleet(lambda delay, turn: float(delay))
    results = run(fleet, [good(1), good(100)])
    assert [len(r.samples) for r in results] == [5, 3]  # both are finalists


def test_what_was_among_the_best_is_not_compiled_again() -> None:
    fleet, memory = ScriptedFleet(lambda delay, turn: float(delay)), Memory()
    for schedules in ([good(3), good(1), good(2)], [good(1), good(4)]):
        run(fleet, schedules, memory=memory)
    compiled = [entry for entry in fleet.log if entry.startswith("compile")]
    assert compiled == ["compile 3", "compile 1", "compile 2", "compile 4"]


def test_spread_and_minimum_are_kept() -> None:
    """G6-08: repeats differ; the record holds all of them and how far they lie apart."""
    fleet = ScriptedFleet(lambda delay, turn: 1.0 + (0.25 if turn % 2 else 0.0))
    schedules = [good(1)]
    (record,) = records(run(fleet, schedules), schedules)
    assert record.latency == 1.0 and len(record.times) == 5
    assert record.extra["spread"] == pytest.approx(0.25)
    assert not record.noisy


def test_busy_machine_makes_a_pass_count_again() -> None:
    """G6-08: what was timed while the probe was slow is repeated and left out."""
    fleet = ScriptedFleet(
        lambda delay, turn: 9.0 if turn == 1 else 1.0, probes=[1.0, 1.0, 2.0, 1.0, 1.0, 1.0]
    )
    schedules = [good(1)]
    (record,) = records(run(fleet, schedules), schedules)
    assert not record.noisy
    assert 9.0 not in record.times
    assert record.extra["disturbed"] >= 1


def test_always_busy_machine_is_told() -> None:
    fleet = ScriptedFleet(lambda delay, turn: 1.0, probes=[1.0] + [2.0] * 20)
    schedules = [good(1)]
    (record,) = records(run(fleet, schedules), schedules)
    assert record.valid and record.noisy


def test_crash_in_a_later_pass_loads_the_others_again() -> None:
    crash = Failed(ErrorKind.CRASH, "the worker died by SIGSEGV", {"signal": "SIGSEGV"})

    def latency(delay: int, turn: int) -> float | Failed:
        return crash if delay == 2 and turn == 1 else 1.0

    fleet = ScriptedFleet(latency)
    schedules = [good(1), good(2), good(3)]
    rows = records(run(fleet, schedules), schedules)
    assert [row.error for row in rows] == [ErrorKind.OK, ErrorKind.CRASH, ErrorKind.OK]
    assert rows[1].times == () and rows[1].extra == {"signal": "SIGSEGV"}
    assert fleet.log.count("prepare") == 2


def test_worker_is_replaced_after_many_candidates() -> None:
    fleet = ScriptedFleet(lambda delay, turn: 1.0)
    run(fleet, [good(1), good(2), good(3)], MeasureOptions(recycle_after=4))
    assert fleet.log.count("prepare") >= 3


def test_reference_that_cannot_be_computed() -> None:
    fleet = ScriptedFleet(lambda delay, turn: 1.0)
    fleet.answer = lambda worker, message: (  # type: ignore[method-assign]
        Failed(ErrorKind.MACHINE_FAULT, "no such operator")
        if isinstance(message, Prepare)
        else Done(Built(None, b"", 0.0) if isinstance(message, Compile) else 1.0)
    )
    with pytest.raises(NoctuneError, match="no such operator"):
        run(fleet, [good(1)])
