"""Every declared operator gets sketches, and each sketch's default computes the declaration."""

from __future__ import annotations

import numpy as np
import pytest

from engine.expr.reference import reference
from engine.graph.dialect import DIALECT_OPSET
from engine.graph.host import run_node
from engine.graph.ir import Node
from engine.ops import OPERATORS
from engine.space import sketches
from engine.target import host
from tests.codegen.harness import check
from tests.codegen.workloads import of_case, roomier

CASES = [
    pytest.param(op, case, id=f"{name}-{i}")
    for name, op in sorted(OPERATORS.items())
    for i, case in enumerate(op.cases)
]


def prepared(operator, case):
    """The case's workload, its inputs and the right outputs."""
    arrays = case.arrays(np.random.default_rng(7))
    node = Node("n", operator.name, tuple("abc"[: len(arrays)]), ("y",), case.attrs)
    (result,) = run_node(node, DIALECT_OPSET, arrays)
    workload, feeds = of_case(operator, case, result.shape, host())
    return workload, feeds, reference(workload.dag, feeds, np.float64)


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_kernels_compute_the_declaration(operator, case):
    """Canonical layouts for every other sketch, roomier ones for those between."""
    workload, feeds, expected = prepared(operator, case)
    found = sketches(workload, host(), accuracy="fast")
    assert found
    rng = np.random.default_rng(1)
    first = operator.cases.index(case)
    for number, sketch in enumerate(found, first):
        layouts = {n: roomier(layout, rng) for n, layout in workload.layouts.items()}
        given = layouts if number % 2 else None
        schedule = sketch.schedule(sketch.default())
        check(workload, sketch, schedule, host(), feeds, expected, given, (1 + number % 3,))


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "case"), CASES)
def test_kernels_in_all_layouts(operator, case):
    workload, feeds, expected = prepared(operator, case)
    rng = np.random.default_rng(2)
    for sketch in sketches(workload, host(), accuracy="fast"):
        layouts = {n: roomier(layout, rng) for n, layout in workload.layouts.items()}
        schedule = sketch.schedule(sketch.default())
        for given in (None, layouts):
            check(workload, sketch, schedule, host(), feeds, expected, given)
