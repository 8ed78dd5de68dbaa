"""The graph under construction, and the registry of rewriting rules.

In: calls of ONNX operators, one at a time in topological order.  Out: nodes of the dialect, with
static shapes; whatever has only constant inputs is computed at once and becomes a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.shape_inference import InferenceError

from engine.errors import ModelError
from engine.graph.dialect import DIALECT_OPSET, OPSET_ATTR, node_opset, to_onnx
from engine.graph.host import run_node
from engine.graph.infer import UnknownShapeError, infer_outputs
from engine.graph.ir import Node, Value, fold_value

FOLD_LIMIT = 64 << 20
"""Bytes up to which a folded constant may outgrow its inputs."""

VIEW_LIMIT = 1 << 30
"""The same where the result is a view that takes no memory yet (Expand, Transpose)."""

Array = NDArray[Any]
Result = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an ONNX operator; inputs are builder values, outputs ONNX names ("" unused)."""

    op: str
    domain: str
    opset: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def input(self, index: int) -> str:
        """The value at that position, "" if omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def uses(self, index: int) -> bool:
        """Whether that output has a name."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def attr(self, key: str, default: Any) -> Any:
        return self.attrs.get(key, default)


Rule = Callable[["Builder", Call], Result | None]
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operators of the default domain; None leaves the node as it is."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


class Unsupported(Exception):
    """A rule's reason to refuse a node."""


