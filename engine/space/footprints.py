"""Bytes that tiles and blocks touch, for whole populations at once.

In: the reads of a stage.  Out: for spans of its axes, one value a candidate, the bytes of variables
and of constants.  An index `oh*2 + kh` runs through 1 + 2 (span(oh) - 1) + 1 (span(kh) - 1)
elements; a read touches the product over its dimensions.  All are integers, so exact in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from engine.expr import Read

Floats = NDArray[np.float64]


class Footprints:
    """The different reads of one stage as matrices."""

    def __init__(self, reads: Iterable[Read], is_constant: Callable[[str], bool]) -> None:
        places = list(dict.fromkeys((r.tensor, r.index) for r in reads))
        self._axes = sorted({name for _, index in places for i in index for name in i.axes})
        rows: list[list[int]] = []
        self._starts = []
        for _, index in places:
            self._starts.append(len(rows))
            rows.append([0] * len(self._axes))  # a read without an index touches one element
            rows += [[abs(i.coeff(name)) for name in self._axes] for i in index]
        self._steps = np.array(rows, np.float64).reshape(len(rows), len(self._axes))
        constant = np.array([is_constant(tensor) for tensor, _ in places], bool)
        self._bytes = 4.0 * np.stack([~constant, constant])

    def __call__(self, n: int, *spans: Mapping[str, Floats | float]) -> Floats:
        """Shape (2, len(spans), n): bytes of variables, of constants.

        An axis that a span leaves out stands still.
        """
        if not self._starts:
            return np.zeros((2, len(spans), n))
        further = np.zeros((len(self._axes), len(spans), n))
        for i, name in enumerate(self._axes):
            for j, span in enumerate(spans):
                if name in span:
                    further[i, j] = span[name]
                    further[i, j] -= 1.0
        reach = 1.0 + self._steps @ further.reshape(len(self._axes), len(spans) * n)
        found: Floats = self._bytes @ np.multiply.reduceat(reach, self._starts, axis=0)
        return found.reshape(2, len(spans), n)
