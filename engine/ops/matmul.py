"""Matrix products of any rank.

In: a [..., M, K] and b [..., K, N], leading axes broadcast as in NumPy.  Out: one stage

    dense(m, n) += a[m, k] * b[k, n]                                  b a constant matrix
    batch_matmul(b, m, n) += a[b, m, k] * b[b, k, n]                  otherwise
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.expr import Affine, Axis, Read, Stage, var
from engine.ops.registry import Call, Case, Kind, Operand, Stages, operator

_CASES = (
    Case(((5, 7), (7, 9)), constant=(1,)),
    Case(((2, 5, 7), (7, 9)), constant=(1,)),
    Case(((2, 3, 5, 7), (2, 3, 7, 4))),
    Case(((3, 5, 7), (2, 1, 7, 4))),
    Case(((1, 1), (1, 6))),
)


@operator("MatMul", Kind.MATRIX, roles=("data", "weight"), cases=_CASES)
def matrix_product(call: Call) -> Stages | None:
    """MatMul of two tensors of rank 2 or more."""
    left, right = call.operand(0), call.operand(1)
    if min(len(left.shape), len(right.shape)) < 2:
        return None
    *outer, rows, cols = call.shape
    batch = _batch(outer)
    axes = (*batch, Axis("m", rows), Axis("n", cols))
    body = Read(left.tensor, (*_lead(left, batch), var("m"), var("k"))) * Read(
        right.tensor, (*_lead(right, batch), var("k"), var("n"))
    )
    name = "dense" if right.constant and len(right.shape) == 2 else "batch_matmul"
    inner = (Axis("k", left.shape[-1]),)
    return (Stage(call.namer.unique(name), axes, body, inner, "sum"),)


def _batch(sizes: Sequence[int]) -> tuple[Axis, ...]:
    names = ["b"] if len(sizes) == 1 else [f"b{i}" for i in range(len(sizes))]
    return tuple(Axis(n, e) for n, e in zip(names, sizes, strict=True))


def _lead(operand: Operand, batch: Sequence[Axis]) -> tuple[Affine, ...]:
    """Index of the leading axes; an axis of length 1 is read at 0 wherever the output is longer."""
    sizes = operand.shape[:-2]
    own = batch[len(batch) - len(sizes) :]
    return tuple(
        var(axis.name) if size == axis.extent else Affine()
        for axis, size in zip(own, sizes, strict=True)
    )
