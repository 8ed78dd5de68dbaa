"""From a node of the dialect back to plain ONNX.

In: a `Node` as `engine.graph.canonical` writes it, attributes explicit.  Out: a `NodeProto` of
operator set `DIALECT_OPSET` plus the small constant inputs that ONNX wants where the dialect has
attributes.  Shape inference and host calls both go through here, so the dialect has one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from engine.graph.ir import Node

DIALECT_OPSET = 23
"""Operator set whose meaning the dialect's operators have."""

OPSET_ATTR = "opset_version"
"""Attribute of a node that keeps the meaning of another operator set than `DIALECT_OPSET`."""

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp")

_WINDOW = ("kernel_shape", "strides", "dilations", "pads")
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "Conv": (*_WINDOW, "group"),
    "ConvTranspose": (*_WINDOW, "group", "output_padding"),
    "MaxPool": _WINDOW,
    "AveragePool": (*_WINDOW, "count_include_pad"),
    "Mod": ("fmod",),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Gelu": ("approximate",),
    "Clip": ("min", "max"),
    "Cast": ("to",),
    "LRN": ("size", "alpha", "beta", "bias"),
    "Softmax": ("axis",),
    "LogSoftmax": ("axis",),
    "Hardmax": ("axis",),
    "LayerNormalization": ("axis", "epsilon"),
    "GroupNormalization": ("num_groups", "epsilon"),
    **dict.fromkeys(REDUCTIONS, ("axes", "keepdims")),
    "ArgMax": ("axis", "keepdims", "select_last_index"),
    "ArgMin": ("axis", "keepdims", "select_last_index"),
    "CumSum": ("exclusive", "reverse"),
    "Reshape": ("shape",),
    "Expand": ("shape",),
    "Transpose": ("perm",),
    "Concat": ("axis",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Pad": ("pads", "mode", "value"),
    "Gather": ("axis",),
    "ScatterElements": ("axis", "reduction"),
    "Tile": ("repeats",),
    "Resize": (
        "mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a",
        "exclude_outside", "extrapolation_value", "antialias", "scales", "sizes", "roi",
    ),
    **dict.fromkeys(
        (
            "MatMul", "GlobalAveragePool", "GlobalMaxPool", "Add", "Sub", "Mul", "Div", "Pow",
            "Max", "Min", "PRelu", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
            "GreaterOrEqual", "Where", "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt",
            "Reciprocal", "Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sin", "Cos", "Tan",
            "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Softplus", "Not",
            "Identity",
        ),
        (),
    ),
}  # fmt: skip
"""Operators of the dialect and the attributes that each of their nodes has, no more, no fewer."""

_INT64_MIN = -(2**63)
Extra = dict[str, NDArray[Any]]


def node_opset(node: Node, opset: int = DIALECT_OPSET) -> int:
    """The operator set that gives this node its meaning."""
    return int(node.attrs.get(OPSET_ATTR, opset))


def dtype_of(elem_type: int) -> str:
    """NumPy dtype name of an ONNX element type."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name


def elem_type_of(dtype: str) -> int:
    """ONNX element type of a NumPy dtype name."""
    if dtype.startswith(("object", "str")):
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def to_onnx(node: Node, dtype: str) -> tuple[onnx.NodeProto, Extra]:
    """The node in ONNX's own form; `dtype` is that of its first input."""
    attrs = {k: v for k, v in node.attrs.items() if k != OPSET_ATTR}
    inputs = list(node.inputs)
    extra: Extra = {}
    convert = None if OPSET_ATTR in node.attrs else _CONVERT.get(node.op)
    if convert is not None and not node.domain:
        for key, array in convert(attrs, np.dtype(dtype)):
            name = f"{node.output}::{key}" if array is not None else ""
            inputs.append(name)
            if array is not None:
                extra[name] = array
    proto = onnx.NodeProto(op_type=node.op, domain=node.domain, name=node.name)
    proto.input.extend(inputs)
    proto.output.extend(node.outputs)
    proto.attribute.extend(_attribute(k, v, node) for k, v in sorted(attrs.items()))
    return proto, extra


def _attribute(key: str, value: Any, node: Node) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(key, numpy_helper.from_array(value))
    if isinstance(value, tuple | list) and not value:
        schema: Any = onnx.defs.get_schema(node.op, node_opset(node), node.domain)
        return helper.make_attribute(key, [], attr_type=schema.attributes[key].type.value)
    return helper.make_attribute(key, list(value) if isinstance(value, tuple) else value)


def _ints(values: Any) -> NDArray[Any]:
    return np.asarray(values, dtype=np.int64).reshape(-1)


def _shape(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    return [("shape", _ints(attrs.pop("shape")))]


def _reshape(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    attrs["allowzero"] = 1
    return [("shape", _ints(attrs.pop("shape")))]


def _slice(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    ends = [_INT64_MIN if end < 0 else end for end in attrs.pop("ends")]
    starts, axes, steps = attrs.pop("starts"), attrs.pop("axes"), attrs.pop("steps")
    return [
        ("starts", _ints(starts)),
        ("ends", _ints(ends)),
        ("axes", _ints(axes)),
        ("steps", _ints(steps)),
    ]


def _pad(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    value = attrs.pop("value")
    pads = [("pads", _ints(attrs.pop("pads")))]
    return [*pads, ("value", np.asarray(value, dtype))] if attrs["mode"] == "constant" else pads


def _clip(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    low, high = attrs.pop("min"), attrs.pop("max")
    return [("min", np.asarray(low, dtype)), ("max", np.asarray(high, dtype))]


def _reduce(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    axes = attrs.pop("axes")
    attrs["noop_with_empty_axes"] = 1
    return [("axes", _ints(axes))]


def _resize(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    roi, scales, sizes = attrs.pop("roi"), attrs.pop("scales"), attrs.pop("sizes")
    region = np.asarray(roi, np.float32) if roi else None
    if sizes:
        return [("roi", region), ("scales", None), ("sizes", _ints(sizes))]
    return [("roi", region), ("scales", np.asarray(scales, np.float32))]


def _tile(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    return [("repeats", _ints(attrs.pop("repeats")))]


def _cast(attrs: dict[str, Any], dtype: np.dtype[Any]) -> list[Any]:
    attrs["to"] = elem_type_of(attrs["to"])
    return []


_CONVERT = {
    "Reshape": _reshape,
    "Expand": _shape,
    "Slice": _slice,
    "Pad": _pad,
    "Clip": _clip,
    "Resize": _resize,
    "Tile": _tile,
    "Cast": _cast,
    **dict.fromkeys(REDUCTIONS, _reduce),
}
