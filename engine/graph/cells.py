"""Cells: pieces of memory with a layout, before the layouts are known.

A cell holds one tensor in one format.  It is either a root with a buffer of its own, or a view of
another cell.  Halos are collected while consumers are visited; `Cells.layout` then gives the final
layout of every cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod

from engine.expr import Layout, channel_blocked, row_major, transposed

Shape = tuple[int, ...]
Halo = tuple[tuple[int, int], ...]
View = Callable[[Layout], Layout]


class Format(StrEnum):
    """How a tensor lies in memory."""

    PLAIN = "plain"
    BLOCKED = "blocked"


def block_of(shape: Sequence[int], lanes: int) -> int:
    """Channels in a block of a tensor [N, C, ...]."""
    return min(lanes, shape[1])


def canonical(shape: Shape, form: Format, lanes: int, halo: Halo = ()) -> Layout:
    """The layout of a tensor alone in its buffer."""
    if form is Format.PLAIN:
        return row_major(shape)
    return channel_blocked(shape, block_of(shape, lanes), halo if any(map(any, halo)) else ())


def same_memory(shape: Shape, lanes: int) -> bool:
    """Whether the plain and the blocked layout of that shape, without halo, are the same bytes."""
    if len(shape) < 3:
        return False
    block = block_of(shape, lanes)
    return block == 1 or (prod(shape[2:]) == 1 and shape[1] % block == 0)


def contiguous(layout: Layout) -> bool:
    """Whether the elements lie in C order without gaps."""
    return not layout.blocked and _dense(layout.shape) == _dense_strides(layout)


def _dense(shape: Shape) -> Shape:
    return tuple(s for s, n in zip(row_major(shape).strides, shape, strict=True) if n > 1)


def _dense_strides(layout: Layout) -> Shape:
    return tuple(s for s, n in zip(layout.strides, layout.shape, strict=True) if n > 1)


@dataclass
class Cell:
    """One tensor in memory; `frozen` cells take no halo."""

    name: str
    shape: Shape
    form: Format
    parent: str = ""
    view: View | None = None
    keeps_halo: bool = False
    frozen: bool = False
    halo: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Cells:
    """All cells by name."""

    lanes: int
    table: dict[str, Cell] = field(default_factory=dict)

    def root(self, name: str, shape: Shape, form: Format) -> Cell:
        """A new cell with a buffer of its own."""
        cell = Cell(name, shape, form, halo=[(0, 0)] * len(shape))
        self.table[name] = cell
        return cell

    def view(
        self, name: str, parent: str, shape: Shape, form: Format, view: View, *, halo: bool = False
    ) -> Cell:
        """A new cell inside another; `halo` if zeros around the parent are zeros around it."""
        cell = Cell(name, shape, form, parent, view, halo)
        self.table[name] = cell
        return cell

    def want_halo(self, name: str, halo: Halo) -> None:
        """Widens the zero border of the buffer, if it can have one."""
        cell = self.table[name]
        while cell.parent and cell.keeps_halo:
            cell = self.table[cell.parent]
        if cell.parent or cell.frozen or cell.form is Format.PLAIN:
            return
        cell.halo = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(cell.halo, halo, strict=True)]

    def freeze(self, name: str) -> bool:
        """Promises that the buffer has no halo; False if it has one already."""
        cell = self.table[name]
        while cell.parent:
            cell = self.table[cell.parent]
        if any(map(any, cell.halo)):
            return False
        cell.frozen = True
        return True

    def layout(self, name: str) -> Layout:
        """The layout as far as halos are known by now; final once all consumers were visited."""
        cell = self.table[name]
        if not cell.parent:
            return canonical(cell.shape, cell.form, self.lanes, tuple(cell.halo))
        assert cell.view is not None
        return cell.view(self.layout(cell.parent))

    def buffer(self, name: str) -> str:
        """The root cell that the cell lies in."""
        while self.table[name].parent:
            name = self.table[name].parent
        return name

    def contiguous(self, name: str) -> bool:
        """Whether the cell is plain, in C order, without gaps."""
        return contiguous(self.layout(name))


def sliced(axis: int, start: int, count: int, step: int = 1) -> View:
    """`count` elements of one axis from `start` on; a channel slice keeps the spatial halo."""

    def view(layout: Layout) -> Layout:
        shape = (*layout.shape[:axis], count, *layout.shape[axis + 1 :])
        blocked = axis == layout.block_axis and layout.blocked
        jump = start // layout.block if blocked else start
        strides = list(layout.strides)
        offset = layout.offset + jump * strides[axis]
        halo = layout.halo
        if not blocked:
            strides[axis] *= step
            if halo:
                halo = (*halo[:axis], (0, 0), *halo[axis + 1 :])
        return replace(layout, shape=shape, strides=tuple(strides), offset=offset, halo=halo)

    return view


def reshaped(shape: Shape) -> View:
    """Another shape over the same dense elements."""

    def view(layout: Layout) -> Layout:
        return replace(row_major(shape), offset=layout.offset, size=layout.size)

    return view


def reinterpreted(form: Format, lanes: int) -> View:
    """The other format over the same bytes (see `same_memory`)."""

    def view(layout: Layout) -> Layout:
        other = canonical(layout.shape, form, lanes)
        return replace(other, offset=layout.offset, size=layout.size)

    return view


def permuted(perm: tuple[int, ...]) -> View:
    """Axis i of the view is axis perm[i]."""
    return lambda layout: transposed(layout, perm)


def unpermuted(perm: tuple[int, ...]) -> View:
    """The inverse of `permuted`."""
    inverse = tuple(perm.index(i) for i in range(len(perm)))
    return lambda layout: transposed(layout, inverse)
