"""Where the elements of a tensor lie in its buffer.

A layout maps a logical index to a float offset: each axis has a stride, and one axis may be cut
into blocks of `block` (NCHW[c]: `block` consecutive channels lie together, `strides[axis]` is the
step from block to block).  `halo` says how many elements beyond each end of an axis may be read
and are zero.  Views (slices, concatenation, transposition) are layouts over the same buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod


@dataclass(frozen=True, slots=True)
class Layout:
    """`offset` of element 0 and all strides are in floats; `size` floats in the whole buffer."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size: int
    block_axis: int = -1
    block: int = 1
    halo: tuple[tuple[int, int], ...] = ()

    @property
    def blocked(self) -> bool:
        return self.block > 1

    def halo_of(self, axis: int) -> tuple[int, int]:
        return self.halo[axis] if self.halo else (0, 0)

    def flat(self, index: tuple[int, ...]) -> int:
        """Offset of one element, in floats."""
        total = self.offset
        for axis, (i, stride) in enumerate(zip(index, self.strides, strict=True)):
            if axis == self.block_axis and self.blocked:
                total += i // self.block * stride + i % self.block
            else:
                total += i * stride
        return total


def row_major(shape: tuple[int, ...]) -> Layout:
    """Plain C order, no halo."""
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    return Layout(shape, strides, 0, prod(shape))


def channel_blocked(
    shape: tuple[int, ...], block: int, halo: tuple[tuple[int, int], ...] = ()
) -> Layout:
    """NC...[c]: axis 1 in blocks (the last one padded), spatial axes with a zero halo.

    `shape` has at least three axes; `halo` has one pair per axis of `shape` (or is empty).
    """
    halo = halo or tuple((0, 0) for _ in shape)
    blocks = -(-shape[1] // block)
    spatial = [shape[i] + sum(halo[i]) for i in range(2, len(shape))]
    strides = [0] * len(shape)
    step, offset = block, 0
    for i in reversed(range(2, len(shape))):
        strides[i] = step
        offset += halo[i][0] * step
        step *= spatial[i - 2]
    strides[1] = step
    strides[0] = step * blocks
    return Layout(shape, tuple(strides), offset, strides[0] * shape[0], 1, block, tuple(halo))


def transposed(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """The view whose axis i is axis perm[i] of a plain layout."""
    assert not layout.blocked
    return replace(
        layout,
        shape=tuple(layout.shape[p] for p in perm),
        strides=tuple(layout.strides[p] for p in perm),
        halo=tuple(layout.halo[p] for p in perm) if layout.halo else (),
    )
