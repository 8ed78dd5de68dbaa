"""Small local rewrites that bring constants into one form.

In: a `Graph`.  Out: the same network.

    c + x                        -->  x + c                  (the constant stands second)
    x - c                        -->  x + (-c)
    x / c                        -->  x * (1 / c)
    c of shape [1,C,1,1], [1]    -->  [C,1,1], []
    x + 0, x * 1, x ** 1         -->  x
    (x + c) + d, (x * c) * d     -->  x + (c + d), x * (c * d)
    Pad(x, 0) -> Conv            -->  Conv with larger pads
    Reshape -> Reshape           -->  Reshape; so too Transpose, or nothing at all
    two equal nodes              -->  one
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.graph.dialect import OPSET_ATTR
from engine.graph.edit import Array, Editor
from engine.graph.ir import Graph, Node

_COMMUTATIVE = ("Add", "Mul", "Max", "Min")
_BINARY = (*_COMMUTATIVE, "Sub", "Div", "Pow")
_NEUTRAL = {"Add": 0, "Mul": 1, "Pow": 1}


def simplify(graph: Graph) -> Graph:
    """All rewrites of this file, once over the graph."""
    editor = Editor(graph)
    _share_equal(editor)
    for node in editor.all_nodes(*_BINARY):
        for rewrite in _REWRITES:
            current = editor.nodes.get(node.name)
            if current is None:
                break
            rewrite(editor, current)
    for node in editor.all_nodes("Pad"):
        _merge_pad(editor, node)
    for node in editor.all_nodes("Reshape", "Transpose"):
        _merge_moves(editor, node)
    return editor.finish()


def _constant_second(editor: Editor, node: Node) -> None:
    first, second = node.inputs
    if node.op in _COMMUTATIVE and first in editor.constants and second not in editor.constants:
        editor.change(node, inputs=(second, first))


def _add_and_multiply(editor: Editor, node: Node) -> None:
    c = _operand(editor, node)
    if c is None or c.dtype.kind != "f" or node.op not in ("Sub", "Div"):
        return
    with np.errstate(all="ignore"):
        inverse = -c if node.op == "Sub" else np.asarray(1 / c, c.dtype)
    if np.isfinite(inverse).all() and np.isfinite(c).all():
        node = editor.set_constant(node, 1, inverse)
        editor.change(node, op="Add" if node.op == "Sub" else "Mul")


def _short_constant(editor: Editor, node: Node) -> None:
    c = _operand(editor, node)
    if c is None or not c.ndim or c.shape[0] != 1:
        return
    if len(editor.shape(node.inputs[0])) == len(editor.shape(node.output)):
        while c.ndim and c.shape[0] == 1:
            c = c[0]
        editor.set_constant(node, 1, np.asarray(c))


def _neutral(editor: Editor, node: Node) -> None:
    c, neutral = _operand(editor, node), _NEUTRAL.get(node.op)
    if c is None or neutral is None or editor.shape(node.inputs[0]) != editor.shape(node.output):
        return
    if (c == neutral).all():
        editor.bypass(node, node.inputs[0])


def _merge(editor: Editor, node: Node) -> None:
    c, before = _operand(editor, node), editor.writer(node.inputs[0])
    if c is None or c.dtype.kind != "f" or before is None or before.op != node.op:
        return
    d = _operand(editor, before)
    if node.op not in ("Add", "Mul") or d is None or not editor.only_reader(before.output):
        return
    if editor.shape(before.inputs[0]) != editor.shape(node.output):
        return
    merged = c + d if node.op == "Add" else c * d
    if merged.size <= max(c.size, d.size) and np.isfinite(merged).all():
        editor.set_constant(node, 1, merged)
        editor.bypass(before, before.inputs[0])


_REWRITES: tuple[Callable[[Editor, Node], None], ...] = (
    _constant_second,
    _add_and_multiply,
    _short_constant,
    _neutral,
    _merge,
)


def _operand(editor: Editor, node: Node) -> Array | None:
    """The constant second operand of a node that computes with its first."""
    if node.op not in _BINARY or node.inputs[0] in editor.constants:
        return None
    return editor.const(node.inputs[1])


def _merge_pad(editor: Editor, node: Node) -> None:
    pads, conv = node.attrs["pads"], editor.only_reader(node.output)
    rank = len(pads) // 2
    if conv is None or conv.op != "Conv" or conv.inputs[0] != node.output:
        return
    if node.attrs["mode"] != "constant" or node.attrs["value"] != 0:
        return
    if any((*pads[:2], *pads[rank : rank + 2])):
        return
    spatial = (*pads[2:rank], *pads[rank + 2 :])
    total = tuple(a + b for a, b in zip(conv.attrs["pads"], spatial, strict=True))
    editor.change(conv, attrs={**conv.attrs, "pads": total})
    editor.bypass(node, node.inputs[0])


def _merge_moves(editor: Editor, node: Node) -> None:
    before = editor.writer(node.inputs[0])
    if before is not None and before.op == node.op and not before.domain:
        attrs = dict(node.attrs)
        if node.op == "Transpose":
            attrs["perm"] = tuple(before.attrs["perm"][p] for p in node.attrs["perm"])
        node = editor.change(node, inputs=before.inputs, attrs=attrs)
    same = editor.shape(node.inputs[0]) == editor.shape(node.output)
    if same and node.attrs.get("perm", ()) in ((), tuple(range(len(editor.shape(node.output))))):
        editor.bypass(node, node.inputs[0])


def _share_equal(editor: Editor) -> None:
    seen: dict[object, str] = {}
    for node in editor.all_nodes():
        if len(node.outputs) != 1 or OPSET_ATTR in node.attrs or editor.is_output(node.output):
            continue
        if any(isinstance(value, np.ndarray) for value in node.attrs.values()):
            continue
        first = seen.setdefault(
            (node.op, node.inputs, tuple(sorted(node.attrs.items()))), node.output
        )
        if first != node.output:
            editor.bypass(node, first)
