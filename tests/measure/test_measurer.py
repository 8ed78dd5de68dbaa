"""Whole rounds: good and hostile candidates through real worker processes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hostile import bad, good, search_task
from watching import alive, wait_until

from engine.errors import NoctuneError, TargetError
from engine.measure import MeasureOptions, Measurer
from engine.records import ErrorKind, MeasureRecord
from engine.target import host

Make = Callable[..., Measurer]

EXPECTED = {
    "segv": (ErrorKind.CRASH, "SIGSEGV"),
    "abort": (ErrorKind.CRASH, "SIGABRT"),
    "ill": (ErrorKind.CRASH, "SIGILL"),
    "fpe": (ErrorKind.CRASH, "SIGFPE"),
    "bus": (ErrorKind.CRASH, "SIGBUS"),
    "kill": (ErrorKind.OUT_OF_MEMORY, "SIGKILL"),
    "exit3": (ErrorKind.CRASH, "code 3"),
    "overflow": (ErrorKind.CRASH, "SIGSEGV"),
    "far": (ErrorKind.CRASH, "SIGSEGV"),
    "input": (ErrorKind.CRASH, "SIGSEGV"),
    "constant": (ErrorKind.CRASH, "SIGSEGV"),
    "flood_all": (ErrorKind.CRASH, "protocol"),
    "close": (ErrorKind.CRASH, ""),
    "bomb": (ErrorKind.OUT_OF_MEMORY, "MiB"),
    "wrong": (ErrorKind.WRONG_RESULT, "differs"),
    "nudge": (ErrorKind.WRONG_RESULT, "outside of y"),
    "illegal": (ErrorKind.INVALID_SCHEDULE, "does not divide"),
    "build_error": (ErrorKind.COMPILE_ERROR, "LLVM says no"),
    "build_abort": (ErrorKind.COMPILE_ERROR, "SIGABRT"),
    "build_bomb": (ErrorKind.OUT_OF_MEMORY, ""),
    "build_full": (ErrorKind.MACHINE_FAULT, "No space left"),
}
HARMLESS = ("flood", "flood_err", "build_files", "build_print")


def test_what_is_done_meanwhile_ends_before_the_records_are_there(measurer: Make) -> None:
    done: list[str] = []

    def slow() -> None:
        time.sleep(0.5)
        done.append(threading.current_thread().name)
        raise ValueError("nobody minds")

    records = measurer().measure(search_task(), [good(10)], meanwhile=slow)
    assert [r.valid for r in records] == [True]
    assert len(done) == 1 and done != [threading.current_thread().name]


def test_good_candidates(measurer: Make) -> None:
    schedules = [good(40), good(80), good(10)]
    records = measurer().measure(
        search_task(), schedules, run_id="night", round_index=7, predicted=[1.0, None, 2.0]
    )
    assert [r.schedule for r in records] == schedules
    assert [r.predicted for r in records] == [1.0, None, 2.0]
    for record in records:
        assert record.valid, record
        assert record.run_id == "night" and record.round_index == 7
        assert record.workload_key == search_task().key
        assert record.scope == search_task().scope
        assert record.build_seconds > 0
        assert record.extra["max_rel_error"] < 1e-6
        assert record.extra["spread"] >= 0
    assert records[1].latency > records[2].latency


@pytest.mark.slow
def test_hostile_candidates_among_good_ones(measurer: Make) -> None:
    """G6-11 and more: each gets its own kind, the good ones are measured, nothing stays."""
    kinds = [*EXPECTED, *HARMLESS]
    schedules = [s for kind in kinds for s in (bad(kind), good())]
    maker = measurer()
    records = maker.measure(search_task(), schedules)
    assert [r.schedule for r in records] == schedules
    for record in records[1::2]:
        assert record.valid, record
    for record in records[::2]:
        kind, words = EXPECTED.get(record.schedule.sketch, (ErrorKind.OK, ""))
        assert (record.schedule.sketch, record.error) == (record.schedule.sketch, kind)
        assert words in record.message, record
        assert record.valid == (kind is ErrorKind.OK)
        assert math.isinf(record.latency) or record.valid
    again = maker.measure(search_task(), [good()])
    assert again[0].valid
    pids, folder = maker.pids, maker._scratch.path
    maker.close()
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()
    assert not list(folder.parent.iterdir())


@pytest.mark.slow
def test_campaign(measurer: Make) -> None:
    """Many hostile candidates of all kinds, mixed at random, over several rounds."""
    rng = np.random.default_rng(5)
    maker = measurer(timeout_s=10.0, compile_timeout_s=10.0)
    right = 0
    for round_index in range(4):
        kinds = ["good"] * 25 + list(rng.choice(list(EXPECTED), 25))
        rng.shuffle(kinds)
        schedules = [good() if kind == "good" else bad(kind) for kind in kinds]
        records = maker.measure(search_task(), schedules, round_index=round_index)
        expected = [EXPECTED.get(kind, (ErrorKind.OK, ""))[0] for kind in kinds]
        assert [r.error for r in records] == expected
        right += sum(r.valid for r in records)
    assert right == 100


def test_hanging_candidates(measurer: Make) -> None:
    kinds = ["loop", "sleep", "build_loop"]
    schedules = [s for kind in kinds for s in (bad(kind), good())]
    records = measurer(timeout_s=2.0, compile_timeout_s=2.0).measure(search_task(), schedules)
    assert [r.error.value for r in records[::2]] == ["run_timeout"] * 2 + ["compile_timeout"]
    assert all("no answer in 2 s" in r.message for r in records[::2])
    assert all(r.valid for r in records[1::2])


def test_five_deaths_have_five_statuses(measurer: Make) -> None:
    """G6-11."""
    kinds = ["segv", "abort", "ill", "kill", "exit3"]
    records = measurer().measure(search_task(), [bad(kind) for kind in kinds])
    statuses = {(r.error, r.extra.get("signal"), r.extra.get("exit_code")) for r in records}
    assert statuses == {
        (ErrorKind.CRASH, "SIGSEGV", None),
        (ErrorKind.CRASH, "SIGABRT", None),
        (ErrorKind.CRASH, "SIGILL", None),
        (ErrorKind.OUT_OF_MEMORY, "SIGKILL", None),
        (ErrorKind.CRASH, None, 3),
    }


def test_endless_native_loop_is_killed(measurer: Make) -> None:
    """G4-07: the process is ended, not only given up."""
    maker = measurer(timeout_s=1.0)
    before = set(maker.pids)
    (record,) = maker.measure(search_task(), [bad("loop")])
    assert record.error is ErrorKind.RUN_TIMEOUT
    gone = before - set(maker.pids)
    assert len(gone) == 1 and not alive(gone.pop())
    assert maker.measure(search_task(), [good()])[0].valid


def test_candidate_that_stops_itself(measurer: Make) -> None:
    """A stopped process is waited for, but not for ever."""
    maker = measurer(timeout_s=1.0, longest_pause_s=1.5)
    records = maker.measure(search_task(), [good(), bad("stop"), good()])
    assert [r.error.value for r in records] == ["ok", "run_timeout", "ok"]
    assert "stopped" in records[1].message


def test_every_candidate_fails(measurer: Make) -> None:
    """G2-03: failed rows, none of them best; a preflight says the first error."""
    maker = measurer()
    records = maker.measure(search_task(), [bad("build_error")] * 32)
    assert len(records) == 32
    assert all(r.error is ErrorKind.COMPILE_ERROR and not r.valid for r in records)
    assert all(math.isinf(r.latency) and r.times == () for r in records)
    with pytest.raises(NoctuneError, match="LLVM says no"):
        maker.preflight(search_task(), [bad("build_error")] * 2)
    assert maker.preflight(search_task(), [bad("wrong"), good()])[1].valid


def test_worker_that_does_not_answer_its_second_job(measurer: Make) -> None:
    """G2-11: three tasks, one stuck job; the rest is measured and progress is told."""
    lines: list[str] = []
    maker = measurer(lines.append, timeout_s=2.0, progress_s=0.5)
    found: list[MeasureRecord] = []
    for name in ("first", "second", "third"):
        batch = [good(), bad("sleep"), good()] if name == "second" else [good(), good()]
        found += maker.measure(search_task(name=name), batch)
    assert [r.error.value for r in found] == ["ok"] * 3 + ["run_timeout"] + ["ok"] * 3
    assert any("candidates measured" in line for line in lines)


def test_empty_round(measurer: Make) -> None:
    assert measurer().measure(search_task(), []) == ()


def test_two_threads(options: MeasureOptions) -> None:
    if host().cores < 2:
        pytest.skip("one core")
    with Measurer(host(), 2, options=options) as maker:
        (record,) = maker.measure(search_task(threads=2), [good()])
    assert record.valid and record.scope.threads == 2


def test_two_tuners_take_turns(measurer: Make) -> None:
    """The second says for whom it waits."""
    lines: list[str] = []
    first, second = measurer(), measurer(lines.append)
    done: list[float] = []

    def work() -> None:
        first.measure(search_task(), [bad("nap")])
        done.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    assert wait_until(lambda: first._busy.locked())
    time.sleep(0.5)
    records = second.measure(search_task(), [good()])
    end = time.monotonic()
    thread.join()
    assert records[0].valid and done[0] <= end
    assert any(f"process {os.getpid()}" in line for line in lines)


def test_interrupted_round_leaves_a_usable_measurer(
    measurer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = measurer()
    assert maker._fleet is not None
    poll, calls = maker._fleet.poll, [0]

    def interrupted(timeout_s: float = 0.05) -> object:
        calls[0] += 1
        if calls[0] == 20:
            raise KeyboardInterrupt
        return poll(timeout_s)

    monkeypatch.setattr(maker._fleet, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        maker.measure(search_task(), [good(), bad("sleep"), good()])
    assert maker.measure(search_task(), [good()])[0].valid


def test_foreign_target_is_refused(options: MeasureOptions) -> None:
    foreign = replace(host(), triple="riscv64-unknown-linux-gnu")
    with pytest.raises(TargetError, match="cannot run code"), Measurer(foreign, options=options):
        pass


def test_workers_that_cannot_start(options: MeasureOptions) -> None:
    broken = replace(options, builder="no.such.module:build")
    with (
        Measurer(host(), options=broken) as maker,
        pytest.raises(NoctuneError, match=r"no.such|No module"),
    ):
        maker.measure(search_task(), [good()])


def test_full_disk_is_no_bad_schedule(measurer: Make, tmp_path: Path) -> None:
    """G6-07: the machine is blamed."""
    (record,) = measurer().measure(search_task(), [bad("build_full")])
    assert record.error is ErrorKind.MACHINE_FAULT


def test_huge_constants_make_small_rounds(measurer: Make) -> None:
    task = search_task()
    assert measurer().fitting(task, 12) == 12
    constants = 4 * sum(math.prod(p.shape) for p in task.workload.dag.placeholders if p.constant)
    assert measurer(resident_bytes=5 * constants).fitting(task, 12) == 4
    assert measurer(resident_bytes=1).fitting(task, 12) == 2
    assert measurer(resident_bytes=1).fitting(task, 1) == 1
