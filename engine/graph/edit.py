"""A graph open for changes: what the passes work on.

In: a `Graph`.  Out: a `Graph` after any number of node replacements and removals; who writes and
who reads each value is kept up to date in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.graph.ir import Graph, Node, fold_value

Array = NDArray[Any]


class Editor:
    """Nodes by name in topological order; a node may be replaced in place or dropped."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
        self.constants = dict(graph.constants)
        self.values = dict(graph.values)
        self._writer = {out: n.name for n in graph.nodes for out in n.outputs if out}
        self._readers: dict[str, list[str]] = {}
        for node in graph.nodes:
            self._enter(node)

    def all_nodes(self, *ops: str) -> Iterator[Node]:
        """The nodes of these operators, in order, each as it is when its turn comes."""
        for name in list(self.nodes):
            node = self.nodes.get(name)
            if node is not None and (not ops or node.op in ops) and not node.domain:
                yield node

    def writer(self, value: str) -> Node | None:
        return self.nodes[self._writer[value]] if value in self._writer else None

    def readers(self, value: str) -> list[Node]:
        """The nodes that read the value; twice if it is read twice."""
        return [self.nodes[name] for name in self._readers.get(value, ())]

    def is_output(self, value: str) -> bool:
        return value in self.graph.outputs

    def only_reader(self, value: str) -> Node | None:
        """The value's single use, None if there are more or it leaves the graph."""
        readers = self.readers(value)
        return readers[0] if len(readers) == 1 and not self.is_output(value) else None

    def const(self, value: str) -> Array | None:
        return self.constants.get(value)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.values[value].shape

    def add_constant(self, array: Array, base: str) -> str:
        """A new constant named after `base`."""
        name, n = f"{base}.folded", 0
        while name in self.values:
            n += 1
            name = f"{base}.folded{n}"
        self.constants[name] = array
        self.values[name] = fold_value(array, name)
        return name

    def change(self, node: Node, **changes: Any) -> Node:
        """Replaces a node's fields; outputs keep their names."""
        self._leave(node)
        new = replace(node, **changes)
        self.nodes[node.name] = new
        self._enter(new)
        return new

    def set_constant(self, node: Node, index: int, array: Array) -> Node:
        """Gives the node another constant at that input; other readers keep the old one."""
        old = self.constants[node.inputs[index]]
        name = self.add_constant(np.asarray(array, old.dtype), node.inputs[index])
        inputs = list(node.inputs)
        inputs[index] = name
        return self.change(node, inputs=tuple(inputs))

    def bypass(self, node: Node, source: str) -> None:
        """Removes a node whose output equals `source`; the output's readers read that instead.

        A graph output keeps its name: the source takes it over, or an Identity stays.
        """
        out = node.output
        if not self.is_output(out):
            self._remove(node)
            self._redirect(out, source)
            return
        writer = self.writer(source)
        if writer is None or self.is_output(source):
            self.change(node, op="Identity", inputs=(source,), attrs={})
            return
        self._remove(node)
        self._redirect(source, out)
        outputs = tuple(out if name == source else name for name in writer.outputs)
        self.nodes[writer.name] = replace(self.nodes[writer.name], outputs=outputs)
        self._writer[out] = writer.name
        self._writer.pop(source, None)

    def finish(self) -> Graph:
        return self.graph.with_nodes(tuple(self.nodes.values()), self.constants, self.values)

    def _enter(self, node: Node) -> None:
        for name in node.inputs:
            if name:
                self._readers.setdefault(name, []).append(node.name)

    def _leave(self, node: Node) -> None:
        for name in node.inputs:
            if name:
                self._readers[name].remove(node.name)

    def _remove(self, node: Node) -> None:
        self._leave(node)
        del self.nodes[node.name]
        for name in node.outputs:
            self._writer.pop(name, None)

    def _redirect(self, old: str, new: str) -> None:
        for node in dict.fromkeys(self._readers.get(old, ())):
            current = self.nodes[node]
            inputs = tuple(new if name == old else name for name in current.inputs)
            self.change(current, inputs=inputs)
