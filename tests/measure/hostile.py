"""A builder of candidates that misbehave on demand, for the tests of the measuring pool.

The schedule's sketch says what the candidate does; the good ones compute y = x * w + 1 over 256
floats, `delay` times over.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

from engine.codegen.kernel import Kernel, Packing
from engine.codegen.module import compile_ir
from engine.expr import (
    Axis,
    ComputeDag,
    Layout,
    Placeholder,
    Read,
    Stage,
    row_major,
    var,
    workload_key,
)  # fmt: skip
from engine.graph.task import SearchTask, Workload
from engine.measure.protocol import Built, Problem
from engine.records import Schedule
from engine.target import host

N = 256
BUILDER = f"{Path(__file__).resolve()}:build"


class ScheduleError(ValueError):
    """Known to the worker by its name."""


def good(delay: int = 40) -> Schedule:
    return Schedule("good", {"delay": delay})


def bad(kind: str) -> Schedule:
    return Schedule(kind, {"delay": 1})


def search_task(threads: int = 1, name: str = "affine") -> SearchTask:
    axes = (Axis("i", N),)
    x, w = Read("x", (var("i"),)), Read("w", (var("i"),))
    placeholders = (Placeholder("x", (N,)), Placeholder("w", (N,), constant=True))
    dag = ComputeDag(placeholders, (Stage("y", axes, x * w + 1.0),), ("y",))
    layouts: dict[str, Layout] = {"x": row_major((N,)), "y": row_major((N,))}
    workload = Workload(workload_key(dag) + name, dag, layouts, name)
    return SearchTask(workload, host(), threads=threads)


def build(problem: Problem, schedule: Schedule) -> Built:
    """The builder plug-in."""
    start = time.perf_counter()
    _misbuild(schedule.sketch)
    trouble = _TROUBLE.get(schedule.sketch, "")
    ir = _KERNEL.format(
        delay=schedule.knobs["delay"], trouble=trouble, n=N,
        factor="2.0" if schedule.sketch == "wrong" else "1.0",
        reach=N + (4 if schedule.sketch == "nudge" else 0),
    )  # fmt: skip
    code = compile_ir(f'target triple = "{problem.target.triple}"\n' + ir, problem.target)
    kernel = Kernel(
        "k", (), ("k",), (1,), ("x", "w", "y"), ("y",), problem.workload.layouts,
        {"w": Packing((("i", N),), (var("i"),))}, workspace=256,
    )  # fmt: skip
    return Built(kernel, code, time.perf_counter() - start)


def _misbuild(kind: str) -> None:
    match kind:
        case "illegal":
            raise ScheduleError("tile does not divide")
        case "build_error":
            raise RuntimeError("LLVM says no")
        case "build_abort":
            os.abort()
        case "build_loop":
            while True:
                pass
        case "build_bomb":
            hoard = []
            while True:
                hoard.append(bytearray(64 << 20))
        case "build_full":
            with open("/dev/full", "wb", buffering=0) as file:
                file.write(b"object code")
        case "build_files":
            Path("junk").write_bytes(bytes(1 << 20))
        case "build_imports":
            heavy = {"onnx", "prefect", "sqlalchemy", "lightgbm", "scipy", "multiprocessing"}
            raise RuntimeError(f"imported: {sorted(heavy & set(sys.modules))}")
        case "build_escape":
            raise RuntimeError(f"escaped: {_escapes()}")
        case "build_print":
            print("x" * 100_000)


def _escapes() -> list[str]:
    """What a worker could do outside of its folder."""
    found = []
    with contextlib.suppress(OSError):
        Path("inside").write_text("x")
        found.append("inside")
    with contextlib.suppress(OSError):
        Path("../../outside").write_text("x")
        found.append("outside")
    with contextlib.suppress(OSError), socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        found.append("tcp")
    return found


_TROUBLE = {
    "segv": "store i32 1, ptr inttoptr (i64 8 to ptr)",
    "abort": "call void @abort()",
    "ill": "call void @llvm.trap()",
    "fpe": "call i32 @raise(i32 8)",
    "bus": "call i32 @raise(i32 7)",
    "kill": "%pid = call i32 @getpid()\n  call i32 @kill(i32 %pid, i32 9)",
    "exit3": "call void @exit(i32 3)",
    "loop": "call void @forever()",
    "sleep": "call i32 @sleep(i32 1000)",
    "nap": "call i32 @usleep(i32 300000)",
    "bomb": "call void @bomb()",
    "flood": "call void @flood(i32 1)",
    "flood_err": "call void @flood(i32 2)",
    "flood_all": "call void @flood_all()",
    "overflow": "call i64 @deep(i64 0)",
    "far": "%far = getelementptr float, ptr %y, i64 100000\n  store float 1.0, ptr %far",
    "input": "store float 1.0, ptr %x",
    "constant": "store float 1.0, ptr %w",
    "slow": "call i32 @usleep(i32 20000)",
    "close": "call void @close_all()",
    "stop": "call i32 @raise(i32 19)",
}

_KERNEL = """
@text = private constant [4096 x i8] zeroinitializer
declare void @abort()
declare void @llvm.trap()
declare i32 @raise(i32)
declare i32 @getpid()
declare i32 @kill(i32, i32)
declare void @exit(i32)
declare i32 @sleep(i32)
declare i32 @usleep(i32)
declare i64 @write(i32, ptr, i64)
declare i32 @close(i32)
declare ptr @malloc(i64)
declare ptr @memset(ptr, i32, i64)

