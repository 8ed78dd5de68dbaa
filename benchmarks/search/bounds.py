"""What a machine allows a declared computation: a lower bound of the seconds of one call.

In: a compute DAG of one stage, and this machine.  Out: its work and traffic (`Cost`), what the
machine does of each in a second (`Peaks`), and the time below which no program of that formula can
go (`bound`).  Arithmetic is bounded by a generated loop that evaluates the formula alone, from
registers into independent accumulators: how fast the vector units take its instructions, whichever
of them share a port.  Traffic is every tensor once: constants from memory, as they are cold when a
candidate is timed, inputs and outputs from the smallest cache that holds them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

import numpy as np

from engine.codegen import vector_math as vm
from engine.codegen.emitter import Emitter
from engine.codegen.module import compile_ir, module
from engine.expr import REDUCERS, Binary, ComputeDag, Expr, Stage, Unary, reads, walk
from engine.measure.machine import Machine, best_seconds, finished_region
from engine.measure.memory import GuardedBuffer
from engine.runtime.jit import load_object
from engine.runtime.threads import pool
from engine.target import Target

ARITHMETIC, MEMORY, CACHE = "arithmetic", "memory", "cache"
_TURNS = 1 << 16
_CHAINS = (8, 10, 12, 20)
"""Accumulators of the loop: latency wants many, registers allow few.  The fastest counts."""
_AHEAD = (1, 2, 4)
"""Accumulators whose terms are computed before the first is used."""
_LOADS = 8
"""The loops are loaded so often, each time elsewhere: on a Zen 3 core the same subtractions and
multiply-adds go at 36 or at 47 points a nanosecond, depending on where their code lies."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call needs whatever its loops are: `points` evaluations of the formula, `flops`
    (equal subexpressions once, a multiply-add two), bytes of constants and of other tensors."""

    points: int
    flops: int
    constant_bytes: int
    variable_bytes: int


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the machine does in a second: `points` of the formula, bytes from memory, bytes from
    `level`, the cache that inputs and outputs lie in."""

    points: float
    memory: float
    cache: float
    level: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds of one call, and which of the three limits it is."""

    seconds: float
    limit: str


def cost_of(dag: ComputeDag) -> Cost:
    """Work and traffic of a DAG of one stage."""
    (stage,) = dag.stages
    points = prod(stage.extents.values())
    operations = {e for e in walk(stage.body) if isinstance(e, Binary | Unary)}
    constants = sum(4 * prod(p.shape) for p in dag.placeholders if p.constant)
    variables = sum(4 * prod(p.shape) for p in dag.placeholders if not p.constant)
    return Cost(
        points, points * (len(operations) + bool(stage.reducer)), constants,
        variables + 4 * prod(stage.shape),
    )  # fmt: skip


def peaks_of(cost: Cost, points: float, machine: Machine, target: Target) -> Peaks:
    """The machine's figures that matter to a computation; `points` is its `formula_rate`."""
    threads = machine.threads
    room = {"L1": target.l1 * threads, "L2": target.l2 * threads, "L3": target.l3}
    level = next((n for n, size in room.items() if cost.variable_bytes <= size), "")
    memory = machine.bandwidth[MEMORY]
    cache = machine.bandwidth[level or MEMORY]
    return Peaks(points, memory, cache, level or MEMORY)


def bound(cost: Cost, peaks: Peaks) -> Bound:
    """Arithmetic and the two kinds of traffic overlap at best, so that the longest decides."""
    seconds = {
        ARITHMETIC: cost.points / peaks.points,
        MEMORY: cost.constant_bytes / peaks.memory,
        CACHE: cost.variable_bytes / peaks.cache,
    }
    limit = max(seconds, key=lambda name: seconds[name])
    return Bound(seconds[limit], limit if limit != CACHE else peaks.level)


def formula_rate(stage: Stage, target: Target, threads: int) -> float:
    """Points of a stage's formula that `threads` threads evaluate in a second, from registers."""
    spare = target.vector_registers - 2 - len(set(reads(stage.body)))
    forms = {
        f"formula_{chains}_{ahead}": (chains, ahead)
        for chains, ahead in product(_CHAINS, _AHEAD)
        if chains + ahead - 1 <= spare
    }
    made = [formula_ir(stage, target, *form, name) for name, form in forms.items()]
    image = compile_ir(module(made, target), target)
    sink = GuardedBuffer(threads * target.lanes)
    table = np.array([0, 0, sink.address], dtype=np.uint64)
    run, args = pool().parallel, table.ctypes.data
    work = threads * target.lanes * _TURNS
    loads = [load_object(image, tuple(forms)) for _ in range(_LOADS)]
    return max(
        work * chains / best_seconds(partial(run, code.address(name), args, threads, threads))
        for name, (chains, _) in forms.items()
        for code in loads
    )


