"""The network between import and extraction: an immutable list of nodes over named values.

In: an ONNX file (`engine.graph.onnx_import`).  Out: what `engine.graph.partition` cuts into search
tasks.  Node order is topological.  Every value has a static shape.  Operators carry ONNX names with
the meaning of the newest operator set, attributes explicit (see `engine.graph.canonical`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor's name, static shape and NumPy dtype name ("float32")."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator; `inputs` may hold "" for an omitted optional input."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    @property
    def output(self) -> str:
        return self.outputs[0]


@dataclass(frozen=True)
class Graph:
    """A whole network; `values` covers inputs, constants and every node output."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, NDArray[Any]]
    values: Mapping[str, Value]
    opset: int = 21

    def consumers(self) -> dict[str, list[Node]]:
        """Value name -> the nodes that read it, in order (a node twice if it reads it twice)."""
        users: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in node.inputs:
                if name:
                    users.setdefault(name, []).append(node)
        return users

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def with_nodes(
        self,
        nodes: tuple[Node, ...],
        constants: Mapping[str, NDArray[Any]] | None = None,
        values: Mapping[str, Value] | None = None,
    ) -> Graph:
        """The same network with other nodes, without constants and values that nothing names."""
        constants = self.constants if constants is None else constants
        values = self.values if values is None else values
        named = set(self.inputs) | set(self.outputs)
        for node in nodes:
            named.update(node.inputs)
            named.update(node.outputs)
        named.discard("")
        return replace(
            self,
            nodes=nodes,
            constants={k: v for k, v in constants.items() if k in named},
            values={k: v for k, v in values.items() if k in named},
        )


def fold_value(array: NDArray[Any], name: str) -> Value:
    """The value that describes a constant array."""
    return Value(name, tuple(int(d) for d in array.shape), np.dtype(array.dtype).name)
