"""Operators: what each ONNX operator computes, as tensor expressions."""

from engine.ops import (
    conv,
    conv_transpose,
    elementwise,
    matmul,
    movement,
    normalization,
    pool,
    reduction,
)
from engine.ops.registry import (
    OPERATORS,
    Call,
    Case,
    Kind,
    Namer,
    Operand,
    Operator,
    Stages,
    axis_names,
)

__all__ = [
    "OPERATORS", "Call", "Case", "Kind", "Namer", "Operand", "Operator", "Stages", "axis_names",
    "conv", "conv_transpose", "elementwise", "matmul", "movement", "normalization", "pool",
    "reduction",
]  # fmt: skip
