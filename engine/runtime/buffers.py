"""Arrays to and from the buffers that kernels read.

In: logical arrays (ONNX axis order) and the `Layout` of a buffer.  Out: flat float32 buffers that
start on a cache line, halo and padded channels zero; and back.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from engine.expr import Layout

HUGE = 2 << 20
"""Bytes of a huge page."""
ALIGN = 64
"""Bytes; a cache line and the widest vector."""


def aligned_empty(n: int, align: int = ALIGN) -> NDArray[np.float32]:
    """`n` uninitialised floats whose address is a multiple of `align` bytes."""
    raw = np.empty(n * 4 + align, dtype=np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + n * 4].view(np.float32)


def aligned_zeros(n: int, align: int = ALIGN) -> NDArray[np.float32]:
    """`n` zero floats whose address is a multiple of `align` bytes; pages come lazily."""
    raw = np.zeros(n * 4 + align, dtype=np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + n * 4].view(np.float32)


def huge_zeros(n: int) -> NDArray[np.uint8] | None:
    """`n` zero bytes on a 2 MiB boundary for which huge pages are asked; None where the system has
    none or they would be too large.

    A network walks through its weights once a run.  In pages of 4 KiB it then misses the
    translation cache at every page: 6% of ResNet-18's time on a virtual machine.
    """
    if n < HUGE or not _offers_huge_pages():
        return None
    size = -(-n // HUGE) * HUGE
    memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(memory, dtype=np.uint8)
    start = -raw.ctypes.data % HUGE
    return raw[start : start + n]


@cache
def _offers_huge_pages() -> bool:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return False
    return "[never]" not in text and hasattr(mmap, "MADV_HUGEPAGE")


def to_buffer(array: NDArray[Any], layout: Layout) -> NDArray[np.float32]:
    """A new buffer of `layout.size` floats that holds `array`, zero everywhere else."""
    flat = aligned_zeros(layout.size)
    write_buffer(array, flat, layout)
    return flat


def write_buffer(array: NDArray[Any], flat: NDArray[np.float32], layout: Layout) -> None:
    """Put `array` into an existing buffer; nothing outside the elements is touched."""
    if array.shape != layout.shape:
        raise ValueError(f"array of shape {array.shape} for a layout of shape {layout.shape}")
    for view, part in _views(flat, layout, array):
        view[...] = part


def from_buffer(flat: NDArray[np.float32], layout: Layout) -> NDArray[np.float32]:
    """A fresh contiguous array of `layout.shape` read out of a buffer."""
    out = np.empty(layout.shape, dtype=np.float32)
    for view, part in _views(flat, layout, out):
        part[...] = view
    return out


def covered(size: int, layouts: Iterable[Layout]) -> NDArray[np.bool_]:
    """Which of a buffer's `size` cells hold an element of one of its values."""
    mask = np.zeros(size, dtype=np.bool_)
    for layout in set(layouts):
        for view, _ in _views(mask, layout, np.broadcast_to(np.True_, layout.shape)):
            view[...] = True
    return mask


def _views(
    flat: NDArray[Any], layout: Layout, array: NDArray[Any]
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs (view of the buffer, view of the array) of equal shape that cover all elements.

    A blocked axis is cut into (block, lane); its ragged end makes a second pair.
    """
    if 0 in layout.shape:
        return []
    base = flat[layout.offset :]
    if not layout.blocked:
        return [(_strided(base, layout.shape, layout.strides), array)]
    axis, block = layout.block_axis, layout.block
    whole, rest = divmod(layout.shape[axis], block)
    pairs = []
    for first, blocks, lanes in ((0, whole, block), (whole, min(rest, 1), rest)):
        if not blocks:
            continue
        shape = (*layout.shape[:axis], blocks, lanes, *layout.shape[axis + 1 :])
        strides = (*layout.strides[: axis + 1], 1, *layout.strides[axis + 1 :])
        start = first * block
        cut = array[(slice(None),) * axis + (slice(start, start + blocks * lanes),)]
        part = as_strided(cut, shape, _split(cut.strides, axis, block))
        view = _strided(base[first * layout.strides[axis] :], shape, strides)
        # Lanes last: NumPy copies the innermost axis in one go.
        pairs.append((np.moveaxis(view, axis + 1, -1), np.moveaxis(part, axis + 1, -1)))
    return pairs


def _split(strides: tuple[int, ...], axis: int, block: int) -> tuple[int, ...]:
    return (*strides[:axis], strides[axis] * block, *strides[axis:])


def _strided(base: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any]:
    """A view checked against the end of the buffer."""
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if reach >= base.size:
        raise ValueError(f"layout reaches float {reach} of a buffer with {base.size} left")
    return as_strided(base, shape, tuple(base.itemsize * s for s in strides))
