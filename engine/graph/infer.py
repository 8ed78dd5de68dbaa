"""Static shapes and types of one node's outputs.

In: a node and the shapes of its inputs.  Out: one `Value` per output.  The onnx package's own
inference does the work, one node at a time: the importer knows every shape before a node, so
the model is never serialised as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from engine.graph.dialect import dtype_of, elem_type_of
from engine.graph.ir import Value

_SMALL = 4096
"""Constants up to this many elements are shown to inference (shapes, axes, pads)."""


class UnknownShapeError(Exception):
    """The output's shape does not follow from the input shapes."""


def infer_outputs(
    proto: onnx.NodeProto,
    opset: int,
    values: Mapping[str, Value],
    data: Mapping[str, NDArray[Any]],
) -> list[Value]:
    """One value per output of `proto`; an omitted output gives an empty name.

    Raises UnknownShapeError where a dimension depends on data, and whatever the onnx package
    raises for a node that breaks its operator's rules.
    """
    schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    types = {name: _type(values, data, name) for name in proto.input if name}
    small = {
        name: numpy_helper.from_array(data[name], name)
        for name in proto.input
        if name in data and data[name].size <= _SMALL
    }
    imports = [helper.make_opsetid(proto.domain, opset)]
    found = shape_inference.infer_node_outputs(schema, proto, types, small, opset_imports=imports)
    if proto.op_type == "GroupNormalization" and not proto.domain:
        found = {proto.output[0]: types[proto.input[0]]}  # the onnx package infers nothing here
    return [_value(name, found) for name in proto.output]


def _type(
    values: Mapping[str, Value], data: Mapping[str, NDArray[Any]], name: str
) -> onnx.TypeProto:
    if name in values:
        return helper.make_tensor_type_proto(elem_type_of(values[name].dtype), values[name].shape)
    array = data[name]
    return helper.make_tensor_type_proto(elem_type_of(array.dtype.name), array.shape)


def _value(name: str, found: Mapping[str, onnx.TypeProto]) -> Value:
    if not name:
        return Value("", ())
    kind = found.get(name)
    if kind is None or not kind.HasField("tensor_type"):
        raise UnknownShapeError(f"output '{name}' is not a tensor of known type")
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
        raise UnknownShapeError(f"the shape of output '{name}' depends on data")
    return Value(name, tuple(d.dim_value for d in tensor.shape.dim), dtype_of(tensor.elem_type))
