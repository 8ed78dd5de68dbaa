"""Operators that are defined by other operators.

In: a call of such an operator.  Out: the nodes of its body with attributes filled in, for the
importer to walk in place of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from engine.graph.builder import Builder, Call
from engine.graph.dialect import elem_type_of

_WHOLE = {"DynamicQuantizeLinear", "Range", "SequenceMap"}
"""Functions that stay one host call."""


FunctionKey = tuple[str, str, str]


def local_functions(model: onnx.ModelProto) -> Mapping[FunctionKey, onnx.FunctionProto]:
    """(domain, name, overload) -> function, for those the model brings along."""
    return {
        ("" if f.domain == "ai.onnx" else f.domain, f.name, f.overload): f for f in model.functions
    }


def function_body(b: Builder, proto: onnx.NodeProto, call: Call) -> onnx.FunctionProto | None:
    """The operator's own definition by simpler operators, None if it has none."""
    if call.op in _WHOLE or not onnx.defs.has(call.op, call.opset, call.domain):
        return None
    schema: Any = onnx.defs.get_schema(call.op, call.opset, call.domain)
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
        types = [_type(b, name) for name in call.inputs]
        body = schema.get_context_dependent_function_with_opset_version(
            _best(versions, call.opset), proto.SerializeToString(), types
        )
    elif schema.has_function:
        body = schema.get_function_with_opset_version(
            _best(schema.function_opset_versions, call.opset)
        )
    else:
        return None
    return onnx.FunctionProto.FromString(body) if body else None


def bind_attributes(function: onnx.FunctionProto, call: Call) -> Iterator[onnx.NodeProto]:
    """The body's nodes with references to the call's attributes replaced by their values."""
    defaults = {a.name: a for a in function.attribute_proto}
    if onnx.defs.has(call.op, call.opset, call.domain):
        schema = onnx.defs.get_schema(call.op, call.opset, call.domain)
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                defaults.setdefault(name, attribute.default_value)
    for node in function.node:
        yield _bind(node, defaults, call)


def _bind(
    node: onnx.NodeProto, defaults: Mapping[str, onnx.AttributeProto], call: Call
) -> onnx.NodeProto:
    if not any(a.ref_attr_name or a.HasField("g") for a in node.attribute):
        return node
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        source = attribute.ref_attr_name
        if source and source in call.attrs:
            bound.attribute.append(_given(attribute, call.attrs[source]))
        elif source and source in defaults:
            bound.attribute.append(_renamed(defaults[source], attribute.name))
        elif not source:
            bound.attribute.append(_inner(attribute, defaults, call))
    return bound


def _inner(
    attribute: onnx.AttributeProto, defaults: Mapping[str, onnx.AttributeProto], call: Call
) -> onnx.AttributeProto:
    """A branch inside a function may refer to the call's attributes as well."""
    if not attribute.HasField("g"):
        return attribute
    nodes = [_bind(node, defaults, call) for node in attribute.g.node]
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    del copy.g.node[:]
    copy.g.node.extend(nodes)
    return copy


def _given(attribute: onnx.AttributeProto, value: Any) -> onnx.AttributeProto:
    if hasattr(value, "dtype"):
        value = onnx.numpy_helper.from_array(value)
    listed = list(value) if isinstance(value, tuple) else value
    return onnx.helper.make_attribute(attribute.name, listed, attr_type=attribute.type or None)


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy


def _type(b: Builder, name: str) -> bytes:
    if not name:
        return b""
    kind = onnx.helper.make_tensor_type_proto(elem_type_of(b.dtype(name)), b.shape(name))
    return bytes(kind.SerializeToString())


def _best(versions: list[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))
