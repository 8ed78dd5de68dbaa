"""Layer normalisation written out in single operators becomes one node.

In: a `Graph`.  Out: the same network with LayerNormalization in place of

    d = x - ReduceMean(x)
    y = d / Sqrt(ReduceMean(d ** 2) + epsilon) * scale + bias

where the means run over the trailing axes and nothing else reads the values in between.  `scale`
and `bias` are constants and may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.graph.edit import Array, Editor
from engine.graph.ir import Graph, Node


@dataclass(frozen=True, slots=True)
class _Core:
    """The division of the pattern, its input and what it stands for."""

    division: Node
    x: str
    axis: int
    epsilon: float


def fuse_layer_norms(graph: Graph) -> Graph:
    """Every match becomes one node; `remove_dead` then drops what it replaced."""
    editor = Editor(graph)
    for root in editor.all_nodes("Sqrt"):
        core = _match(editor, root)
        if core is not None:
            _replace(editor, core)
    return editor.finish()


def _match(editor: Editor, root: Node) -> _Core | None:
    shifted = _only_writer(editor, root.inputs[0], "Add")
    epsilon = None if shifted is None else editor.const(shifted.inputs[1])
    if shifted is None or epsilon is None or epsilon.size != 1:
        return None
    variance = _only_writer(editor, shifted.inputs[0], "ReduceMean")
    square = None if variance is None else _only_writer(editor, variance.inputs[0], "Pow", "Mul")
    division = editor.only_reader(root.output)
    if variance is None or square is None or division is None or not _squares(editor, square):
        return None
    centred = editor.writer(square.inputs[0])
    if centred is None or centred.op != "Sub" or editor.is_output(centred.output):
        return None
    mean = _only_writer(editor, centred.inputs[1], "ReduceMean")
    inside = {square.name, division.name}
    if mean is None or mean.inputs[0] != centred.inputs[0] or mean.attrs != variance.attrs:
        return None
    if {n.name for n in editor.readers(centred.output)} != inside or division.op != "Div":
        return None
    if division.inputs != (centred.output, root.output):
        return None
    x, axes = centred.inputs[0], mean.attrs["axes"]
    rank = len(editor.shape(x))
    if not mean.attrs["keepdims"] or axes != tuple(range(axes[0], rank)):
        return None
    return _Core(division, x, axes[0], float(epsilon.reshape(-1)[0]))


def _only_writer(editor: Editor, value: str, *ops: str) -> Node | None:
    """What computes a value that has one reader, if it is one of these operators."""
    node = editor.writer(value)
    fits = node is not None and node.op in ops and editor.only_reader(value) is not None
    return node if fits else None


def _squares(editor: Editor, node: Node) -> bool:
    if node.op == "Mul":
        return node.inputs[0] == node.inputs[1]
    exponent = editor.const(node.inputs[1])
    return exponent is not None and exponent.size == 1 and bool((exponent == 2).all())


def _replace(editor: Editor, core: _Core) -> None:
    """The pattern's last node becomes the LayerNormalization."""
    shape = editor.shape(core.x)[core.axis :]
    dtype = editor.values[core.x].dtype
    last, scale = core.division, np.ones(shape, dtype)
    after, vector = _constant_step(editor, last, "Mul", shape)
    if after is not None and vector is not None:
        last, scale = after, vector
    after, bias = _constant_step(editor, last, "Add", shape)
    inputs = [core.x, editor.add_constant(scale, f"{last.output}.scale")]
    if after is not None and bias is not None:
        last = after
        inputs.append(editor.add_constant(bias, f"{last.output}.bias"))
    attrs = {"axis": core.axis, "epsilon": core.epsilon}
    editor.change(last, op="LayerNormalization", inputs=tuple(inputs), attrs=attrs)


def _constant_step(
    editor: Editor, node: Node, op: str, shape: tuple[int, ...]
) -> tuple[Node | None, Array | None]:
    """The single reader if it applies a constant over the normalised axes, and that constant."""
    reader = editor.only_reader(node.output)
    if reader is None or reader.op != op or reader.inputs[0] != node.output:
        return None, None
    constant = editor.const(reader.inputs[1])
    if constant is None or constant.ndim > len(shape):
        return None, None
    return reader, np.ascontiguousarray(np.broadcast_to(constant, shape))
