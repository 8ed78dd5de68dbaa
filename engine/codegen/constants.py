"""Constants that are computed from other constants at compile time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelError
from engine.expr import ComputeDag
from engine.space.algorithms import TRANSFORMS


def derive(
    dag: ComputeDag, arrays: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """`arrays` and, for every derived placeholder, its values.

    Raises ModelError if finite values become infinite by it.
    """
    out = dict(arrays)
    for placeholder in dag.placeholders:
        if placeholder.derive is not None:
            transform, source = placeholder.derive
            with np.errstate(over="ignore", invalid="ignore"):
                made = TRANSFORMS[transform](arrays[source])
            if not np.isfinite(made).all() and np.isfinite(arrays[source]).all():
                raise ModelError(
                    "weights are too large for an algorithm that adds them up", where=source,
                    why=f"{dag.algorithm} leaves the range of float32",
                    fix="Use --accuracy strict.",
                )  # fmt: skip
            out[placeholder.name] = made
    return out
