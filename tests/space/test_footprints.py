"""Bytes that spans of axes touch."""

from __future__ import annotations

import numpy as np

from engine.expr import Affine, Read, var
from engine.space.footprints import Footprints

ROW = var("oh") * 2 + var("kh")
DATA = Read("x", (var("c"), ROW), 0.0)
WEIGHT = Read("w", (var("c"), var("kh")))


def footprints(*reads: Read) -> Footprints:
    return Footprints(reads, lambda tensor: tensor == "w")


def test_reads_of_variables_and_constants() -> None:
    tile = {"oh": np.array([1.0, 4.0]), "kh": 3.0, "c": 8.0}
    data, constants = footprints(DATA, WEIGHT)(2, tile, {"c": np.array([2.0, 5.0])})
    assert data.tolist() == [[4 * 8 * 3, 4 * 8 * 9], [4 * 2, 4 * 5]]
    assert constants.tolist() == [[4 * 24, 4 * 24], [4 * 2, 4 * 5]]


def test_the_same_place_counts_once() -> None:
    again = Read("x", DATA.index)
    one, two = footprints(DATA)(1, {"c": 3.0}), footprints(DATA, again)(1, {"c": 3.0})
    assert one.tolist() == two.tolist() == [[[12.0]], [[0.0]]]


def test_scalars_and_no_reads() -> None:
    assert footprints(Read("s", ()))(2, {}).tolist() == [[[4.0, 4.0]], [[0.0, 0.0]]]
    assert footprints(Read("s", (Affine((), 3),)))(1, {}).tolist() == [[[4.0]], [[0.0]]]
    assert not footprints()(3, {"c": 2.0}).any()
