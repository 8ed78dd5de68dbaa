"""Scale folding: multiplications by constant vectors move into neighbouring weights.

In: a `Graph` whose batch norms are Mul and Add.  Out: the same network with fewer Mul nodes.

    backward   Conv(x, w) -> Add(c) -> Mul(s)          -->  Conv(x, w*s) -> Add(c*s)
    forward    Mul(s) -> Add(c) -> Relu -> Conv(w), ... -->  Add(c/s) -> Relu -> Conv(w*s), ...

Backward needs every value on the way to have one reader and not to leave the graph.  Forward needs
every path to end in a product with constant weights.  Relu and MaxPool let positive scales pass.
An addition in front of a padded convolution is never folded: the border cells are zero, not the
shift.  After "FoldScaleAxis" of TVM's Relay (backward first, then forward), whose result the task
list of the pre-activation ResNet-50 shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.graph.edit import Editor
from engine.graph.ir import Graph, Node

Array = NDArray[Any]
_POSITIVE = ("Relu", "MaxPool")
"""Operators f with f(s*x) = s*f(x) for a positive scale per channel."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors along one axis of a value (all of its factors equal: `factors` has size 1)."""

    factors: Array
    axis: int

    def along(self, rank: int, axis: int | None = None) -> Array:
        """The factors shaped to broadcast over a value of that rank."""
        if self.factors.size == 1:
            return self.factors.reshape(())
        axis = self.axis if axis is None else axis
        return self.factors.reshape((-1,) + (1,) * (rank - axis - 1))

    @property
    def positive(self) -> bool:
        return bool((self.factors > 0).all())

    @property
    def usable(self) -> bool:
        """Whether dividing by the factors keeps everything finite."""
        size = np.abs(self.factors)
        return bool(np.isfinite(size).all() and (size > 1e-30).all())


def fold_scales(graph: Graph) -> Graph:
    """Both directions, backward first."""
    editor = Editor(graph)
    for fold in (_fold_backward, _fold_forward):
        for node in editor.all_nodes("Mul"):
            scale = scale_of(editor, node)
            if scale is not None and fold(editor, node, scale):
                editor.bypass(editor.nodes[node.name], node.inputs[0])
    return editor.finish()


def scale_of(editor: Editor, node: Node) -> Scale | None:
    """The constant vector or number that a Mul or Add applies to its first input."""
    factors = editor.const(node.inputs[1])
    x = node.inputs[0]
    if factors is None or x in editor.constants or factors.dtype.kind != "f":
        return None
    shape = editor.shape(x)
    if factors.size == 1 and factors.ndim <= len(shape):
        return Scale(factors.reshape(1), 0)
    full = (1,) * (len(shape) - factors.ndim) + factors.shape
    wide = [i for i, d in enumerate(full) if d != 1]
    if len(wide) != 1 or len(full) != len(shape) or full[wide[0]] != shape[wide[0]]:
        return None
    return Scale(factors.reshape(-1), wide[0])


# backward ---------------------------------------------------------------------------------------
def _fold_backward(editor: Editor, node: Node, scale: Scale) -> bool:
    """Walks up from the Mul to weights that take the scale, then scales all on the way."""
    shifts: list[Node] = []
    value = node.inputs[0]
    while True:
        writer = editor.writer(value)
        if writer is None or editor.only_reader(value) is None or writer.domain:
            return False
        weights = _scaled_outputs(editor, writer, scale)
        if weights is not None:
            break
        if writer.op == "Add" and _same_axis(editor, writer, scale):
            shifts.append(writer)
        elif not (writer.op == "Relu" and scale.positive):
            return False
        value = writer.inputs[0]
    if not np.isfinite(weights).all():
        return False
    editor.set_constant(writer, 1, weights)
    for shift in shifts:
        rank = len(editor.shape(shift.output))
        editor.set_constant(shift, 1, editor.constants[shift.inputs[1]] * scale.along(rank))
    return True


