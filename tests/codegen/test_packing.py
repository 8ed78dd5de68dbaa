"""Packed constants hold what their index says, element by element."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.codegen.kernel import Packing
from engine.expr import Affine, var


@st.composite
def packings(draw: st.DrawFn) -> tuple[Packing, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
    loops = tuple((f"l{i}", n) for i, n in enumerate(draw(st.lists(st.integers(1, 4), max_size=4))))
    coefficients = st.integers(-2, 3)
    index = tuple(
        Affine.of([(name, draw(coefficients)) for name, _ in loops], draw(st.integers(-3, 5)))
        for _ in shape
    )
    return Packing(loops, index), shape


@given(packings())
def test_every_element(case: tuple[Packing, tuple[int, ...]]) -> None:
    packing, shape = case
    array = np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)
    packed = packing.pack(array)
    assert packed.shape == (packing.size,) and packed.dtype == np.float32
    names = [name for name, _ in packing.loops]
    for place, point in enumerate(itertools.product(*(range(n) for _, n in packing.loops))):
        values = {n: Affine((), p) for n, p in zip(names, point, strict=True)}
        at = tuple(affine.substitute(values).const for affine in packing.index)
        inside = all(0 <= i < n for i, n in zip(at, shape, strict=True))
        assert packed[place] == (array[at] if inside else 0.0)


def test_packed_values_are_a_copy() -> None:
    array = np.ones((4, 4), np.float32)
    packing = Packing((("a", 4), ("b", 4)), (var("a"), var("b")))
    packing.pack(array)[:] = 0.0
    assert (array == 1.0).all()
