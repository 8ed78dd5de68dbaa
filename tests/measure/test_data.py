from __future__ import annotations

import numpy as np
import pytest
from hostile import search_task

from engine.expr import Axis, ComputeDag, Placeholder, Read, Stage, Unary, var
from engine.measure.data import all_finite, make_inputs, relative_error, solve


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_inputs_are_seeded_and_well_scaled() -> None:
    """G5-08: no subnormals, whatever is done with them."""
    dag = search_task().workload.dag
    first, again, other = make_inputs(dag, 1), make_inputs(dag, 1), make_inputs(dag, 2)
    for name, values in first.items():
        assert np.array_equal(values, again[name]) and not np.array_equal(values, other[name])
        assert values.dtype == np.float32
        assert np.abs(values).min() >= 1 / 64 and np.abs(values).max() <= 1.0
        assert (values < 0).any() and (make_inputs(dag, 1, positive=True)[name] > 0).all()


def test_filters_are_scaled_by_what_is_summed() -> None:
    dag = ComputeDag((Placeholder("w", (64, 32, 3, 3), constant=True),), (), ())
    values = make_inputs(dag, 0)["w"]
    assert np.abs(values).max() <= 1 / np.sqrt(32 * 9)


def test_reference() -> None:
    dag = search_task().workload.dag
    feeds = make_inputs(dag, 0)
    (result,) = solve(dag, feeds).values()
    assert result.dtype == np.float32
    assert np.allclose(result, feeds["x"] * feeds["w"] + 1.0)


def test_root_of_negative_values_shows() -> None:
    x = Placeholder("x", (8,))
    dag = ComputeDag(
        (x,), (Stage("y", (Axis("i", 8),), Unary("sqrt", Read("x", (var("i"),)))),), ("y",)
    )
    assert not all_finite(solve(dag, make_inputs(dag, 0)))
    assert all_finite(solve(dag, make_inputs(dag, 0, positive=True)))


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        (array(1, 2), array(1, 2), 0.0),
        (array(1, 2.5), array(1, 2), 0.25),
        (array(0.5), array(0), 0.5),
        (array(), array(), 0.0),
        (array(np.nan, 2), array(1, 2), np.inf),
        (array(np.inf, 2), array(1, 2), np.inf),
        (array(1, 2), array(np.nan, 2), np.inf),
        (array(np.nan, 2), array(np.nan, 2), 0.0),
        (array(np.inf, -np.inf, 3), array(np.inf, -np.inf, 2), 0.5),
        (array(-np.inf, 2), array(np.inf, 2), np.inf),
    ],
)
def test_relative_error(got: np.ndarray, expected: np.ndarray, error: float) -> None:
    assert relative_error(got, expected) == error
