"""Buffers that betray a kernel which writes outside of them.

A buffer lies between two strips of a known pattern and, beyond those, 1 MiB that may not be
touched: a write close by changes the pattern (wrong result), one further off is a crash.  Inputs
and constants are made read-only.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
STRIP = 64
GUARD = 1 << 20
"""Bytes of address space (no memory) on either side."""
_ALIGN = 64
_HUGE = 4 << 20
_PATTERN = 0x7FC0A5A5
"""A NaN, so that a value read from outside shows in the result."""
_NONE, _READ, _WRITE = 0, 1, 2

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedBuffer:
    """`floats` float32 values, on a cache line, zero at first; MemoryError if there is no room."""

    def __init__(self, floats: int) -> None:
        size = -(-floats * 4 // _ALIGN) * _ALIGN
        inner = -(-(size + 2 * STRIP) // PAGE) * PAGE
        try:
            self._map = mmap.mmap(-1, inner + 2 * GUARD, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"{floats * 4} bytes: {error.strerror}") from error
        if size >= _HUGE:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        words = np.frombuffer(self._map, dtype=np.uint32)
        self._inner = words.ctypes.data + GUARD, inner
        start = (GUARD + inner - STRIP - size) // 4
        self.data: NDArray[np.float32] = words[start : start + floats].view(np.float32)
        self._strips = words[GUARD // 4 : start], words[start + floats : (GUARD + inner) // 4]
        self.repair()
        self._protect(self._inner[0] - GUARD, GUARD, _NONE)
        self._protect(self._inner[0] + inner, GUARD, _NONE)

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    @property
    def intact(self) -> bool:
        """Whether nothing was written just outside."""
        return all(bool((strip == _PATTERN).all()) for strip in self._strips)

    def repair(self) -> None:
        """Paint the strips again."""
        for strip in self._strips:
            strip[:] = _PATTERN

    def freeze(self) -> GuardedBuffer:
        """Make the content read-only: writing to it is a crash."""
        self._protect(*self._inner, _READ)
        return self

    def _protect(self, address: int, size: int, mode: int) -> None:
        if _mprotect(address, size, mode):
            raise MemoryError("mprotect failed")
