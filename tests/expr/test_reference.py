"""The NumPy evaluation of compute DAGs against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.expr import (
    Affine,
    Axis,
    Binary,
    Compare,
    ComputeDag,
    Const,
    Placeholder,
    Read,
    Select,
    Stage,
    Unary,
    relu,
    var,
)
from engine.expr.reference import reference

RNG = np.random.default_rng(3)
A = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal((4, 5)).astype(np.float32)
i, j, k = var("i"), var("j"), var("k")


def run(stage, feeds, dtype=np.float32, constants=None):
    holders = tuple(Placeholder(n, a.shape) for n, a in feeds.items())
    dag = ComputeDag(holders, (stage,), (stage.name,), constants=constants or {})
    return reference(dag, feeds, dtype)[stage.name]


def scalar(expr, at, arrays):
    """One element of an expression, by the definition."""
    match expr:
        case Const(number):
            return number
        case Read(tensor, index, fill):
            array = arrays[tensor]
            where = tuple(x.const + sum(at[n] * c for n, c in x.terms) for x in index)
            inside = all(0 <= w < s for w, s in zip(where, array.shape, strict=True))
            return float(array[where]) if inside else fill
        case Binary("mul", x, y):
            return scalar(x, at, arrays) * scalar(y, at, arrays)
        case Binary("add", x, y):
            return scalar(x, at, arrays) + scalar(y, at, arrays)
    raise TypeError(expr)


def by_loops(stage, arrays):
    out = np.zeros(stage.shape)
    combine = {"sum": lambda a, b: a + b, "max": max, "min": min, "prod": lambda a, b: a * b}
    for point in itertools.product(*(range(a.extent) for a in stage.axes)):
        at = dict(zip((a.name for a in stage.axes), point, strict=True))
        total = None
        for inner in itertools.product(*(range(a.extent) for a in stage.reduce_axes)):
            at.update(zip((a.name for a in stage.reduce_axes), inner, strict=True))
            value = scalar(stage.body, at, arrays)
            total = value if total is None else combine[stage.reducer](total, value)
        where = tuple(x.const + sum(at[n] * c for n, c in x.terms) for x in stage.store_index)
        if all(0 <= w < s for w, s in zip(where, stage.shape, strict=True)):
            out[where] = total
    return out


def axes(**extents):
    return tuple(Axis(n, e) for n, e in extents.items())


X = RNG.standard_normal((2, 3, 7, 6)).astype(np.float32)
W = RNG.standard_normal((4, 3, 3, 2)).astype(np.float32)
READ_X = Read("x", (var("n"), var("c"), var("h") * 2 + var("u") - 1, var("w") + var("v")), 0.0)
STAGES = {
    "matmul": Stage("y", axes(i=3, j=5), Read("a", (i, k)) * Read("b", (k, j)), axes(k=4), "sum"),
    "scaled": Stage("y", axes(i=3), Read("a", (i, k)) * Const(0.5), axes(k=4), "sum"),
    "alone": Stage("y", axes(i=3, j=2), Read("a", (i, j)), axes(k=4), "sum"),
    "three factors": Stage(
        "y",
        axes(i=3, j=5),
        Read("a", (i, k)) * Read("b", (k, j)) * Read("a", (i, Affine())),
        axes(k=4),
        "sum",
    ),
    "constant matrix": Stage(
        "y", axes(i=2, j=4), Read("m", (i, k)) * Read("a", (k, j)), axes(k=3), "sum"
    ),
    "convolution": Stage(
        "y",
        axes(n=2, o=4, h=4, w=5),
        READ_X * Read("w", (var("o"), var("c"), var("u"), var("v"))),
        axes(c=3, u=3, v=2),
        "sum",
    ),
    "depthwise": Stage(
        "y",
        axes(n=2, c=3, h=4, w=5),
        READ_X * Read("w", (var("c"), Affine(), var("u"), var("v"))),
        axes(u=3, v=2),
        "sum",
    ),
    "max window": Stage("y", axes(n=2, c=3, h=4, w=5), READ_X, axes(u=3, v=2), "max"),
    "min": Stage("y", axes(i=3), Read("a", (i, k)), axes(k=4), "min"),
    "prod": Stage("y", axes(i=3), Read("a", (i, k)), axes(k=4), "prod"),
    "whole": Stage("y", (), Read("a", (i, k)), axes(i=3, k=4), "sum"),
    "reversed": Stage(
        "y", axes(i=3, j=4), Read("a", (Affine.of({"i": -1}, 2), j)) * Const(1.0), (), None
    ),
    "scatter": Stage(
        "y",
        axes(g=2, i=3, j=4),
        Read("a", (i, k)) * Read("b", (j, k)),
        axes(k=4),
        "sum",
        index=(var("g") * 3 + i, j - 1),
        out_shape=(6, 4),
    ),
}


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_plain_loops(name, dtype):
    stage = STAGES[name]
    feeds = {"a": A, "b": B, "x": X, "w": W}
    matrix = ((1.0, 2.0, -1.0), (0.0, 0.5, 3.0))
    if stage.reducer is None:
        expected = A[::-1]
    else:
        expected = by_loops(stage, {**feeds, "m": np.array(matrix)})
    result = run(stage, feeds, dtype, {"m": matrix})
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)


def test_maximum_keeps_nan():
    a = A.copy()
    a[1, 2] = np.nan
    stage = Stage("y", axes(i=3), Read("a", (i, k)), axes(k=4), "max")
    assert np.isnan(run(stage, {"a": a})).tolist() == [False, True, False]
    plain = Stage("y", axes(i=3, j=4), relu(Read("a", (i, j))))
    assert np.isnan(run(plain, {"a": a})).sum() == 1


def test_select_and_comparison():
    below = Select(
        Compare("lt", Read("a", (i, j)), Const(0.0)), Const(-1.0), Unary("exp", Const(0))
    )
    expected = np.where(A < 0, -1, 1)
    np.testing.assert_array_equal(run(Stage("y", axes(i=3, j=4), below), {"a": A}), expected)


def test_stages_read_one_another():
    first = Stage("s", axes(i=3), Read("a", (i, k)), axes(k=4), "sum")
    second = Stage("y", axes(i=3, j=4), Read("a", (i, j)) / Read("s", (i,)))
    dag = ComputeDag((Placeholder("a", A.shape),), (first, second), ("s", "y"))
    result = reference(dag, {"a": A})
    np.testing.assert_allclose(result["y"], A / A.sum(1, keepdims=True), rtol=1e-5)
    assert set(result) == {"s", "y"}


def test_bad_feeds_are_refused():
    with pytest.raises(ValueError, match="no array"):
        dag = ComputeDag((Placeholder("a", A.shape),), (), ())
        reference(dag, {})
    with pytest.raises(ValueError, match="leaves its tensor"):
        run(Stage("y", axes(i=3, j=4), Read("a", (i + 1, j))), {"a": A})