@dataclass
class Builder:
    """Mutable state of one import; rules see nothing else."""

    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    node_names: set[str] = field(default_factory=set)
    fresh: set[str] = field(default_factory=set)
    call: Call | None = None

    def begin(self, call: Call) -> None:
        """What follows is for that call; `fresh` then holds the values made for it."""
        self.call = call
        self.fresh.clear()

    # what rules ask -----------------------------------------------------------------------------
    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def rank(self, name: str) -> int:
        return len(self.values[name].shape)

    def dtype(self, name: str) -> str:
        return self.values[name].dtype

    def const(self, name: str) -> Array | None:
        """The array of a constant, None for anything computed at run time."""
        return self.constants.get(name)

    def ints(self, name: str, what: str) -> tuple[int, ...]:
        """A constant's integers; raises Unsupported if it is computed at run time."""
        array = self.constants.get(name)
        if array is None:
            raise Unsupported(f"the {what} must be constant, not computed from the input data")
        return tuple(int(v) for v in np.asarray(array).reshape(-1))

    # what rules do ------------------------------------------------------------------------------
    def constant(self, array: Array, hint: str = "") -> str:
        """A new constant."""
        name = self.unique(hint or self._hint())
        self.constants[name] = array
        self.values[name] = fold_value(array, name)
        return name

    def like(self, name: str, value: float | Array) -> str:
        """A constant of the same dtype as that value."""
        return self.constant(np.asarray(value, dtype=self.dtype(name)))

    def emit(self, op: str, *inputs: str, **attrs: Any) -> str:
        """One dialect node with one output, or its value at once if all inputs are constant."""
        return self.add(op, inputs, 1, attrs)[0]

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The value under another shape; itself if the shape is already that."""
        shape = tuple(int(d) for d in shape)
        if np.prod(shape, dtype=object) != np.prod(self.shape(name), dtype=object):
            raise Unsupported(f"{list(self.shape(name))} cannot take the shape {list(shape)}")
        return name if self.shape(name) == shape else self.emit("Reshape", name, shape=shape)

    def transpose(self, name: str, perm: Sequence[int]) -> str:
        perm = tuple(int(p) for p in perm)
        if perm == tuple(range(len(perm))):
            return name
        return self.emit("Transpose", name, perm=perm)

    def keep(self, call: Call) -> list[str]:
        """The call as it stands, for a host call later; its own operator set goes along."""
        attrs = dict(call.attrs)
        if call.domain or not _same_meaning(call.op, call.opset):
            attrs[OPSET_ATTR] = call.opset
        return self.add(call.op, call.inputs, len(call.outputs), attrs, call.domain)

    def add(
        self, op: str, inputs: Sequence[str], count: int, attrs: Mapping[str, Any], domain: str = ""
    ) -> list[str]:
        """A node of any operator; gives the names of its `count` outputs ("" where unused)."""
        uses = [True] if self.call is None or count == 1 else list(map(bool, self.call.outputs))
        outputs = tuple(self.unique(self._hint()) if used else "" for used in uses)
        node = Node(self._node_name(op), op, tuple(inputs), outputs, dict(attrs), domain)
        constant = all(name in self.constants for name in inputs if name)
        try:
            found = self._infer(node)
        except (UnknownShapeError, InferenceError):
            if constant:
                return self._fold(node)
            raise
        for value in found:
            if any(d < 0 for d in value.shape):
                raise Unsupported(f"its output would have the shape {list(value.shape)}")
        if constant and self._may_fold(node, found):
            return self._fold(node)
        self.values.update({value.name: value for value in found if value.name})
        self.nodes.append(node)
        self.node_names.add(node.name)
        return list(outputs)

    def rename(self, old: str, new: str, since: int = 0) -> None:
        """Gives a computed value or constant another name (nodes before `since` do not use it)."""
        self.values[new] = replace(self.values.pop(old), name=new)
        if old in self.constants:
            self.constants[new] = self.constants.pop(old)
        self.taken.add(new)
        for i in range(since, len(self.nodes)):
            node = self.nodes[i]
            if old in node.inputs or old in node.outputs:
                inputs = tuple(new if n == old else n for n in node.inputs)
                outputs = tuple(new if n == old else n for n in node.outputs)
                self.nodes[i] = replace(node, inputs=inputs, outputs=outputs)

    def unique(self, base: str) -> str:
        """A value name that nothing uses yet."""
        name, n = base, 0
        while name in self.taken or name in self.values:
            n += 1
            name = f"{base}.{n}"
        self.taken.add(name)
        self.fresh.add(name)
        return name

    # inner --------------------------------------------------------------------------------------
    def _hint(self) -> str:
        if self.call is None:
            return "value"
        return next((n for n in self.call.outputs if n), self.call.op)

    def _node_name(self, op: str) -> str:
        call = self.call
        base = (call.name if call and call.name else op) or op
        if call and call.name and call.op != op:
            base = f"{base}/{op}"
        name, n = base, 0
        while name in self.node_names:
            n += 1
            name = f"{base}_{n}"
        return name

    def _infer(self, node: Node) -> list[Value]:
        first = next((self.values[n] for n in node.inputs if n), None)
        proto, extra = to_onnx(node, first.dtype if first else "float32")
        data = {name: self.constants[name] for name in node.inputs if name in self.constants}
        return infer_outputs(proto, node_opset(node), self.values, {**data, **extra})

    def _may_fold(self, node: Node, found: Sequence[Value]) -> bool:
        size = sum(_nbytes(value) for value in found)
        source = sum(_nbytes(self.values[name]) for name in node.inputs if name)
        limit = VIEW_LIMIT if node.op in _VIEWS and OPSET_ATTR not in node.attrs else FOLD_LIMIT
        return size <= max(limit, 2 * source)

    def _fold(self, node: Node) -> list[str]:
        arrays = [self.constants[name] if name else None for name in node.inputs]
        view = _VIEWS.get(node.op)
        if view is not None and OPSET_ATTR not in node.attrs and not node.domain:
            array = view(node, arrays[0])
            results = [array if array.nbytes > FOLD_LIMIT else np.array(array, order="C")]
        else:
            results = run_node(node, DIALECT_OPSET, arrays, use_onnxruntime=False)
        for name, array in zip(node.outputs, results, strict=True):
            if name:
                self.constants[name] = array
                self.values[name] = fold_value(array, name)
        return list(node.outputs)


_VIEWS: dict[str, Callable[[Node, Any], Array]] = {
    "Expand": lambda node, array: np.broadcast_to(array, node.attrs["shape"]),
    "Transpose": lambda node, array: np.transpose(array, node.attrs["perm"]),
}


def refuse(call: Call, reason: str, where: str, fix: str = "") -> ModelError:
    """The one error form for a node that cannot be imported."""
    name = call.name or next((n for n in call.outputs if n), "") or "unnamed"
    kind = f"{call.domain or 'ai.onnx'}::{call.op}, opset {call.opset}"
    what = f"node '{name}' ({kind}) cannot be imported"
    return ModelError(what, where=where, why=reason, fix=fix)


_GROWN_SINCE = {
    **dict.fromkeys(
        (
            "Compress", "ConvInteger", "DequantizeLinear", "Det", "DynamicQuantizeLinear", "Einsum",
            "GRU", "GatherElements", "GatherND", "IsInf", "IsNaN", "LSTM", "LpPool",
            "MatMulInteger", "MaxPool", "MaxUnpool", "MeanVarianceNormalization", "NonZero",
            "OneHot", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "RNN", "ReverseSequence",
            "ScatterElements", "ScatterND", "Trilu", "Unique",
        ),
        7,
    ),
    "TopK": 10,
}  # fmt: skip
"""Operator -> the set from which on later versions only added types or attributes."""


def _same_meaning(op: str, opset: int) -> bool:
    if opset >= _GROWN_SINCE.get(op, DIALECT_OPSET):
        return True
    schema = onnx.defs.get_schema(op, opset, "")
    return bool(onnx.defs.get_schema(op, DIALECT_OPSET, "").since_version == schema.since_version)


def _nbytes(value: Value) -> int:
    if value.dtype == "object":
        return 0
    return int(np.prod(value.shape, dtype=np.int64)) * np.dtype(value.dtype).itemsize
