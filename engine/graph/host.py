"""Running nodes outside generated code: host calls, constant folding, and the reference run.

In: a `Node` or a `Graph` and arrays.  Out: arrays.  One node becomes a one-node ONNX model for
onnxruntime where that is installed (fast), else for the onnx package's reference operators.  Both
are imported on first use only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from engine.errors import InputError, ModelError
from engine.graph.dialect import DIALECT_OPSET, OPSET_ATTR, elem_type_of, node_opset, to_onnx
from engine.graph.ir import Graph, Node
from engine.graph.kernels import KERNELS

Array = NDArray[Any]
_SESSION_LIMIT = 256
_sessions: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def run_node(
    node: Node,
    opset: int,
    arrays: Sequence[Array | None],
    *,
    use_onnxruntime: bool = True,
) -> list[Array]:
    """Outputs of one node for the given inputs (None for an omitted one).

    `opset` is the graph's; a node that keeps an older meaning says so in its attributes.
    Raises ModelError when neither onnxruntime nor the reference operators can run it.
    """
    first = next((a for a in arrays if a is not None), None)
    dtype, rank = ("float32", 0) if first is None else (first.dtype.name, first.ndim)
    proto, extra = to_onnx(node, dtype, rank)
    proto, feeds = _distinct_inputs(proto, arrays, extra)
    version = node_opset(node, opset)
    if use_onnxruntime and has_onnxruntime():
        # any refusal counts: onnxruntime lacks kernels that the reference operators have
        with suppress(Exception):
            return _run_onnxruntime(proto, version, feeds)
    kernel = None if node.domain or OPSET_ATTR in node.attrs else KERNELS.get(node.op)
    if kernel is not None and len(node.outputs) == 1:
        return [kernel(node.attrs, *arrays)]
    return _run_reference(proto, version, feeds)


def run_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    *,
    use_onnxruntime: bool = True,
    keep: Sequence[str] = (),
) -> dict[str, Array]:
    """Output name -> array (also the values named in `keep`), node by node; feeds stay unchanged.

    Raises InputError for a missing, unknown or ill-shaped input.
    """
    check_feeds(graph, feeds)
    wanted = (*graph.outputs, *keep)
    values: dict[str, Array] = {**graph.constants, **{k: np.asarray(v) for k, v in feeds.items()}}
    last_use = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    for i, node in enumerate(graph.nodes):
        arrays = [values[name] if name else None for name in node.inputs]
        results = run_node(node, graph.opset, arrays, use_onnxruntime=use_onnxruntime)
        values.update((n, r) for n, r in zip(node.outputs, results, strict=False) if n)
        for name in node.inputs:
            if last_use.get(name) == i and name not in wanted:
                values.pop(name, None)
    return {name: np.array(values[name]) for name in wanted}


def check_feeds(graph: Graph, feeds: Mapping[str, Array]) -> None:
    """Raises InputError unless `feeds` holds exactly the graph's inputs, shaped and typed right."""
    for name in graph.inputs:
        if name not in feeds:
            raise InputError(f"input '{name}' is missing", where=graph.name)
        array, want = np.asarray(feeds[name]), graph.values[name]
        if array.shape != want.shape or array.dtype.name != want.dtype:
            raise InputError(
                f"input '{name}' is {array.dtype.name}{list(array.shape)}",
                where=graph.name,
                fix=f"Give {want.dtype}{list(want.shape)}",
            )
    for name in feeds:
        if name not in graph.inputs:
            known = ", ".join(graph.inputs)
            raise InputError(
                f"there is no input '{name}'", where=graph.name, fix=f"The inputs are: {known}"
            )


@cache
def has_onnxruntime() -> bool:
    """Whether onnxruntime can be imported."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def _distinct_inputs(
    proto: onnx.NodeProto, arrays: Sequence[Array | None], extra: Mapping[str, Array]
) -> tuple[onnx.NodeProto, dict[str, Array]]:
    """The node with inputs renamed by position, so that one array may be fed twice."""
    feeds: dict[str, Array] = {}
    given = list(arrays) + [extra.get(name) for name in proto.input[len(arrays) :]]
    for i, array in enumerate(given):
        if array is None:
            proto.input[i] = ""
            continue
        proto.input[i] = f"i{i}"
        feeds[f"i{i}"] = array
    for i, name in enumerate(proto.output):
        proto.output[i] = f"o{i}" if name else ""
    proto.name = ""
    return proto, feeds


def _model(
    proto: onnx.NodeProto, opset: int, feeds: Mapping[str, Array], fixed: Mapping[str, Array]
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(k, elem_type_of(v.dtype.name), v.shape)
        for k, v in feeds.items()
        if k not in fixed
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    constants = [numpy_helper.from_array(v, k) for k, v in fixed.items()]
    graph = helper.make_graph([proto], "node", inputs, outputs, constants)
    imports = [helper.make_opsetid("", DIALECT_OPSET if proto.domain else opset)]
    if proto.domain:
        imports.append(helper.make_opsetid(proto.domain, opset))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _run_onnxruntime(proto: onnx.NodeProto, opset: int, feeds: Mapping[str, Array]) -> list[Array]:
    import onnxruntime as ort

    # small integer inputs (shapes, axes, pads) become constants: several kernels demand it
    fixed = {k: v for k, v in feeds.items() if v.size <= 64 and k != "i0"}
    contents = tuple((k, v.dtype.name, v.shape, v.tobytes()) for k, v in fixed.items())
    shapes = tuple((k, v.dtype.name, v.shape) for k, v in feeds.items())
    key = (proto.SerializeToString(deterministic=True), opset, shapes, contents)
    session = _sessions.get(key)
    if session is None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = _model(proto, opset, feeds, fixed).SerializeToString()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        _sessions[key] = session
        if len(_sessions) > _SESSION_LIMIT:
            _sessions.popitem(last=False)
    rest = {k: np.asarray(v, order="C") for k, v in feeds.items() if k not in fixed}
    return _in_place(proto, session.run(None, rest))


def _run_reference(proto: onnx.NodeProto, opset: int, feeds: Mapping[str, Array]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    model = _model(proto, opset, feeds, {})
    try:
        with np.errstate(all="ignore"):
            return _in_place(proto, ReferenceEvaluator(model).run(None, dict(feeds)))
    except Exception as error:
        raise ModelError(
            f"operator {proto.domain or 'ai.onnx'}::{proto.op_type} (opset {opset}) cannot be run",
            why=f"{type(error).__name__}: {error}",
            fix="Install onnxruntime, which has more operators",
        ) from error


def _in_place(proto: onnx.NodeProto, results: Any) -> list[Array]:
    """Results by output position; an omitted output is an empty array."""
    found = iter(results)
    return [np.asarray(next(found)) if name else np.empty(0) for name in proto.output]
