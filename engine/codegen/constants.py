"""Constants that are computed from other constants at compile time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.expr import ComputeDag
from engine.space.algorithms import TRANSFORMS


def derive(
    dag: ComputeDag, arrays: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """`arrays` and, for every derived placeholder, its values."""
    out = dict(arrays)
    for placeholder in dag.placeholders:
        if placeholder.derive is not None:
            transform, source = placeholder.derive
            out[placeholder.name] = TRANSFORMS[transform](arrays[source])
    return out
