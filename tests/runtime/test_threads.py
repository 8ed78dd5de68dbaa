"""The fork-join pool: every share runs once, whatever the host program does around it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.runtime.jit import Code, emit_object, load_object
from engine.runtime.pool_ir import pool_ir
from engine.runtime.threads import ThreadPool, core_order, pool
from engine.target import host, named

REGIONS = """
declare void @noctune_parallel(ptr, ptr, i64, i64)

; counts[unit] += 1
define void @count(ptr %args, i64 %thread, i64 %first, i64 %past) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %slot = getelementptr i64, ptr %args, i64 %i
  %old = atomicrmw add ptr %slot, i64 1 seq_cst
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %past
  br i1 %more, label %loop, label %done
done:
  ret void
}

; the same; a unit takes the first thread 4 ms, the others 1 ms; counts[100] are the first thread's
define void @dawdle(ptr %args, i64 %thread, i64 %first, i64 %past) {
  call void @count(ptr %args, i64 %thread, i64 %first, i64 %past)
  %slow = icmp eq i64 %thread, 0
  %each = select i1 %slow, i32 4000, i32 1000
  %units = sub i64 %past, %first
  %short = trunc i64 %units to i32
  %long = mul i32 %short, %each
  %r = call i32 @usleep(i32 %long)
  %mine = select i1 %slow, i64 %units, i64 0
  %slot = getelementptr i64, ptr %args, i64 100
  %old = atomicrmw add ptr %slot, i64 %mine seq_cst
  ret void
}

declare i32 @usleep(i32)

; a region that starts a region: the four counts += 1 for each of its units
define void @nest(ptr %args, i64 %thread, i64 %first, i64 %past) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  call void @noctune_parallel(ptr @count, ptr %args, i64 4, i64 4)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %past
  br i1 %more, label %loop, label %done
done:
  ret void
}

; args[unit] = half a denormal; one unit a call
define void @denormal(ptr %args, i64 %thread, i64 %first, i64 %past) {
  %from = getelementptr float, ptr %args, i64 %first
  %x = load volatile float, ptr %from
  %y = fmul float %x, 0.5
  store float %y, ptr %from
  ret void
}

