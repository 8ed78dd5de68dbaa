"""The memory plan: where each buffer of a network lies in one arena.

In: buffers with their sizes and lifetimes over the steps.  Out: byte offsets.  Buffers that are
never alive together may share memory.

Halos and padded channels are zeroed once, when the arena is made, and no kernel puts anything else
there.  So a buffer with such cells only shares its place with buffers that have the very same
ones; then no step ever has to clear anything.  All other buffers are placed best-fit, large ones
first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.expr import Layout
from engine.runtime.buffers import ALIGN, covered

SLACK = 256
"""Bytes before, after and between buffers that a vector load may touch."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` floats, alive from step `first` to step `last`, both included.

    Equal `zeros` mean equal size and the same cells that must stay zero; "" if there are none.
    """

    name: str
    size: int
    first: int
    last: int
    zeros: str = ""

    def meets(self, other: Buffer) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets (multiples of 64) into an arena of `size` bytes."""

    offsets: Mapping[str, int]
    size: int


def plan_memory(buffers: Sequence[Buffer]) -> MemoryPlan:
    """An arena in which no two buffers that are alive together overlap."""
    offsets, end = _place([b for b in buffers if not b.zeros], SLACK)
    classes: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        if buffer.zeros:
            classes.setdefault(buffer.zeros, []).append(buffer)
    for group in classes.values():
        slots, end = _slots(group, end)
        offsets.update(slots)
    return MemoryPlan(offsets, end + SLACK)


def _bytes(buffer: Buffer) -> int:
    return -(-buffer.size * 4 // ALIGN) * ALIGN


def _place(buffers: Sequence[Buffer], start: int) -> tuple[dict[str, int], int]:
    """Greedy by size: each buffer goes into the smallest gap that it fits."""
    placed: list[tuple[int, int, Buffer]] = []
    offsets: dict[str, int] = {}
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.first, b.name)):
        need = _bytes(buffer)
        taken = sorted((low, high) for low, high, other in placed if other.meets(buffer))
        best, best_gap, at = -1, None, start
        for low, high in taken:
            gap = low - at
            if gap >= need and (best_gap is None or gap < best_gap):
                best, best_gap = at, gap
            at = max(at, high)
        offset = at if best_gap is None else best
        offsets[buffer.name] = offset
        placed.append((offset, offset + need, buffer))
    return offsets, max((high for _, high, _ in placed), default=start)


def _slots(group: Sequence[Buffer], start: int) -> tuple[dict[str, int], int]:
    """Equal buffers in equal slots; a slot that was free last is taken first: it is in cache."""
    step = max(_bytes(b) for b in group)
    offsets: dict[str, int] = {}
    ends: list[int] = []  # last step of each slot's newest buffer
    for buffer in sorted(group, key=lambda b: (b.first, b.name)):
        free = [i for i, last in enumerate(ends) if last < buffer.first]
        if free:
            slot = max(free, key=lambda i: ends[i])
            ends[slot] = buffer.last
        else:
            slot = len(ends)
            ends.append(buffer.last)
        offsets[buffer.name] = start + slot * step
    return offsets, start + len(ends) * step


def zero_cells(size: int, layouts: Iterable[Layout]) -> str:
    """A key for the cells of a buffer that none of its values covers; "" if there are none."""
    mask = covered(size, layouts)
    if mask.all():
        return ""
    return f"{size}-{hashlib.sha1(np.packbits(mask).tobytes(), usedforsecurity=False).hexdigest()}"
