"""The weights of a network: one block of memory, as it stands in the file.

In: arrays in the order of their first use.  Out: byte offsets, and the block.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.runtime.buffers import ALIGN, aligned_zeros, huge_zeros
from engine.runtime.plan import SLACK

PAGE = 4096


class WeightBlob:
    """Collects arrays, equal ones once, each on a cache line of its own."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, NDArray[np.uint8]]] = []
        self._known: dict[bytes, int] = {}
        self._end = SLACK

    def add(self, array: NDArray[Any]) -> int:
        """Offset in bytes of a copy of the array's elements in C order."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        digest = hashlib.sha256(flat.data).digest()
        if digest not in self._known:
            self._known[digest] = self._end
            self._parts.append((self._end, flat))
            self._end += -(-flat.nbytes // ALIGN) * ALIGN
        return self._known[digest]

    def join(self) -> NDArray[np.uint8]:
        """All of it; starts on a page, with slack at both ends for over-reading vector loads."""
        size = -(-(self._end + SLACK) // PAGE) * PAGE
        block = huge_zeros(size)
        if block is None:
            block = aligned_zeros(size // 4, PAGE).view(np.uint8)
        for offset, part in self._parts:
            block[offset : offset + part.nbytes] = part
        return block
