"""Minimal filtering in one dimension: the matrices of F(m, r).

F(m, r) gives m outputs y of a filter with r taps g on m + r - 1 inputs d from as many products:

    y = A^T ((G g) * (B^T d))

It is the transpose of multiplying polynomials by way of their values at m + r - 2 points and at
infinity (Toom and Cook; Winograd, "Arithmetic Complexity of Computations", 1980, chapter V).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

Rows = tuple[tuple[float, ...], ...]

_POINTS = tuple(Fraction(p) for p in ["0", "1", "-1", "2", "-2", "1/2", "-1/2", "3/4", "-3/4"])
"""Small ones first: large powers cost accuracy.  The error of F(4, 7) chose the last two."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """`inputs` is B^T (n x n), `taps` is G (n x r), `outputs` is A^T (m x n); n = m + r - 1."""

    inputs: Rows
    taps: Rows
    outputs: Rows


@cache
def filtering(m: int, r: int) -> Filtering:
    """The matrices of F(m, r), rounded once from exact ones; m + r may be up to 11."""
    points = _POINTS[: m + r - 2]
    if len(points) < m + r - 2:
        raise ValueError(f"F({m}, {r}) needs more than {len(_POINTS)} points")
    others = [[p for p in points if p != point] for point in points]
    inputs = [_coefficients(rest, m + r - 1) for rest in others]
    inputs.append(_coefficients(points, m + r - 1))
    taps = []
    for i, (point, rest) in enumerate(zip(points, others, strict=True)):
        scale = prod((point - other for other in rest), start=Fraction(1))
        if scale < 0:  # signs that suit G as well as B
            scale, inputs[i] = -scale, [-c for c in inputs[i]]
        taps.append([point**k / scale for k in range(r)])
    taps.append([Fraction(k == r - 1) for k in range(r)])
    outputs = [[*(point**k for point in points), Fraction(k == m - 1)] for k in range(m)]
    return Filtering(_floats(inputs), _floats(taps), _floats(outputs))


def _coefficients(roots: list[Fraction] | tuple[Fraction, ...], length: int) -> list[Fraction]:
    """Of the monic polynomial with these roots, lowest power first, filled up with zeros."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [a - root * b for a, b in zip(shifted, [*found, Fraction(0)], strict=True)]
    return found + [Fraction(0)] * (length - len(found))


def _floats(rows: list[list[Fraction]]) -> Rows:
    return tuple(tuple(float(x) for x in row) for row in rows)