define internal void @forever() noinline {{
entry:
  br label %again
again:
  br label %again
}}

define internal void @bomb() noinline {{
entry:
  br label %again
again:
  %p = call ptr @malloc(i64 16777216)
  %none = icmp eq ptr %p, null
  br i1 %none, label %again, label %fill
fill:
  %q = call ptr @memset(ptr %p, i32 1, i64 16777216)
  br label %again
}}

define internal void @flood(i32 %fd) noinline {{
entry:
  br label %again
again:
  %i = phi i32 [ 0, %entry ], [ %j, %again ]
  %r = call i64 @write(i32 %fd, ptr @text, i64 4096)
  %j = add i32 %i, 1
  %more = icmp slt i32 %j, 256
  br i1 %more, label %again, label %done
done:
  ret void
}}

define internal void @flood_all() noinline {{
entry:
  br label %again
again:
  %fd = phi i32 [ 3, %entry ], [ %next, %again ]
  %r = call i64 @write(i32 %fd, ptr @text, i64 64)
  %next = add i32 %fd, 1
  %more = icmp slt i32 %next, 1024
  br i1 %more, label %again, label %done
done:
  ret void
}}

define internal void @close_all() noinline {{
entry:
  br label %again
again:
  %fd = phi i32 [ 3, %entry ], [ %next, %again ]
  %r = call i32 @close(i32 %fd)
  %next = add i32 %fd, 1
  %more = icmp slt i32 %next, 1024
  br i1 %more, label %again, label %done
done:
  ret void
}}

define internal i64 @deep(i64 %n) noinline {{
  %room = alloca [4096 x i8]
  store volatile i64 %n, ptr %room
  %m = add i64 %n, 1
  %r = call i64 @deep(i64 %m)
  %x = load volatile i64, ptr %room
  %s = add i64 %r, %x
  ret i64 %s
}}

define void @k(ptr %args, i64 %thread, i64 %first, i64 %past) {{
entry:
  %x = load ptr, ptr %args
  %w.at = getelementptr ptr, ptr %args, i64 1
  %w = load ptr, ptr %w.at
  %y.at = getelementptr ptr, ptr %args, i64 2
  %y = load ptr, ptr %y.at
  {trouble}
  br label %round
round:
  %t = phi i64 [ 0, %entry ], [ %t.next, %finished ]
  br label %loop
loop:
  %i = phi i64 [ 0, %round ], [ %next, %loop ]
  %from = and i64 %i, 255
  %xi.at = getelementptr float, ptr %x, i64 %from
  %wi.at = getelementptr float, ptr %w, i64 %from
  %yi.at = getelementptr float, ptr %y, i64 %i
  %xi = load float, ptr %xi.at
  %wi = load float, ptr %wi.at
  %p = fmul float %xi, %wi
  %s = fadd float %p, {factor}
  store volatile float %s, ptr %yi.at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {reach}
  br i1 %more, label %loop, label %finished
finished:
  %t.next = add i64 %t, 1
  %again = icmp slt i64 %t.next, {delay}
  br i1 %again, label %round, label %done
done:
  ret void
}}
"""
