"""Kernels of one scalar function over a vector of numbers, for tests of values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from engine.expr import Axis, Expr, Placeholder, Read, Stage, Unary, var
from engine.space import sketches
from engine.target import Target
from tests.codegen.harness import Loaded, load, run
from tests.codegen.workloads import of_dag


def elementwise(body: Callable[[Expr], Expr], count: int, target: Target) -> Loaded:
    """The kernel `y[i] = body(x[i])`."""
    stage = Stage("y", (Axis("i", count),), body(Read("x", (var("i"),))))
    return only(of_dag((Placeholder("x", (count,)),), (stage,), target), target)


def only(workload, target: Target) -> Loaded:
    """The default schedule of a workload's first sketch, loaded."""
    sketch = sketches(workload, target, accuracy="strict")[0]
    return load(workload, sketch, sketch.schedule(sketch.default()), target)


@cache
def _unary(op: str, count: int, target: Target) -> Loaded:
    return elementwise(lambda x: Unary(op, x), count, target)


def unary(op: str, values: np.ndarray, target: Target) -> np.ndarray:
    """The generated code's values of a function of `engine.expr.nodes.UNARY`."""
    return run(_unary(op, values.size, target), {"x": values})["y"]


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance from the exact values (float64) in units of float32's last place there."""
    with np.errstate(over="ignore"):
        size = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(found.astype(np.float64) - exact) / size
