"""The native driver: LLVM IR that runs a network's kernels in order.

In: the program's steps.  Out: one function for each stretch of kernels between host calls,
`void segment_i(ptr table, i64 threads)`, and a twin `void timed_i(ptr table, i64 threads, ptr
clock)` that stores nanoseconds before the first and after each step.

The table holds pointers, eight bytes each: for every call its arguments, then the workspace.
Inputs are copied into their buffers at the head of the first segment, outputs out of them at the
end of the last, by regions of `engine.runtime.copies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.expr import Layout, row_major
from engine.runtime.copies import COPY_UNITS, copy_region
from engine.runtime.program import BUFFER, HostStep, KernelStep, Program, Tensor

SERIAL_COPY = 1 << 14
"""Floats; smaller copies are not worth a fork."""


@dataclass(frozen=True, slots=True)
class Call:
    """One entry of a segment: regions (with their units) to run with the table's pointers from
    `slot` on."""

    name: str
    regions: tuple[tuple[str, int], ...]
    slot: int
    serial: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls without a host call between them."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """Where everything stands: segments and host steps in order, and the table's slots.

    `input_slots` and `output_slots` say where the caller's pointers go.
    """

    order: tuple[Segment | HostStep, ...]
    slots: int
    input_slots: tuple[tuple[Tensor, int], ...]
    output_slots: tuple[tuple[Tensor, int], ...]
    kernel_slots: tuple[tuple[KernelStep, int], ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(s for s in self.order if isinstance(s, Segment))


def schema(program: Program) -> Schema:
    """The table and the segments of a program; the loader and the compiler agree by this."""
    regions = {k.name: tuple(zip(k.regions, k.units, strict=True)) for k in program.kernels}
    order: list[Segment | HostStep] = []
    calls: list[Call] = []
    slot = 0

    def copies(tensors: Sequence[Tensor], prefix: str) -> list[tuple[Tensor, int]]:
        nonlocal slot
        found = []
        for i, tensor in enumerate(tensors):
            if tensor.place != BUFFER:
                continue
            small = _size(tensor.shape) < SERIAL_COPY
            calls.append(
                Call(f"{prefix} {tensor.name}", ((f"{prefix}_{i}", COPY_UNITS),), slot, small)
            )
            found.append((tensor, slot))
            slot += 2
        return found

    inputs = copies(program.inputs, "read")
    kernels = []
    for step in program.steps:
        if isinstance(step, HostStep):
            order += [Segment(tuple(calls)), step] if calls else [step]
            calls = []
            continue
        calls.append(Call(step.name, regions[step.kernel], slot))
        kernels.append((step, slot))
        slot += len(step.args) + 1
    outputs = copies(program.outputs, "write")
    if calls:
        order.append(Segment(tuple(calls)))
    return Schema(tuple(order), slot, tuple(inputs), tuple(outputs), tuple(kernels))


def exports(plan: Schema) -> tuple[str, ...]:
    return tuple(f"{kind}_{i}" for i in range(len(plan.segments)) for kind in ("segment", "timed"))


def driver_ir(program: Program) -> str:
    """The driver's module; kernels and the pool are external."""
    plan = schema(program)
    parts = [_HEAD]
    for kernel in program.kernels:
        parts += [f"declare void @{region}(ptr, i64, i64, i64)" for region in kernel.regions]
    parts += [_copy("read", i, t) for i, t in enumerate(program.inputs) if t.place == BUFFER]
    parts += [_copy("write", i, t) for i, t in enumerate(program.outputs) if t.place == BUFFER]
    for number, segment in enumerate(plan.segments):
        parts.append(_segment(f"segment_{number}", segment, timed=False))
        parts.append(_segment(f"timed_{number}", segment, timed=True))
    return "\n".join(parts)


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _copy(kind: str, index: int, tensor: Tensor) -> str:
    assert tensor.layout is not None
    mine: Layout = row_major(tensor.shape)
    sides = (mine, tensor.layout) if kind == "read" else (tensor.layout, mine)
    return copy_region(f"{kind}_{index}", *sides)


def _segment(name: str, segment: Segment, *, timed: bool) -> str:
    extra = ", ptr %clock" if timed else ""
    lines = [
        f"define void @{name}(ptr %table, i64 %threads{extra}) {{",
        "  call void @noctune_enter(i64 %threads)",
        "  %mode = call i64 @noctune_fp_enter()",
    ]
    if timed:
        lines.append("  call void @stamp(ptr %clock, i64 0)")
    for i, call in enumerate(segment.calls):
        lines.append(f"  %a{i} = getelementptr ptr, ptr %table, i64 {call.slot}")
        threads = "1" if call.serial else "%threads"
        lines += [
            f"  call void @noctune_parallel(ptr @{region}, ptr %a{i}, i64 {threads}, i64 {units})"
            for region, units in call.regions
        ]
        if timed:
            lines.append(f"  call void @stamp(ptr %clock, i64 {i + 1})")
    return "\n".join([*lines, "  call void @noctune_fp_leave(i64 %mode)", "  ret void", "}", ""])


_HEAD = """
declare void @noctune_parallel(ptr, ptr, i64, i64)
declare void @noctune_enter(i64)
declare i64 @noctune_fp_enter()
declare void @noctune_fp_leave(i64)
declare i32 @clock_gettime(i32, ptr)

define internal void @stamp(ptr %clock, i64 %at) noinline {
  %now = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 1, ptr %now)
  %s = load i64, ptr %now
  %n.at = getelementptr { i64, i64 }, ptr %now, i64 0, i32 1
  %n = load i64, ptr %n.at
  %ns = mul i64 %s, 1000000000
  %sum = add i64 %ns, %n
  %slot = getelementptr i64, ptr %clock, i64 %at
  store i64 %sum, ptr %slot
  ret void
}
"""
