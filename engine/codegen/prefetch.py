"""Prefetching: what is needed next comes into the cache while there is arithmetic to do.

A register tile's results and the other operands of its epilogue are asked for before the sum
starts: in a network they often lie in memory by then.  Of constants a whole panel is prefetched
while the one before is used: what is read between two steps of the innermost loops that do not move
along the constant.  Each of their `T` passes reads the panel again, so that cold weights would come
from memory in the first pass only, which then waits, while the others leave the memory idle.
Instead each pass asks for its `1/T` of the panel that follows.

In: the order of a nest's loops and of a packed constant.  Out: what each innermost body prefetches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from engine.codegen.access import Memory
from engine.codegen.kernel import Packing
from engine.expr import Affine, row_major, var

LINE = 16
"""Floats of a cache line."""

WORTH_IT = 16
"""Terms of a sum from which on it hides the way to memory."""

_SMALLEST, _LARGEST = 1 << 8, 1 << 15
"""Floats of a panel: smaller ones are no stream, larger ones leave no room for the next."""


@dataclass(frozen=True, slots=True)
class Panel:
    """`size` floats, read once in each of the passes over the loops `passes` (name, trips)."""

    passes: tuple[tuple[str, int], ...]
    size: int

    @property
    def times(self) -> int:
        return prod(trips for _, trips in self.passes)


def find_panel(
    outer: Sequence[str], packed: Sequence[tuple[str, int]], counts: Mapping[str, int]
) -> Panel | None:
    """The panel of a constant packed by the loops `packed` inside the loops `outer`, outermost
    first; None where prefetching would not help."""
    moving = {name for name, trips in packed if trips > 1}
    rest = [name for name in outer if counts[name] > 1]
    while rest and rest[-1] in moving:
        rest.pop()
    passes: list[tuple[str, int]] = []
    while rest and rest[-1] not in moving:
        passes.insert(0, (rest[-1], counts[rest.pop()]))
    if not passes or not moving.intersection(rest):
        return None
    size = prod(trips for name, trips in packed if name not in rest)
    return Panel(tuple(passes), size) if _SMALLEST <= size <= _LARGEST else None


def prefetch_panel(memory: Memory, packing: Packing, tensor: str, outer: Sequence[str]) -> None:
    """In an innermost reduction body: prefetch its part of the panel that follows."""
    panel = find_panel(outer, packing.loops, memory.counts)
    if panel is None:
        return
    layout = row_major(tuple(extent for _, extent in packing.loops))
    flat, body = Affine(), 1
    rolled = {scope.variable for scope in memory.e.scopes}
    for (name, extent), stride in zip(packing.loops, layout.strides, strict=True):
        if name in rolled or name in memory.points:
            flat = flat + var(name) * stride
        else:
            body *= extent
    lines = -(-body // LINE)
    symbolic, const = memory.split(flat)
    start = memory.at(memory.pointer(tensor, symbolic), _shift(memory, panel, lines))
    for line in range(-(-lines // panel.times)):
        prefetch(memory, memory.at(start, const + panel.size + line * LINE), near=2)


def _shift(memory: Memory, panel: Panel, lines: int) -> str:
    """Floats from the body's start to the part of this pass: `pass * lines / passes` lines."""
    e, last, value = memory.e, "", "0"
    for name, trips in panel.passes:
        known = memory.points.get(name)
        at = e.value_of(name) if known is None else str(known)
        last = name if known is None else last
        value = e.hoisted([last], f"mul nsw i64 {value}, {trips}")
        value = e.hoisted([last], f"add nsw i64 {value}, {at}")
    value = e.hoisted([last], f"mul nsw i64 {value}, {lines}")
    value = e.hoisted([last], f"udiv i64 {value}, {panel.times}")
    return e.hoisted([last], f"mul nsw i64 {value}, {LINE}")


def prefetch(memory: Memory, pointer: str, *, write: bool = False, near: int = 3) -> None:
    """Ask for the line of `pointer`: to the first level of cache (`near` 3) or the second (2)."""
    memory.e.put(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 {near}, i32 1)")
