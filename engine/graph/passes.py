"""The graph passes, in order.

In: a `Graph` fresh from the importer.  Out: the same network, smaller.
"""

from __future__ import annotations

from engine.graph.ir import Graph
from engine.graph.layer_norm import fuse_layer_norms
from engine.graph.scale import fold_scales
from engine.graph.simplify import simplify


def remove_dead(graph: Graph) -> Graph:
    """Drops nodes whose results nobody needs."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return graph.with_nodes(tuple(reversed(kept)))


PASSES = (remove_dead, simplify, fuse_layer_norms, remove_dead, fold_scales, simplify, remove_dead)


def run_passes(graph: Graph) -> Graph:
    """All passes that every network goes through."""
    for step in PASSES:
        graph = step(graph)
    return graph
