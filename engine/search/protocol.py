"""What the search asks of a search space.

`engine.space` fulfils these; a recorded table of latencies does as well, which is how searches are
replayed without a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.records import Schedule

Rows = NDArray[np.int64]
"""int64[n, k]: a candidate a row, a knob's value (not its position) a column."""
Features = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Prior = Callable[[Features], Floats]
"""float32[n, F] features -> float64[n] seconds that a machine model expects."""


class SketchLike(Protocol):
    """A loop-nest skeleton with open knobs."""

    @property
    def name(self) -> str: ...
    @property
    def knobs(self) -> tuple[Any, ...]: ...
    @property
    def size(self) -> int: ...
    def valid(self, matrix: Rows, /) -> Mask: ...
    def features(self, matrix: Rows, threads: int, /) -> Features: ...
    def default(self) -> Rows: ...
    def schedule(self, row: Rows, /) -> Schedule: ...
    def row(self, schedule: Schedule, /) -> Rows | None: ...