def _same_axis(editor: Editor, node: Node, scale: Scale) -> bool:
    """Whether the node adds a constant number or vector along the scale's axis."""
    shift = scale_of(editor, node)
    if shift is None:
        return False
    return shift.factors.size == 1 or scale.factors.size == 1 or shift.axis == scale.axis


def _scaled_outputs(editor: Editor, node: Node, scale: Scale) -> Array | None:
    """The node's weights with its output channels scaled, None if it has no such weights."""
    weights = editor.const(node.inputs[1]) if len(node.inputs) > 1 else None
    if weights is None or node.op not in ("Conv", "ConvTranspose", "MatMul"):
        return None
    s, rank = scale.factors, len(editor.shape(node.output))
    if s.size == 1:
        return np.asarray(weights * s.reshape(()), weights.dtype)
    if node.op == "MatMul":
        return weights * s if scale.axis == rank - 1 else None
    if scale.axis != 1:
        return None
    if node.op == "Conv":
        return weights * s.reshape(-1, *(1,) * (weights.ndim - 1))
    group, tail = node.attrs["group"], (1,) * (weights.ndim - 2)
    split = weights.reshape(group, -1, *weights.shape[1:])
    return (split * s.reshape(group, 1, -1, *tail)).reshape(weights.shape)


# forward ----------------------------------------------------------------------------------------
def _fold_forward(editor: Editor, node: Node, scale: Scale) -> bool:
    """Checks the whole tree of readers first, then changes it."""
    changes: list[Callable[[], object]] = []
    if not _plan_forward(editor, node.output, scale, changes):
        return False
    for change in changes:
        change()
    return True


def _plan_forward(
    editor: Editor, value: str, scale: Scale, changes: list[Callable[[], object]]
) -> bool:
    readers = editor.readers(value)
    if not readers or editor.is_output(value):
        return False
    for reader in readers:
        if reader.domain or list(reader.inputs).count(value) != 1:
            return False
        weights = _scaled_inputs(editor, reader, value, scale)
        if weights is not None:
            if not np.isfinite(weights).all():
                return False
            changes.append(lambda r=reader, w=weights: _set(editor, r, w))  # type: ignore[misc]
            continue
        if reader.op == "Add" and _same_axis(editor, reader, scale) and scale.usable:
            rank = len(editor.shape(value))
            shift = editor.constants[reader.inputs[1]] / scale.along(rank)
            if not np.isfinite(shift).all():
                return False
            changes.append(lambda r=reader, w=shift: _set(editor, r, w))  # type: ignore[misc]
        elif reader.op not in _POSITIVE or not scale.positive:
            return False
        if reader.op == "MaxPool" and scale.axis != 1 and scale.factors.size > 1:
            return False
        if not _plan_forward(editor, reader.output, scale, changes):
            return False
    return True


def _set(editor: Editor, node: Node, array: Array) -> None:
    editor.set_constant(editor.nodes[node.name], 1, array)


def _scaled_inputs(editor: Editor, node: Node, value: str, scale: Scale) -> Array | None:
    """The node's weights with its input channels scaled, None if it has no such weights."""
    if node.op not in ("Conv", "ConvTranspose", "MatMul") or node.inputs[0] != value:
        return None
    weights = editor.const(node.inputs[1])
    s, rank = scale.factors, len(editor.shape(value))
    if weights is None:
        return None
    if s.size == 1:
        return np.asarray(weights * s.reshape(()), weights.dtype)
    if node.op == "MatMul":
        return weights * s[:, None] if scale.axis == rank - 1 else None
    if scale.axis != 1:
        return None
    tail = (1,) * (weights.ndim - 2)
    if node.op == "ConvTranspose":
        return weights * s.reshape(-1, 1, *tail)
    group = node.attrs["group"]
    split = weights.reshape(group, -1, *weights.shape[1:])
    return (split * s.reshape(group, 1, -1, *tail)).reshape(weights.shape)
