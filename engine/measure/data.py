"""Inputs and the right answer of a search task.

In: a compute DAG and a seed.  Out: an array per placeholder and the reference result per output,
both in logical axis order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.expr import ComputeDag, Placeholder
from engine.expr.reference import reference

Floats = NDArray[np.float32]

_FLOAT64_FLOPS = 5_000_000_000
"""Beyond this the reference is computed in float32."""
_SMALLEST = 2.0**-6


def make_inputs(dag: ComputeDag, seed: int, positive: bool = False) -> dict[str, Floats]:
    """An array for each placeholder that is not derived from another.

    Values lie between 1/64 and 1 in size (no subnormals, whatever is multiplied), with random sign
    unless `positive`; matrices and filters are scaled so that sums of products stay near one.
    """
    rng = np.random.default_rng(seed)
    return {p.name: _values(p, rng, positive) for p in dag.placeholders if p.derive is None}


def _values(placeholder: Placeholder, rng: np.random.Generator, positive: bool) -> Floats:
    size = math.prod(placeholder.shape)
    drawn = rng.random(size, np.float32) * np.float32(2) - np.float32(1)
    values: Floats = np.abs(drawn) * np.float32(1 - _SMALLEST) + np.float32(_SMALLEST)
    if not positive:
        np.copysign(values, drawn, out=values)
    if placeholder.constant and len(placeholder.shape) > 1 and size:
        values /= np.float32(math.sqrt(size / max(placeholder.shape)))
    return values.reshape(placeholder.shape)


def solve(dag: ComputeDag, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
    """The reference result; `feeds` holds derived constants too."""
    exact = dag.flops <= _FLOAT64_FLOPS
    results = reference(dag, feeds, np.float64 if exact else np.float32)
    return {name: np.asarray(value, np.float32) for name, value in results.items()}


def all_finite(arrays: Mapping[str, Floats]) -> bool:
    return all(bool(np.isfinite(a).all()) for a in arrays.values())


def relative_error(got: Floats, expected: Floats) -> float:
    """Largest difference relative to the largest expected value.

    Infinite if NaN or infinities are not where they should be.
    """
    finite = np.isfinite(expected)
    if not finite.all():
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        if not same[~finite].all():
            return math.inf
        got, expected = got[finite], expected[finite]
    if got.size == 0:
        return 0.0
    worst = float(np.abs(got - expected).max())
    scale = float(np.abs(expected).max())
    return math.inf if math.isnan(worst) else worst / (scale or 1.0)
