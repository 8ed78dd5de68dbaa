"""The matrices of minimal filtering: exact on whole numbers, and as accurate as they claim."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from engine.space.algorithms import ERROR
from engine.space.filtering import filtering
from engine.space.winograd import TILES, weight_transform

SIZES = [(1, 1), (4, 2), (2, 3), (4, 3), (4, 4), (2, 5), (4, 5), (2, 7), (4, 7)]


@pytest.mark.parametrize(("m", "r"), SIZES)
def test_outputs_are_those_of_the_filter(m: int, r: int) -> None:
    rng = np.random.default_rng(m * r)
    inputs, taps = rng.integers(-9, 9, m + r - 1).astype(float), rng.integers(-9, 9, r)
    f = filtering(m, r)
    products = (np.array(f.taps) @ taps) * (np.array(f.inputs) @ inputs)
    expected = [inputs[i : i + r] @ taps for i in range(m)]
    np.testing.assert_allclose(np.array(f.outputs) @ products, expected, rtol=1e-9, atol=1e-9)


def test_too_many_points_are_refused() -> None:
    with pytest.raises(ValueError, match="F\\(9, 9\\)"):
        filtering(9, 9)


@pytest.mark.parametrize("algorithm", TILES)
def test_constants_have_a_factor_for_each_product(algorithm: str) -> None:
    tile, window = TILES[algorithm]
    made = weight_transform(tile, window, np.ones((5, 4, *window.taps), np.float32))
    points = (n + k - 1 for n, k in zip(tile, window.phase_taps, strict=True))
    assert made.shape == (*points, 4 * prod(window.strides), 5)


@pytest.mark.parametrize("algorithm", TILES)
def test_errors_stay_within_the_bound(algorithm: str) -> None:
    """64 sums over 192 channels of normal data in single precision."""
    rng, (tile, window) = np.random.default_rng(7), TILES[algorithm]
    (kh, kw), (s, t) = window.taps, window.strides
    down, along = (filtering(m, r) for m, r in zip(tile, window.phase_taps, strict=True))
    size = tuple(s * len(f.inputs) for s, f in zip(window.strides, (down, along), strict=True))
    data = rng.standard_normal((64, 192, *size)).astype(np.float32)
    weight = rng.standard_normal((8, 192, *window.taps)).astype(np.float32)
    phases = [data[..., p::s, q::t] for p in range(s) for q in range(t)]
    moved = np.einsum(
        "xa,piab->pixb", np.array(down.inputs, np.float32), np.concatenate(phases, axis=1)
    )
    moved = np.einsum("yb,pixb->xypi", np.array(along.inputs, np.float32), moved)
    products = moved @ weight_transform(tile, window, weight)
    half = np.einsum("ix,xypo->iypo", np.array(down.outputs, np.float32), products)
    found = np.einsum("jy,iypo->ijpo", np.array(along.outputs, np.float32), half)
    expected = np.stack([
        np.stack([
            np.einsum("piab,oiab->po", data[:, :, i : i + kh, j : j + kw], weight, dtype=np.float64)
            for j in range(0, t * tile[1], t)
        ])
        for i in range(0, s * tile[0], s)
    ])  # fmt: skip
    assert abs(found - expected).max() < ERROR[algorithm] * abs(expected).max()