def formula_ir(
    stage: Stage, target: Target, chains: int, ahead: int = 1, name: str = "formula"
) -> str:
    """A region function whose unit evaluates the formula `_TURNS` times for each of `chains`
    accumulators.

    Operands stay in registers; empty inline assembly hides from LLVM that they never change.
    Raises ValueError for a formula of which no bound is known.
    """
    e = Emitter(fused=target.vector_bits > 128 or not target.is_x86)
    kind = f"<{target.lanes} x float>"
    operands = list(dict.fromkeys(reads(stage.body)))

    def turn(values: list[str]) -> list[str]:
        sums, held = values[:chains], values[chains:]
        out: list[str] = []
        while len(out) < chains:
            terms = []
            for _ in sums[len(out) : len(out) + ahead]:
                held = [_hidden(e, kind, held[0]), *held[1:]]
                known: dict[Expr, str] = dict(zip(operands, held, strict=True))
                terms.append(_terms(e, kind, stage, known))
            out += [
                _combined(e, kind, stage, value, term)
                for value, term in zip(sums[len(out) :], terms, strict=False)
            ]
        return [*out, *held]

    start = [(kind, vm.literal(1.0 + i / 64, kind)) for i in range(chains + len(operands))]
    units = e.op("sub i64 %past, %first")
    results = e.loop("turn", "0", e.op(f"mul i64 {units}, {_TURNS}"), start, turn)
    return finished_region(e, name, target, results[:chains])


def _hidden(e: Emitter, kind: str, value: str) -> str:
    return e.op(f'call {kind} asm sideeffect "", "=v,0"({kind} {value})')


def _fused(stage: Stage) -> bool:
    """Whether a point is combined by a multiply-add."""
    return stage.reducer == "sum" and isinstance(stage.body, Binary) and stage.body.op == "mul"


def _terms(e: Emitter, kind: str, stage: Stage, known: dict[Expr, str]) -> tuple[str, ...]:
    """What the accumulator is combined with at one point: two factors or one value."""
    body, free = stage.body, dict(known)
    parts = (body.x, body.y) if _fused(stage) and isinstance(body, Binary) else (body,)
    found = {p: _value(e, kind, p, free) for p in parts}
    fixed = {p: v if p in known else _hidden(e, kind, v) for p, v in found.items()}
    return tuple(fixed[p] for p in parts)


def _combined(e: Emitter, kind: str, stage: Stage, value: str, terms: tuple[str, ...]) -> str:
    """The accumulator after one more point."""
    reducer = stage.reducer
    assert reducer in REDUCERS, "a bound is that of a reduction"
    if len(terms) == 2:
        return vm.fma(e, kind, terms[0], terms[1], value)
    combine = {"sum": "add", "prod": "mul"}.get(reducer, reducer)
    return _instruction(e, kind, combine, value, terms[0])


def _value(e: Emitter, kind: str, expr: Expr, known: dict[Expr, str]) -> str:
    """An expression of reads, sums, differences, products and extrema; equal ones once."""
    if expr not in known:
        if not isinstance(expr, Binary):
            raise ValueError(f"no bound is known of {expr}")
        x, y = _value(e, kind, expr.x, known), _value(e, kind, expr.y, known)
        known[expr] = _instruction(e, kind, expr.op, x, y)
    return known[expr]


def _instruction(e: Emitter, kind: str, op: str, x: str, y: str) -> str:
    """One vector instruction: extrema as the instruction gives them, whatever NaN should give."""
    if op in ("max", "min"):
        flags = e.op(f"fcmp {'ogt' if op == 'max' else 'olt'} {kind} {x}, {y}")
        lanes = kind.replace("float", "i1")
        return e.op(f"select {lanes} {flags}, {kind} {x}, {kind} {y}")
    return e.op(f"f{op} {kind} {x}, {y}")
