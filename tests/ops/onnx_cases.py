"""One-node networks of the operators' own sample cases."""

from __future__ import annotations

import numpy as np

from engine.graph.dialect import DIALECT_OPSET
from engine.graph.host import run_node
from engine.graph.ir import Graph, Node, Value


def sample(operator, case, seed=7):
    """(node, input arrays, expected output) with random inputs."""
    arrays = case.arrays(np.random.default_rng(seed))
    names = tuple("" if a is None else f"in{i}" for i, a in enumerate(arrays))
    node = Node("n", operator.name, names, ("y",), case.attrs)
    (expected,) = run_node(node, DIALECT_OPSET, arrays)
    return node, arrays, expected


def network(node, case, arrays, expected):
    """The graph of that node alone, and what to feed it."""
    given = {n: a for n, a in zip(node.inputs, arrays, strict=True) if n}
    constants = {node.inputs[i]: arrays[i] for i in case.constant}
    feeds = {n: a for n, a in given.items() if n not in constants}
    values = {n: Value(n, a.shape) for n, a in given.items()} | {"y": Value("y", expected.shape)}
    graph = Graph("one", tuple(feeds), ("y",), (node,), constants, values, DIALECT_OPSET)
    return graph, feeds
