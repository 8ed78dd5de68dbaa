"""Scalar expressions to vector instructions at one point of a register tile.

A value is an SSA name or literal of type `kind`, or a Python float when it is known at compile time
(constant matrices of Winograd transforms fold away).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from engine.codegen import vector_math as vm
from engine.codegen.access import Address, Memory, Symbolic
from engine.expr import (
    Affine,
    Binary,
    Compare,
    ComputeDag,
    Const,
    Expr,
    Read,
    Select,
    Stage,
    Unary,
    var,
)  # fmt: skip

Env = Mapping[str, Affine]
Operand = str | float


class Values:
    """Evaluates expressions; loads and inlined stages are remembered until `forget`."""

    def __init__(
        self,
        memory: Memory,
        dag: ComputeDag,
        inlined: Mapping[str, Stage],
        address: Callable[[Read, Env], Address],
    ) -> None:
        self.m, self.e, self.dag, self.inlined = memory, memory.e, dag, inlined
        self._address = address
        self.known: dict[str, str] = {}
        """Tensor -> its value at the current point (the head and epilogue stages)."""
        self._memo: dict[object, Operand] = {}
        self._over: dict[Affine, Affine] = {}
        self.axis_map: Env = {}
        """The head's axes over sub-loops; set by the nest that is being lowered."""
        self.kind = "float"
        self.lanes = 1
        self.valid = 1
        """Lanes of the current vector that lie inside the vector axis."""

    def forget(self) -> None:
        self._memo.clear()

    def text(self, value: Operand) -> str:
        return value if isinstance(value, str) else vm.literal(value, self.kind)

    def get(self, expr: Expr, env: Env) -> Operand:
        match expr:
            case Const(value):
                return value
            case Read():
                return self._read(expr, env)
            case Unary(op, x):
                return vm.UNARY[op](self.e, self.kind, self.text(self.get(x, env)))
            case Binary():
                return self._binary(expr, env)
            case Select(condition, x, y):
                flag = "i1" if self.kind == "float" else self.kind.replace("float", "i1")
                test = self._compare(condition, env)
                a, b = self.text(self.get(x, env)), self.text(self.get(y, env))
                return self.e.op(f"select {flag} {test}, {self.kind} {a}, {self.kind} {b}")
        raise TypeError(f"not a value: {expr}")

    def body(self, stage: Stage, env: Env) -> Operand:
        """The value of an elementwise stage."""
        return self.get(stage.body, env)

    def _compare(self, c: Compare, env: Env) -> str:
        x, y = self.text(self.get(c.x, env)), self.text(self.get(c.y, env))
        return self.e.op(f"fcmp {vm.COMPARE[c.op]} {self.kind} {x}, {y}")

    def _binary(self, expr: Binary, env: Env) -> Operand:
        if expr.op == "add" and isinstance(expr.x, Binary) and expr.x.op == "mul":
            x, y = self.get(expr.x.x, env), self.get(expr.x.y, env)
            z = self.get(expr.y, env)
            return vm.fma(self.e, self.kind, self.text(x), self.text(y), self.text(z))
        x, y = self.get(expr.x, env), self.get(expr.y, env)
        if expr.op == "pow" and isinstance(y, float) and y in (2.0, 0.5, -1.0):
            return self._simple_power(self.text(x), y)
        if expr.op in ("max", "min") and isinstance(y, float) and y == y:
            clamp = vm.clamp_low if expr.op == "max" else vm.clamp_high
            return clamp(self.e, self.kind, self.text(x), self.text(y))
        return vm.BINARY[expr.op](self.e, self.kind, self.text(x), self.text(y))

    def _simple_power(self, x: str, y: float) -> str:
        if y == 2.0:
            return vm.arith(self.e, self.kind, "fmul", x, x)
        return vm.UNARY["sqrt" if y == 0.5 else "reciprocal"](self.e, self.kind, x)

    def _read(self, read: Read, env: Env) -> Operand:
        if read.tensor in self.known:
            return self.known[read.tensor]
        if read.tensor in self.dag.constants:
            row, column = (self._at(i.substitute(env))[1] for i in read.index)
            return float(self.dag.constants[read.tensor][row][column])
        stage = self.inlined.get(read.tensor)
        if stage is not None:
            return self._inline(stage, read, env)
        return self._load(read, env)

    def _inline(self, stage: Stage, read: Read, env: Env) -> Operand:
        inner = {a.name: i.substitute(env) for a, i in zip(stage.axes, read.index, strict=True)}
        if stage.reducer is None:
            return self.get(stage.body, inner)
        key = (stage.name, tuple([self._at(i) for i in inner.values()]))
        if key not in self._memo:
            self._memo[key] = self.unrolled_sum(stage, inner)
        return self._memo[key]

    def _at(self, index: Affine) -> tuple[Symbolic, int]:
        """An index over the head's axes: loop variables in scope, and the current point."""
        over = self._over.get(index)
        if over is None:
            over = self._over[index] = index.substitute(self.axis_map)
        return self.m.split(over)

    def unrolled_sum(self, stage: Stage, env: Env) -> Operand:
        """Sum over all points of the reduction axes; the body is matrix element times value."""
        total: Operand | None = None
        names = [a.name for a in stage.reduce_axes]
        for at in product(*(range(a.extent) for a in stage.reduce_axes)):
            here = dict(env) | {n: Affine((), v) for n, v in zip(names, at, strict=True)}
            body = stage.body
            if not (isinstance(body, Binary) and body.op == "mul"):
                total = self._accumulate(total, 1.0, body, here)
                continue
            factor = self.get(body.x, here)
            if factor == 0.0:
                continue
            assert isinstance(factor, float)
            total = self._accumulate(total, factor, body.y, here)
        return 0.0 if total is None else total

    def _accumulate(self, total: Operand | None, factor: float, term: Expr, env: Env) -> Operand:
        value = self.text(self.get(term, env))
        if total is None:
            if factor == 1.0:
                return value
            return vm.arith(self.e, self.kind, "fmul", value, vm.literal(factor, self.kind))
        base = self.text(total)
        if factor == 1.0:
            return vm.arith(self.e, self.kind, "fadd", base, value)
        if factor == -1.0:
            return vm.arith(self.e, self.kind, "fsub", base, value)
        return vm.fma(self.e, self.kind, value, vm.literal(factor, self.kind), base)

    def _load(self, read: Read, env: Env) -> str:
        address = self._address(read, env)
        index = address.index if address.flat is None else (address.flat,)
        place = tuple([self.m.split(i) for i in index])
        bounded = tuple([self.m.split(g.index) for g in address.guards])
        key = (address.buffer, address.guards, place, bounded, self.valid, read.fill, self.kind)
        value = self._memo.get(key)
        if value is None:
            if address.even and address.lane in (0, 1):
                value = self._load_now(address, read.fill, *place[0])
            else:
                value = self._gather(address, read.fill)
            self._memo[key] = value
        return self.text(value)

    def _load_now(
        self, address: Address, fill: float | None, symbolic: Symbolic, const: int
    ) -> Operand:
        inside = self.m.inside(address)
        if inside is False:
            return 0.0 if fill is None else fill
        pointer = self.m.element(address.buffer, symbolic, const)
        if isinstance(inside, str):
            base = self.m.bases[address.buffer]
            pointer = self.e.op(f"select i1 {inside}, ptr {pointer}, ptr {base}")
        value = self._fetch(pointer, address.lane)
        if isinstance(inside, str) and fill is not None:
            other = vm.literal(fill, self.kind)
            value = self.e.op(f"select i1 {inside}, {self.kind} {value}, {self.kind} {other}")
        return value

    def _fetch(self, pointer: str, lane: int) -> str:
        if self.lanes == 1:
            return self.e.op(f"load float, ptr {pointer}, align 4")
        if lane == 1:
            return self.e.op(f"load {self.kind}, ptr {pointer}, align 4")
        single = self.e.op(f"load float, ptr {pointer}, align 4")
        return self.splat(single)

    def splat(self, single: str) -> str:
        first = self.e.op(f"insertelement {self.kind} poison, float {single}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.e.op(f"shufflevector {self.kind} {first}, {self.kind} poison, {mask}")

    def _gather(self, address: Address, fill: float | None) -> str:
        """Lane by lane, for strides that vectors cannot load."""
        result = "zeroinitializer" if self.lanes > 1 else "0.0"
        for lane in range(min(self.valid, self.lanes)):
            single = self._lane(address, lane, fill)
            if self.lanes == 1:
                return single
            result = self.e.op(f"insertelement {self.kind} {result}, float {single}, i64 {lane}")
        return result

    def _lane(self, address: Address, lane: int, fill: float | None) -> str:
        """One float of a vector."""
        other = vm.literal(fill or 0.0, "float")
        pointer, inside = self.m.lane_location(address, lane)
        if inside is False:
            return other
        if inside is True:
            return self.e.op(f"load float, ptr {pointer}, align 4")
        base = self.m.bases[address.buffer]
        pointer = self.e.op(f"select i1 {inside}, ptr {pointer}, ptr {base}")
        single = self.e.op(f"load float, ptr {pointer}, align 4")
        return self.e.op(f"select i1 {inside}, float {single}, float {other}")


def point_env(stage: Stage) -> dict[str, Affine]:
    """Each axis of a stage as itself."""
    return {a.name: var(a.name) for a in stage.axes + stage.reduce_axes}
