"""From a group of nodes to its compute DAG.

In: a kernel item of `engine.graph.fuse`.  Out: the DAG, with names that do not depend on the
network, and what its placeholders stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.expr import ComputeDag, Placeholder, Stage
from engine.graph.fuse import Item
from engine.graph.ir import Graph, Node
from engine.ops import OPERATORS, Call, Kind, Operand, axis_names
from engine.ops.registry import Array

_CONSTANT_ROLES = {"Add": "bias", "Sub": "bias", "Mul": "scale", "Div": "scale", "PRelu": "slope"}
_NONNEGATIVE = {"Relu", "Sigmoid", "Abs", "Exp", "Softmax", "Sqrt", "HardSigmoid", "Softplus"}
_KEEPS_SIGN = {
    "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Identity", "Reshape",
    "Transpose", "Slice", "Concat", "ReduceMax", "ReduceMean", "ReduceSum",
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """A DAG, its placeholders' and output's graph values, and constants that it brings along.

    `node_stages` names the last stage of each node.
    """

    dag: ComputeDag
    bindings: Mapping[str, str]
    constants: Mapping[str, Array]
    node_stages: Mapping[str, str]


def nonnegative_values(graph: Graph) -> frozenset[str]:
    """Values none of whose elements is below zero, as far as the operators tell."""
    found: set[str] = {n for n, a in graph.constants.items() if a.size and _no_minus(a)}
    for node in graph.nodes:
        inputs = [n for n in node.inputs if n]
        clipped = node.op == "Clip" and node.attrs.get("min", -1.0) >= 0
        kept = node.op in _KEEPS_SIGN and all(n in found for n in inputs)
        if node.op in _NONNEGATIVE or clipped or kept:
            found.update(o for o in node.outputs if o)
    return frozenset(found)


def _no_minus(array: Array) -> bool:
    return array.dtype.kind == "f" and bool((array >= 0).all())


def declare(graph: Graph, item: Item, nonnegative: frozenset[str] = frozenset()) -> Declared:
    """The compute DAG of a kernel item."""
    return _Builder(graph, item, nonnegative).run()


@dataclass
class _Builder:
    """A DAG under construction; the `Namer` of the declarations."""

    graph: Graph
    item: Item
    nonnegative: frozenset[str]
    taken: set[str] = field(default_factory=set)
    placeholders: list[Placeholder] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    bindings: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    known: dict[tuple[str, bool], Operand] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    node_stages: dict[str, str] = field(default_factory=dict)

    def run(self) -> Declared:
        for node in self.item.nodes:
            self._add(node)
        last = self.node_stages[self.item.nodes[-1].name]
        self.bindings[last] = self.item.output
        dag = ComputeDag(tuple(self.placeholders), tuple(self.stages), (last,))
        return Declared(dag, self.bindings, self.constants, self.node_stages)

    # Namer --------------------------------------------------------------------------------------
    def unique(self, base: str) -> str:
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def constant(self, base: str, array: Array) -> Operand:
        name = self.unique(base)
        value = self._value_name(f"{self.item.output}::{name}")
        self._placeholder(name, array.shape, value, array)
        return Operand(name, array.shape, array)

    # inner --------------------------------------------------------------------------------------
    def _add(self, node: Node) -> None:
        shape = self.graph.shape(node.output)
        operands = tuple(
            self._operand(node, i, name) if name else None for i, name in enumerate(node.inputs)
        )
        call = Call(node.op, node.attrs, operands, shape, self._axis_names(node), self)
        stages = OPERATORS[node.op].declare(call)
        assert stages, node
        self.stages += stages
        last = stages[-1]
        self.node_stages[node.name] = last.name
        if last.index is None:
            self.axes[node.output] = tuple(a.name for a in last.axes)
        self.known[node.output, False] = self.known[node.output, True] = Operand(
            last.name, shape, None, node.output in self.nonnegative
        )

    def _axis_names(self, node: Node) -> tuple[str, ...]:
        """Those of an operand of the same shape that the group made, else the default ones."""
        rank = len(self.graph.shape(node.output))
        for name in node.inputs:
            found = self.axes.get(name)
            if found and len(found) == rank:
                return found
        return axis_names(rank)

    def _operand(self, node: Node, position: int, value: str) -> Operand:
        squeeze = OPERATORS[node.op].kind is Kind.ELEMENTWISE
        key = (value, squeeze)
        if key not in self.known:
            self.known[key] = self._new_operand(node, position, value, squeeze)
        return self.known[key]

    def _new_operand(self, node: Node, position: int, value: str, squeeze: bool) -> Operand:
        shape, array = self.graph.shape(value), self.graph.constants.get(value)
        if array is not None and squeeze and array.size == 1:
            return Operand("", shape, array)  # becomes a number
        name = self.unique(self._role(node, position, array is not None))
        if array is None:
            self._placeholder(name, shape, value, None)
            return Operand(name, shape, None, value in self.nonnegative)
        if squeeze and 1 in shape:
            array = array.reshape([d for d in shape if d > 1])
            called = self._value_name(f"{value}::{list(array.shape)}")
            self._placeholder(name, array.shape, called, array)
        else:
            self._placeholder(name, shape, value, array)
        return Operand(name, shape, array)

    def _value_name(self, base: str) -> str:
        """A name for a constant of the group's own, which no value of the network has."""
        while base in self.graph.values:
            base += "'"
        return base

    def _role(self, node: Node, position: int, constant: bool) -> str:
        row = OPERATORS[node.op]
        if row.kind is not Kind.ELEMENTWISE:
            return row.roles[min(position, len(row.roles) - 1)]
        if constant:
            return _CONSTANT_ROLES.get(node.op, "constant")
        if not any(not p.constant for p in self.placeholders):
            return "data"
        return "residual" if node.op == "Add" else "other"

    def _placeholder(
        self, name: str, shape: tuple[int, ...], value: str, array: Array | None
    ) -> None:
        self.placeholders.append(Placeholder(name, tuple(shape), array is not None))
        self.bindings[name] = value
        if array is not None:
            self.constants[value] = array