define void @repeat(ptr %fn, ptr %args, i64 %threads, i64 %units, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @noctune_parallel(ptr %fn, ptr %args, i64 %threads, i64 %units)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def build() -> Code:
    target = host()
    ir = f'target triple = "{target.triple}"\n{REGIONS}'
    image = emit_object(ir, target.cpu, target.feature_string)
    return load_object(image, ["count", "dawdle", "nest", "denormal", "repeat"], pool().symbols)


@pytest.fixture(scope="module")
def code() -> Code:
    return build()


def run(
    code: Code, region: str, threads: int, times: int = 1, units: int | None = None
) -> NDArray[np.int64]:
    units = threads if units is None else units
    counts = np.zeros(max(units, 4), dtype=np.int64)
    repeat = code.function("repeat", None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
    repeat(code.address(region), counts.ctypes.data, threads, units, times)
    return counts[:units]


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("units", [1, 2, 3, 7, 64, 1000])
def test_every_unit_is_done_once(code: Code, threads: int, units: int) -> None:
    assert run(code, "count", threads, 300, units).tolist() == [300] * units


def test_a_quick_thread_takes_units_of_a_slow_one(code: Code) -> None:
    counts = np.zeros(101, dtype=np.int64)
    pool().parallel(code.address("dawdle"), counts.ctypes.data, 2, 100)
    assert counts[:100].tolist() == [1] * 100
    assert 0 < counts[100] < 50  # the slow one began with its half


@pytest.mark.parametrize("threads", [2, 3])
def test_a_region_may_start_a_region(code: Code, threads: int) -> None:
    counts = np.zeros(4, dtype=np.int64)
    pool().parallel(code.address("nest"), counts.ctypes.data, threads, 50)
    assert counts.tolist() == [50] * 4


def test_several_threads_of_the_program_may_call_at_once(code: Code) -> None:
    results: list[list[int]] = []
    callers = [
        threading.Thread(target=lambda: results.append(run(code, "count", 3, 500).tolist()))
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [[500] * 3] * 4


def worker_status() -> list[str]:
    """What the kernel says of every thread that blocks all signals: the workers."""
    texts = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            texts.append((task / "status").read_text())
    blocked = [t for t in texts if "SigBlk:\tffff" in t or "SigBlk:\tfffffffe" in t]
    return [line for text in blocked for line in text.splitlines() if line.startswith("State:")]


def test_an_idle_worker_sleeps_and_wakes_again(code: Code) -> None:
    run(code, "count", 2)
    deadline = time.monotonic() + 20
    while not (states := worker_status()) or any("S (" not in state for state in states):
        assert time.monotonic() < deadline, states
        time.sleep(0.01)
    assert len(states) == pool().workers
    assert run(code, "count", 2).tolist() == [1, 1]


def test_denormals_vanish_inside_a_region_and_only_there(code: Code) -> None:
    if not host().is_x86:
        pytest.skip("the mode is checked where the build machine has it")
    tiny = np.full(2, 1e-40, dtype=np.float32)
    pool().parallel(code.address("denormal"), tiny.ctypes.data, 2, 2)
    assert tiny.tolist() == [0.0, 0.0]
    assert (np.full(4, 1e-40, dtype=np.float32) * np.float32(1)).all()


def test_the_callers_affinity_is_left_alone(code: Code) -> None:
    before = os.sched_getaffinity(0)
    enter = ctypes.CFUNCTYPE(None, ctypes.c_int64)(pool().address("noctune_enter"))
    for cpu in sorted(before):
        os.sched_setaffinity(0, {cpu})
        enter(2)
        assert os.sched_getaffinity(0) == {cpu}
        os.sched_setaffinity(0, before)
        enter(2)
        assert os.sched_getaffinity(0) == before
    assert run(code, "count", 2).tolist() == [1, 1]


def test_a_forked_child_starts_workers_of_its_own(code: Code) -> None:
    run(code, "count", 2)
    child = os.fork()
    if child == 0:
        good = pool().workers == 0 and run(code, "count", 2, 100).tolist() == [100, 100]
        os._exit(0 if good and pool().workers == 1 else 1)
    deadline = time.monotonic() + 30
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    assert run(code, "count", 2).tolist() == [1, 1]


EXIT = """
import importlib.util, sys, threading
spec = importlib.util.spec_from_file_location("helpers", sys.argv[1])
t = importlib.util.module_from_spec(spec)
spec.loader.exec_module(t)
code = t.build()
t.run(code, "count", 4, 100)
threading.Thread(target=lambda: t.run(code, "count", 2, 10**9), daemon=True).start()
t.run(code, "count", 4, 100)
print("bye")
"""


def test_the_interpreter_ends_cleanly_even_in_the_middle_of_a_region() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT, __file__], cwd=Path(__file__).resolve().parents[2],
        timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "bye", "")


def test_there_is_one_pool(code: Code) -> None:
    found: list[ThreadPool] = []
    callers = [threading.Thread(target=lambda: found.append(pool())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(p is pool() for p in found)


def test_cores_come_before_their_second_hyperthreads(tmp_path: Path) -> None:
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    assert core_order(list(range(8)), 2, tmp_path) == [2, 3, 4, 5, 6, 7, 0, 1]
    assert core_order([1, 5, 2], 1, tmp_path) == [1, 2, 5]
    assert core_order([3, 9], 7, tmp_path / "none") == [3, 9]


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"])
def test_the_pool_is_legal_ir_for_other_processors(triple: str) -> None:
    from dataclasses import replace

    from llvmlite import binding

    module = binding.parse_assembly(pool_ir(replace(named("host"), triple=triple)))
    module.verify()
    assert "x86" not in str(module)
