"""Every operator's declaration, evaluated by NumPy, against onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx_cases import sample

from engine.expr import ComputeDag, Placeholder
from engine.expr.reference import reference
from engine.ops import OPERATORS, Call, Operand, axis_names


@dataclass
class Names:
    """The least that a declaration asks of the DAG under construction."""

    taken: set[str] = field(default_factory=set)
    extra: dict[str, np.ndarray] = field(default_factory=dict)

    def unique(self, base: str) -> str:
        name = base if base not in self.taken else f"{base}_{len(self.taken)}"
        self.taken.add(name)
        return name

    def constant(self, base: str, array: np.ndarray) -> Operand:
        name = self.unique(base)
        self.extra[name] = array
        return Operand(name, array.shape, array)


CASES = [
    pytest.param(op, case, id=f"{name}-{i}")
    for name, op in sorted(OPERATORS.items())
    for i, case in enumerate(op.cases)
]


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_declaration_computes_what_onnx_says(operator, case):
    _, arrays, expected = sample(operator, case)
    names = Names()
    operands = tuple(
        Operand(names.unique(f"in{i}"), a.shape, a if i in case.constant else None)
        for i, a in enumerate(arrays)
    )
    call = Call(
        operator.name, case.attrs, operands, expected.shape, axis_names(expected.ndim), names
    )
    stages = operator.declare(call)
    assert stages, "the operator's own cases must be declared"
    placeholders = [
        Placeholder(o.tensor, o.shape, o.constant) for o in operands if o is not None
    ] + [Placeholder(name, array.shape, True) for name, array in names.extra.items()]
    dag = ComputeDag(tuple(placeholders), stages, (stages[-1].name,))
    feeds = {f"in{i}": a for i, a in enumerate(arrays)} | names.extra
    result = reference(dag, feeds, np.float64)[stages[-1].name]
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-5)


def test_every_operator_has_cases():
    assert all(op.cases for op in OPERATORS.values())
