"""Affine integer expressions of loop axes: what every index in a compute declaration is made of.

`Affine((("oh", 2), ("kh", 1)), -3)` is `oh*2 + kh - 3`.  Axes are named; names are unique within a
ComputeDag's stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Affine:
    """Sum of `coefficient * axis` and a constant; `terms` is sorted and holds no zeros."""

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(terms: dict[str, int] | Iterable[tuple[str, int]], const: int = 0) -> Affine:
        items = terms.items() if isinstance(terms, dict) else terms
        total: dict[str, int] = {}
        for name, coeff in items:
            total[name] = total.get(name, 0) + coeff
        return Affine(tuple(sorted((k, v) for k, v in total.items() if v)), const)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other) if other else self
        return Affine.of(self.terms + other.terms, self.const + other.const)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (other * -1 if isinstance(other, Affine) else -other)

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if not factor:
            return Affine()
        return Affine(tuple((k, v * factor) for k, v in self.terms), self.const * factor)

    __radd__ = __add__
    __rmul__ = __mul__

    def coeff(self, axis: str) -> int:
        return dict(self.terms).get(axis, 0)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(k for k, _ in self.terms)

    def substitute(self, values: Mapping[str, Affine]) -> Affine:
        """Each axis replaced by the expression that `values` holds for it."""
        if not self.terms:
            return self
        if len(self.terms) == 1:  # by far the most frequent case of unrolled code
            ((name, coeff),) = self.terms
            found = values.get(name)
            return self if found is None else found * coeff + self.const
        total: dict[str, int] = {}
        const = self.const
        for name, coeff in self.terms:
            value = values.get(name)
            if value is None:
                total[name] = total.get(name, 0) + coeff
                continue
            const += value.const * coeff
            for inner, factor in value.terms:
                total[inner] = total.get(inner, 0) + factor * coeff
        return Affine(tuple(sorted((k, v) for k, v in total.items() if v)), const)

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value while each axis runs over `range(extents[axis])`."""
        low = high = self.const
        for name, coeff in self.terms:
            reach = coeff * (extents[name] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def __str__(self) -> str:
        parts = [name if coeff == 1 else f"{name}*{coeff}" for name, coeff in self.terms]
        text = " + ".join(parts)
        if self.const or not parts:
            sign = "-" if self.const < 0 else "+"
            text = f"{text} {sign} {abs(self.const)}" if parts else str(self.const)
        return text


def var(name: str) -> Affine:
    return Affine(((name, 1),))
