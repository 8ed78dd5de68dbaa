"""Algorithms: other computations of one workload, of which measurement chooses.

Each is a DAG with the same placeholders and outputs; one that sums in another order, with fewer
multiplications, has a bound on its error, and the accuracy asked for decides what may be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.expr import ComputeDag
from engine.space import strassen, winograd

BOUND = {"strict": 0.0, "default": 1e-4, "fast": 1e-3}
"""Accuracy -> largest error of a layer, relative to its largest output."""

ERROR: dict[str, float] = {**winograd.ERROR, strassen.NAME: strassen.ERROR}
"""Algorithm -> bound on its error; none is given for direct sums."""

TRANSFORMS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    **{name: partial(winograd.weight_transform, *of) for name, of in winograd.TILES.items()},
    strassen.NAME: strassen.weight_transform,
}
"""Name in `Placeholder.derive` -> the transform of constants at compile time."""


def allowed(algorithm: str, accuracy: str) -> bool:
    """Whether an accuracy bound permits an algorithm ("direct", "winograd4.rows2")."""
    return ERROR.get(algorithm.partition(".")[0], 0.0) <= BOUND[accuracy]


def alternatives(dag: ComputeDag, accuracy: str) -> Iterator[ComputeDag]:
    """The DAG itself, then every other computation that the accuracy bound allows.

    A window with stride 1 that can be filtered minimally is not computed by halves: that saves
    an eighth, filtering half and more.
    """
    yield dag
    filtered = [d for d in winograd.alternatives(dag) if allowed(d.algorithm, accuracy)]
    yield from filtered
    strides = [winograd.window_of(d.algorithm).strides for d in filtered]
    if (1, 1) not in strides and allowed(strassen.NAME, accuracy):
        yield from strassen.alternatives(dag)
