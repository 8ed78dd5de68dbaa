"""The dialect: the small set of operators that a `Graph` is made of.

In: a call of an ONNX operator of any operator set from 7 to 23.  Out: nodes of this table, with
the meaning of operator set 23 and every default written out.  Attributes are Python ints, floats,
strings and tuples.  "Axes" are non-negative and sorted.  Constant operands are in `constants`.

| operator | inputs | attributes |
|---|---|---|
| Conv | x[N,C,*], w[M,C/group,*] | kernel_shape, strides, dilations, group, pads (begin.., end..) |
| ConvTranspose | x[N,C,*], w[C,M/group,*] | as Conv, and output_padding |
| MatMul | a, b (both of rank 2 or more; NumPy broadcasting of the leading axes) | |
| MaxPool | x | kernel_shape, strides, dilations, pads (what ceil_mode overhangs is in them) |
| AveragePool | x | as MaxPool, and count_include_pad |
| GlobalAveragePool, GlobalMaxPool | x[N,C,*] | |
| Add, Sub, Mul, Div, Pow, Max, Min, Mod, PRelu | a, b (two, NumPy broadcasting) | Mod: fmod |
| And, Or, Xor, Equal, Less, LessOrEqual, Greater, GreaterOrEqual | a, b | |
| Where | condition, a, b | |
| Relu, Sigmoid, Tanh, Erf, Exp, Log, Sqrt, Reciprocal, Abs, Neg, Sign, Floor, Ceil, Round | x | |
| Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Softplus, Not, Identity | x | |
| LeakyRelu, Elu | x | alpha |
| HardSigmoid | x | alpha, beta |
| Gelu | x | approximate ("none", "tanh") |
| Clip | x | min, max (-inf, inf where open; the type's limits for integers) |
| Cast | x | to (NumPy dtype name) |
| Softmax, LogSoftmax, Hardmax | x | axis |
| LRN | x[N,C,H,W] | size (odd), alpha, beta, bias |
| LayerNormalization | x, scale, bias (may be missing) | axis, epsilon |
| GroupNormalization | x[N,C,*], scale[C], bias[C] | num_groups, epsilon |
| ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceLogSumExp | x | axes, keepdims |
| ArgMax, ArgMin | x | axis, keepdims, select_last_index |
| CumSum | x, axis (constant) | exclusive, reverse |
| Reshape | x | shape (static, no 0 or -1 shorthands) |
| Expand | x | shape (the whole output shape) |
| Transpose | x | perm |
| Concat | x0, x1, ... | axis |
| Slice | x | starts, ends (one past the last taken, -1: past the beginning), axes, steps |
| Pad | x | pads (all axes: begin.., end.., none negative), mode, value |
| Gather | x, indices | axis |
| ScatterElements | x, indices, updates | axis, reduction |
| Tile | x | repeats |
| Resize | x | mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, exclude_outside, |
| | | extrapolation_value, antialias, scales (all axes), sizes (all axes; () if scales rule), roi |

The bias of Conv, ConvTranspose and Gemm is an Add of its own with a constant [C,1,..]; a
BatchNormalization is a Mul and an Add.  Any other operator stays as ONNX has it and becomes a host
call; if it keeps the meaning of an older operator set, its attribute `opset_version` says which.
"""

from __future__ import annotations

import onnx

from engine.graph import rules_math, rules_nn, rules_shape
from engine.graph.builder import RULES, Builder, Call, Unsupported

__all__ = ["apply", "check_known", "rules_math", "rules_nn", "rules_shape"]

_RANDOM = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
}  # fmt: skip


def apply(b: Builder, call: Call) -> list[str] | None:
    """Values of the call's outputs, None if no rule covers it."""
    if call.op in _RANDOM:
        raise Unsupported("its result is random")
    rule = RULES.get(call.op)
    if rule is None:
        return None
    check_known(call)
    result = rule(b, call)
    return [result] if isinstance(result, str) else None if result is None else list(result)


def check_known(call: Call) -> None:
    """Raises Unsupported for an operator that nothing here defines."""
    domain = call.domain or "ai.onnx"
    known = {s.domain for s in onnx.defs.get_all_schemas()} if call.domain else {""}
    if call.domain not in known:
        raise Unsupported(f"the operator domain '{domain}' is unknown")
    if not onnx.defs.has(call.op, call.opset, call.domain):
        raise Unsupported(f"operator set {call.opset} of '{domain}' has no such operator")
    if call.op in ("Loop", "Scan"):
        raise Unsupported("loops inside a network are not supported")
