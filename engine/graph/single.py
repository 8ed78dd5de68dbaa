"""One node as a model of its own, and onnxruntime's sessions for such models.

In: a `Node`, the operator set that gives it meaning, and its input arrays.  Out: a `ModelProto`
whose inputs are named by position, or the outputs that onnxruntime computes.  Sessions are kept,
so that a host call in a network pays for its preparation once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from engine.graph.dialect import DIALECT_OPSET, elem_type_of, to_onnx
from engine.graph.ir import Node

Array = NDArray[Any]
Arrays = Sequence[Array | None]
_KEPT = 512
_SMALL = 64
"""Elements of an input that some of onnxruntime's kernels want as a constant."""

_lock = Lock()
_sessions: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def single_node_model(
    node: Node, opset: int, arrays: Arrays, fixed: Sequence[int] = ()
) -> onnx.ModelProto:
    """A model of that node: input i is "i<i>", output j "o<j>"; inputs in `fixed` are constants.

    What the dialect has as attributes and ONNX as inputs is constant too.
    """
    first = next((a for a in arrays if a is not None), None)
    proto, extra = to_onnx(node, "float32" if first is None else first.dtype.name)
    inputs, constants = [], []
    for i, array in enumerate([*arrays, *(extra.get(n) for n in proto.input[len(arrays) :])]):
        proto.input[i] = "" if array is None else f"i{i}"
        if array is not None and (i in fixed or i >= len(arrays)):
            constants.append(numpy_helper.from_array(array, f"i{i}"))
        elif array is not None:
            kind = elem_type_of(array.dtype.name)
            inputs.append(helper.make_tensor_value_info(f"i{i}", kind, array.shape))
    for j, name in enumerate(proto.output):
        proto.output[j] = f"o{j}" if name else ""
    proto.name = ""
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = helper.make_graph([proto], "node", inputs, outputs, constants)
    imports = [helper.make_opsetid("", DIALECT_OPSET if node.domain else opset)]
    if node.domain:
        imports.append(helper.make_opsetid(node.domain, opset))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feeds_of(arrays: Arrays, fixed: Sequence[int] = ()) -> dict[str, Array]:
    """Inputs of such a model by name."""
    return {
        f"i{i}": np.asarray(array, order="C")
        for i, array in enumerate(arrays)
        if array is not None and i not in fixed
    }


def in_place(node: Node, results: Any) -> list[Array]:
    """Results by output position; an omitted output is an empty array."""
    found = iter(results)
    return [np.asarray(next(found)) if name else np.empty(0) for name in node.outputs]


@cache
def has_onnxruntime() -> bool:
    """Whether onnxruntime can be imported."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def run_onnxruntime(node: Node, opset: int, arrays: Arrays) -> list[Array] | None:
    """The node's outputs, None where onnxruntime is missing or refuses the node."""
    if not has_onnxruntime():
        return None
    shapes = tuple(None if a is None else (a.dtype.num, a.shape) for a in arrays)
    used = tuple(map(bool, node.outputs))
    key = (node.op, node.domain, opset, frozen(node.attrs), used, shapes)
    for choose in (_no_inputs, _small_inputs):
        fixed = choose(arrays)
        session = _session(key, node, opset, arrays, fixed)
        if session is not None:
            with suppress(Exception):  # a kernel may refuse values that it accepted by type
                return in_place(node, session.run(None, feeds_of(arrays, fixed)))
    return None


def frozen(value: Any) -> Any:
    """Attributes as a key of a dictionary."""
    if isinstance(value, Mapping):
        return tuple((k, frozen(v)) for k, v in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def _no_inputs(arrays: Arrays) -> tuple[int, ...]:
    return ()


def _small_inputs(arrays: Arrays) -> tuple[int, ...]:
    small = (i for i, a in enumerate(arrays) if i and a is not None and a.size <= _SMALL)
    return tuple(small)


def _session(
    key: tuple[Any, ...], node: Node, opset: int, arrays: Arrays, fixed: Sequence[int]
) -> Any:
    """The kept session, or a new one; None if onnxruntime refuses the model."""
    whole = (*key, tuple((i, frozen(arrays[i])) for i in fixed))
    with _lock:
        if whole in _sessions:
            _sessions.move_to_end(whole)
            return _sessions[whole]
    session = None
    with suppress(Exception):
        session = _open(single_node_model(node, opset, arrays, fixed))
    with _lock:
        _sessions[whole] = session
        if len(_sessions) > _KEPT:
            _sessions.popitem(last=False)
    return session


def _open(model: onnx.ModelProto) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
