"""What this machine can do at most: floating-point operations and bytes a second.

Out: a `Machine` measured in about a second with generated loops, one for the arithmetic peak
(enough independent multiply-adds to hide their latency) and one that reads buffers as large as each
cache level, memory in several streams at once since one alone does not keep it busy.  The best of
several rounds counts; threads run pinned in the fork-join pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from engine.codegen.emitter import Emitter
from engine.codegen.module import compile_ir, module
from engine.codegen.vector_math import fma, literal
from engine.measure.memory import GuardedBuffer
from engine.runtime.jit import load_object
from engine.runtime.threads import pool
from engine.target import Target

_ROUNDS = 7
_MIN_SECONDS = 2e-3
_FMA_TURNS = 1 << 16
_READ_BYTES = 16 << 20
"""Bytes that one call reads at least, in passes over the buffer."""
_READS = 16
"""Vectors that one turn of the reading loop loads."""
_STREAMS = (1, 4, 8)
"""Places of a thread's part of the buffer at which it reads by turns."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Peaks of `threads` threads together: FLOP a second, bytes a second read from each level."""

    threads: int
    flops: float
    bandwidth: dict[str, float]


def measure_machine(target: Target, threads: int) -> Machine:
    """The peaks of this machine for code like ours (vectors of the target's width)."""
    names = {streams: f"machine_read_{streams}" for streams in _STREAMS}
    made = [_peak_ir(target), *(_read_ir(target, s, name) for s, name in names.items())]
    code = load_object(compile_ir(module(made, target), target), ("machine_peak", *names.values()))
    parallel = pool().parallel

    def run(name: str, args: int) -> Callable[[], None]:
        at = code.address(name)
        return lambda: parallel(at, args, threads, threads)

    sizes = {
        "L1": target.l1 // 2 * threads, "L2": target.l2 * 3 // 4 * threads,
        "L3": min(target.l3 // 2, target.l2 * threads * 8),
        "memory": max(4 * target.l3, 64 << 20),
    }  # fmt: skip
    table = np.zeros(4, dtype=np.uint64)
    sink = GuardedBuffer(target.lanes * threads)
    table[2] = sink.address
    flops = _flops_of_turn(target) * _FMA_TURNS * threads
    peak = flops / best_seconds(run("machine_peak", table.ctypes.data))
    bandwidth = {}
    for level, size in sizes.items():
        unit = _READS * target.lanes * 4 * threads * max(_STREAMS)
        size = max(size // unit, 1) * unit
        buffer = GuardedBuffer(size // 4)
        buffer.data[:] = 1.0
        passes = max(1, _READ_BYTES // size)
        table[0], table[1], table[3] = buffer.address, size // 4 // threads, passes
        seconds = min(best_seconds(run(name, table.ctypes.data)) for name in names.values())
        bandwidth[level] = passes * size / seconds
    return Machine(threads, peak, bandwidth)


def best_seconds(call: Callable[[], None]) -> float:
    """Seconds of one call: the minimum over rounds of enough calls to be read by the clock."""
    calls, best = 1, float("inf")
    call()
    for _ in range(_ROUNDS):
        while True:
            start = perf_counter()
            for _ in range(calls):
                call()
            seconds = perf_counter() - start
            if seconds >= _MIN_SECONDS:
                break
            calls *= 2
        best = min(best, seconds / calls)
    return best


def _chains(target: Target) -> int:
    """Independent multiply-adds: what the registers hold beside the two factors."""
    return min(target.vector_registers - 4, 24)


def _flops_of_turn(target: Target) -> int:
    return 2 * target.lanes * _chains(target)


def _peak_ir(target: Target) -> str:
    e = Emitter(fused=target.vector_bits > 128 or not target.is_x86)
    kind = f"<{target.lanes} x float>"
    factor = literal(0.999, kind)

    def body(values: list[str]) -> list[str]:
        return [fma(e, kind, v, factor, factor) for v in values]

    start = [(kind, literal(1.0 + i / 64, kind)) for i in range(_chains(target))]
    units = e.op("sub i64 %past, %first")
    turns = e.op(f"mul i64 {units}, {_FMA_TURNS}")
    results = e.loop("turn", "0", turns, start, body)
    return finished_region(e, "machine_peak", target, results)


def _read_ir(target: Target, streams: int, name: str) -> str:
    """Passes over a thread's part of the buffer, by turns a piece of each of so many streams."""
    e = Emitter()
    kind = f"<{target.lanes} x float>"
    base = e.op("load ptr, ptr %args, align 8")
    slot = e.op("getelementptr i64, ptr %args, i64 1")
    mine = e.op(f"load i64, ptr {slot}, align 8")
    own = e.op(f"mul i64 {mine}, %first")
    units = e.op("sub i64 %past, %first")
    part = e.op(f"udiv i64 {e.op(f'mul i64 {mine}, {units}')}, {streams}")
    piece = _READS // streams * target.lanes
    turns = e.op(f"udiv i64 {part}, {piece}")
    starts = []
    for stream in range(streams):
        offset = e.op(f"add i64 {own}, {e.op(f'mul i64 {part}, {stream}')}")
        starts.append(e.op(f"getelementptr float, ptr {base}, i64 {offset}"))
    sums = 8

    def one_turn(values: list[str]) -> list[str]:
        out = list(values)
        places = ((s, at) for s in starts for at in range(0, piece, target.lanes))
        for i, (start, at) in enumerate(places):
            moved = e.moved("turn", start, piece)
            pointer = e.op(f"getelementptr float, ptr {moved}, i64 {at}")
            value = e.op(f"load {kind}, ptr {pointer}, align 4")
            out[i % sums] = e.op(f"fadd {kind} {out[i % sums]}, {value}")
        return out

    def one_pass(values: list[str]) -> list[str]:
        return e.loop("turn", "0", turns, [(kind, v) for v in values], one_turn)

    slot = e.op("getelementptr i64, ptr %args, i64 3")
    passes = e.op(f"load i64, ptr {slot}, align 8")
    zeros = [(kind, "zeroinitializer")] * sums
    results = e.loop("pass", "0", passes, zeros, one_pass)
    return finished_region(e, name, target, results)


def finished_region(e: Emitter, name: str, target: Target, values: Sequence[str]) -> str:
    """The text of a region whose body is `e`; the sum of the vectors is stored to keep them alive:
    to the thread's own vector of the buffer that the third entry of `args` points to."""
    kind = f"<{target.lanes} x float>"
    total = values[0]
    for value in values[1:]:
        total = e.op(f"fadd {kind} {total}, {value}")
    slot = e.op("getelementptr i64, ptr %args, i64 2")
    sink = e.op(f"load ptr, ptr {slot}, align 8")
    own = e.op(f"mul i64 %thread, {target.lanes}")
    pointer = e.op(f"getelementptr float, ptr {sink}, i64 {own}")
    e.put(f"store {kind} {total}, ptr {pointer}, align 4")
    e.put("ret void")
    head = f"define void @{name}(ptr %args, i64 %thread, i64 %first, i64 %past) #0"
    return f"{head} {{\n{e.text()}\n}}\n"
