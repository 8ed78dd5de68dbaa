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


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_kernels_compute_the_declaration(operator, case):
    arrays = case.arrays(np.random.default_rng(7))
    node = Node("n", operator.name, tuple("abc"[: len(arrays)]), ("y",), case.attrs)
    (result,) = run_node(node, DIALECT_OPSET, arrays)
    workload, feeds = of_case(operator, case, result.shape, host())
    expected = reference(workload.dag, feeds, np.float64)
    found = sketches(workload, host(), accuracy="fast")
    assert found
    rng = np.random.default_rng(1)
    for sketch in found:
        layouts = {name: roomier(layout, rng) for name, layout in workload.layouts.items()}
        schedule = sketch.schedule(sketch.default())
        for given in (None, layouts):
            check(workload, sketch, schedule, host(), feeds, expected, given)
