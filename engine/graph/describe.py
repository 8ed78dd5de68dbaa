"""What people read about a search task: anchor, shapes, epilogue.

In: a kernel item and its DAG.  Out: the fields of `Workload.description`, shapes in channels-last
order and weights as HWIO, as the field prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.graph.declare import Declared
from engine.graph.fuse import Item
from engine.graph.ir import Graph, Node
from engine.ops import OPERATORS, Kind
from engine.ops.elementwise import stage_name


def anchor_name(item: Item, declared: Declared) -> str:
    """ "conv2d", "dense", "softmax", "reduce", "elementwise"..."""
    if item.anchor is None:
        return "elementwise"
    if item.anchor.op.startswith("Reduce"):
        return "reduce"
    return declared.node_stages[item.anchor.name]


def description(graph: Graph, item: Item, declared: Declared) -> dict[str, Any]:
    """Plain JSON values: data_shape, weight_shape, strides, pads, epilogue, output_shape, flops."""
    anchor = item.anchor or item.nodes[0]
    spatial = item.kind is Kind.WINDOW or item.anchor is None
    return {
        "anchor": anchor_name(item, declared),
        "data_shape": _channels_last(graph.shape(anchor.inputs[0]), spatial),
        "weight_shape": _weight_shape(graph, anchor),
        "strides": [int(s) for s in anchor.attrs.get("strides", ())],
        "pads": [int(p) for p in anchor.attrs.get("pads", ())],
        "epilogue": _epilogue(graph, item),
        "output_shape": _channels_last(graph.shape(item.output), spatial),
        "flops": declared.dag.flops,
    }


def _channels_last(shape: Sequence[int], spatial: bool) -> list[int]:
    if not spatial or len(shape) < 3:
        return list(shape)
    return [shape[0], *shape[2:], shape[1]]


def _weight_shape(graph: Graph, node: Node) -> list[int] | None:
    if node.op in ("Conv", "ConvTranspose"):
        first, second, *taps = graph.shape(node.inputs[1])
        return [*taps, *((second, first) if node.op == "Conv" else (first, second))]
    if node.op in ("MaxPool", "AveragePool"):
        return [int(k) for k in node.attrs["kernel_shape"]]
    if node.op == "MatMul":
        shape = list(graph.shape(node.inputs[1]))
        dense = node.inputs[1] in graph.constants and len(shape) == 2
        return shape[::-1] if dense else shape
    return None


def _epilogue(graph: Graph, item: Item) -> list[str]:
    """Printed names of the nodes behind the anchor (of all, if there is none)."""
    if item.anchor is None:
        return [_printed(graph, node) for node in item.nodes]
    behind = item.nodes[item.nodes.index(item.anchor) + 1 :]
    return [_printed(graph, node) for node in behind]


def _printed(graph: Graph, node: Node) -> str:
    if OPERATORS[node.op].kind is Kind.ROWS:
        return "reduce"
    if node.op != "Add":
        return stage_name(node.op)
    sizes = [graph.constants[n].size for n in node.inputs if n in graph.constants]
    if not sizes:
        return "residual_add"
    return "add" if max(sizes) == 1 else "bias_add"
