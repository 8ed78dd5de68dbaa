"""Tensor expressions: axes, scalar expressions, compute DAGs and memory layouts."""

from engine.expr.affine import Affine, var
from engine.expr.dag import REDUCERS, Axis, ComputeDag, Placeholder, Stage, workload_key
from engine.expr.layout import Layout, channel_blocked, row_major, transposed
from engine.expr.nodes import (
    Binary,
    Compare,
    Const,
    Expr,
    Read,
    Select,
    Unary,
    as_expr,
    children,
    reads,
    relu,
    rewrite,
    walk,
)

__all__ = [
    "REDUCERS", "Affine", "Axis", "Binary", "Compare", "ComputeDag", "Const", "Expr", "Layout",
    "Placeholder", "Read", "Select", "Stage", "Unary", "as_expr", "channel_blocked", "children",
    "reads", "relu", "rewrite", "row_major", "transposed", "var", "walk", "workload_key",
]  # fmt: skip
