"""Addresses: from a logical index and a layout to pointers, guards, loads and stores.

In: affine indices over a nest's sub-loops.  Out: IR through an Emitter.  An address is a pointer
for the symbolic part (hoisted to the loop that defines it) plus a constant offset for the unrolled
part, so that a register tile's loads differ only in immediates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.codegen.emitter import Emitter
from engine.expr import Affine, Layout
from engine.space.nest import LANE

Symbolic = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """The index must lie in [low, high); it may not for some points of the loops."""

    index: Affine
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Address:
    """`flat` is the offset in floats over sub-loops, `lane` its step from lane to lane; None if
    blocks and index do not line up, then `index` is evaluated dimension by dimension.

    `ragged`: a guard may hold for some lanes and not for others.
    `padded`: a store may put zeros where the vector runs over the end of its axis, since there
    is nothing but the last block's padding.
    """

    buffer: str
    layout: Layout
    index: tuple[Affine, ...]
    flat: Affine | None
    lane: int
    guards: tuple[Guard, ...]
    ragged: bool
    padded: bool = False

    @property
    def even(self) -> bool:
        """Whether the lanes are equally far apart, and all inside or all outside."""
        return self.flat is not None and not self.ragged


def resolve(
    buffer: str,
    layout: Layout,
    axis_index: Sequence[Affine],
    axis_extents: Mapping[str, int],
    axis_map: Mapping[str, Affine],
    counts: Mapping[str, int],
    *,
    zero_fill: bool,
) -> Address:
    """The address of `layout[axis_index]`.

    `axis_index` is over axes, `axis_map` gives each axis over sub-loops that run `counts` times.
    With `zero_fill`, reading the layout's zero halo is as good as a guard.
    """
    guards = []
    index = []
    for dim, (affine, size) in enumerate(zip(axis_index, layout.shape, strict=True)):
        low, high = affine.bounds(axis_extents)
        over = affine.substitute(axis_map)
        index.append(over)
        before, after = layout.halo_of(dim) if zero_fill else (0, 0)
        if low < -before or high > size - 1 + after:
            guards.append(Guard(over, -before, size + after))
    flat = _flatten(layout, index, counts)
    lane = flat.coeff(LANE) if flat is not None else -1
    ragged = any(g.index.coeff(LANE) for g in guards)
    return Address(buffer, layout, tuple(index), flat, lane, tuple(guards), ragged)


def _flatten(layout: Layout, index: Sequence[Affine], counts: Mapping[str, int]) -> Affine | None:
    total = Affine((), layout.offset)
    for dim, affine in enumerate(index):
        used = Affine.of([t for t in affine.terms if counts[t[0]] > 1], affine.const)
        if dim != layout.block_axis or not layout.blocked:
            total = total + used * layout.strides[dim]
            continue
        block = layout.block
        inner = Affine.of([t for t in used.terms if t[1] % block], used.const % block)
        low, high = inner.bounds(counts)
        if low < 0 or high >= block:
            return None
        outer = Affine.of(
            [(n, c // block) for n, c in used.terms if c % block == 0], used.const // block
        )
        total = total + outer * layout.strides[dim] + inner
    return total


def _at_lane(affine: Affine, lane: int) -> Affine:
    terms = [t for t in affine.terms if t[0] != LANE]
    return Affine.of(terms, affine.const + lane * affine.coeff(LANE))


class Memory:
    """Emits pointers, conditions, loads and stores for one function."""

    def __init__(self, emitter: Emitter, counts: Mapping[str, int]) -> None:
        self.e = emitter
        self.counts = dict(counts)
        self.points: dict[str, int] = {}
        self.bases: dict[str, str] = {}

    def split(self, affine: Affine) -> tuple[Symbolic, int]:
        """The part over loop variables in scope, and the constant of the current point."""
        const = affine.const
        symbolic = []
        for name, coeff in affine.terms:
            if name == LANE:
                continue
            value = self.points.get(name)
            if value is None:
                symbolic.append((name, coeff))
            else:
                const += coeff * value
        return tuple(symbolic), const

    def _depth(self, name: str) -> int:
        for depth, scope in enumerate(self.e.scopes):
            if scope.variable == name:
                return depth
        raise KeyError(f"loop variable {name} is not in scope")

    def integer(self, symbolic: Symbolic, const: int) -> str:
        """SSA i64 of an affine expression, hoisted as far out as its variables allow."""
        ordered = sorted(symbolic, key=lambda t: self._depth(t[0]))
        value = str(const)
        for name, coeff in ordered:
            value = self.e.hoisted([name], f"add nsw i64 {value}, {self.e.scaled(name, coeff)}")
        return value

    def pointer(self, buffer: str, symbolic: Symbolic) -> str:
        """Pointer to the element at the symbolic part of an offset."""
        memo = self.e.scopes[-1].memo
        known = memo.get((buffer, symbolic))
        if known is not None:
            return known
        pointer = self.bases[buffer]
        for name, coeff in sorted(symbolic, key=lambda t: self._depth(t[0])):
            pointer = self.e.moved(name, pointer, coeff)
        memo[buffer, symbolic] = pointer
        return pointer

    def at(self, pointer: str, offset: int | str) -> str:
        if offset == 0:
            return pointer
        return self.e.op(f"getelementptr float, ptr {pointer}, i64 {offset}", "p")

    def inside(self, address: Address, lane: int = 0) -> str | bool:
        """Whether the current point's lane is inside the tensor: known, or an SSA i1."""
        conditions = []
        for guard in address.guards:
            symbolic, const = self.split(_at_lane(guard.index, lane))
            low, high = Affine.of(symbolic, const).bounds(self.counts)
            if low >= guard.low and high < guard.high:
                continue
            if high < guard.low or low >= guard.high:
                return False
            value = self.integer(symbolic, const - guard.low)
            test = f"icmp ult i64 {value}, {guard.high - guard.low}"
            conditions.append(self.e.hoisted([n for n, _ in symbolic], test))
        return self._all(conditions)

    def location(self, address: Address) -> str:
        """Pointer to the current point (its lane 0); only for addresses with `flat`."""
        assert address.flat is not None
        return self.element(address.buffer, *self.split(address.flat))

    def element(self, buffer: str, symbolic: Symbolic, const: int) -> str:
        """Pointer to the element at an offset that `split` gave."""
        return self.at(self.pointer(buffer, symbolic), const)

    def lane_location(self, address: Address, lane: int) -> tuple[str, str | bool]:
        """Pointer and inside-condition of one lane."""
        inside = self.inside(address, lane)
        if address.flat is not None:
            symbolic, const = self.split(address.flat)
            return self.element(address.buffer, symbolic, const + lane * address.lane), inside
        layout = address.layout
        offset = str(layout.offset)
        for dim, affine in enumerate(address.index):
            value = self.integer(*self.split(_at_lane(affine, lane)))
            offset = self._add_dimension(layout, dim, value, offset)
        return self.at(self.bases[address.buffer], offset), inside

    def _all(self, conditions: Sequence[str]) -> str | Literal[True]:
        """The conjunction of SSA conditions; True for none."""
        if not conditions:
            return True
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.e.op(f"and i1 {result}, {condition}")
        return result

    def _add_dimension(self, layout: Layout, dim: int, value: str, offset: str) -> str:
        if dim == layout.block_axis and layout.blocked:
            block = self.e.op(f"sdiv i64 {value}, {layout.block}")
            within = self.e.op(f"srem i64 {value}, {layout.block}")
            offset = self.e.op(f"add i64 {offset}, {within}")
            value = block
        step = self.e.op(f"mul i64 {value}, {layout.strides[dim]}")
        return self.e.op(f"add i64 {offset}, {step}")
