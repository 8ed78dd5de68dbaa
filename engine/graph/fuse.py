"""Grouping: which nodes become one kernel.

In: a `Graph`.  Out: items in execution order: groups of nodes with one output, and single nodes
(views, host calls).  A group is a reducing node (the anchor) with the elementwise nodes that follow
it, or elementwise nodes alone; a value with users outside the group ends it (Chen et al., TVM,
2018, section 3).  Reductions over the same rows and the elementwise nodes between them are one
group as well: a normalisation written out in single steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from engine.graph.ir import Graph, Node
from engine.ops import OPERATORS, Call, Kind, Operand, axis_names
from engine.ops.registry import Array

VIEWS = ("Reshape", "Identity", "Concat", "Slice", "Transpose")
"""Operators that may move nothing at all; the layout planner decides."""

_REGION_LIMIT = 24
"""Nodes that may lie between a value and the point where its uses meet again."""


class Role(StrEnum):
    """What becomes of an item."""

    KERNEL = "kernel"
    VIEW = "view"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Item:
    """Nodes in graph order; kernels have one output, and `anchor` is their reducing node."""

    role: Role
    nodes: tuple[Node, ...]
    output: str
    anchor: Node | None = None

    @property
    def kind(self) -> Kind:
        """Kind of the anchor; elementwise without one."""
        return OPERATORS[self.anchor.op].kind if self.anchor else Kind.ELEMENTWISE

    @property
    def inputs(self) -> tuple[str, ...]:
        """Values from outside, each once, in order of use."""
        inside = {out for node in self.nodes for out in node.outputs}
        names = [n for node in self.nodes for n in node.inputs if n and n not in inside]
        return tuple(dict.fromkeys(names))


def group_nodes(graph: Graph) -> tuple[Item, ...]:
    """All nodes as items, in an order that respects their dependencies."""
    return _Fuser(graph).run()


@dataclass
class _Trial:
    """Names for a declaration that is thrown away."""

    count: int = 0

    def unique(self, base: str) -> str:
        self.count += 1
        return f"{base}_{self.count}"

    def constant(self, base: str, array: Array) -> Operand:
        return Operand(self.unique(base), array.shape, array)


def declared(graph: Graph, node: Node) -> bool:
    """Whether the node has a compute declaration: float32, no axis of length 0."""
    names = [n for n in (*node.inputs, *node.outputs) if n]
    values = [graph.values[n] for n in names]
    if node.domain or node.op not in OPERATORS or len(node.outputs) != 1:
        return False
    if any(v.dtype != "float32" or 0 in v.shape for v in values):
        return False
    shape = graph.shape(node.output)
    operands = tuple(
        Operand(f"in{i}", graph.shape(n), graph.constants.get(n)) if n else None
        for i, n in enumerate(node.inputs)
    )
    call = Call(node.op, node.attrs, operands, shape, axis_names(len(shape)), _Trial())
    return OPERATORS[node.op].declare(call) is not None


def _viewable(graph: Graph, node: Node) -> bool:
    names = [n for n in (*node.inputs, *node.outputs) if n]
    plain = all(graph.values[n].dtype == "float32" and 0 not in graph.shape(n) for n in names)
    return node.op in VIEWS and not node.domain and plain


@dataclass
class _Draft:
    """A group that still grows."""

    members: set[str]
    output: str
    anchor: Node | None = None


@dataclass
class _Fuser:
    graph: Graph
    order: dict[str, int] = field(default_factory=dict)
    users: dict[str, list[Node]] = field(default_factory=dict)
    owner: dict[str, _Draft] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)

    def run(self) -> tuple[Item, ...]:
        graph = self.graph
        self.order = {node.name: i for i, node in enumerate(graph.nodes)}
        self.users = graph.consumers()
        views = {n.name for n in graph.nodes if _viewable(graph, n)}
        for node in graph.nodes:
            if node.name not in views and declared(graph, node):
                self.kinds[node.name] = OPERATORS[node.op].kind
        for node in self._anchors():
            if node.name not in self.owner:
                self._open(node, node)
        for node in graph.nodes:
            if node.name not in self.owner and self.kinds.get(node.name) is Kind.ELEMENTWISE:
                self._open(node, None)
        for draft in list({id(d): d for d in self.owner.values()}.values()):
            self._join_consumer(draft)
        return tuple(self._items(views))

    def _anchors(self) -> list[Node]:
        """Nodes that may start a group, in the order in which they take followers.

        The deeper of two convolutions takes their sum; the first of several reductions over the
        same rows takes the others.
        """
        depth: dict[str, int] = {}
        for node in self.graph.nodes:
            level = 1 + max((depth.get(n, 0) for n in node.inputs), default=0)
            depth.update(dict.fromkeys(node.outputs, level))
        heads = [
            node
            for node in self.graph.nodes
            if self.kinds.get(node.name, Kind.ELEMENTWISE) is not Kind.ELEMENTWISE
        ]
        rows = {n.name for n in heads if self.kinds[n.name] is Kind.ROWS}
        return sorted(
            heads, key=lambda n: (n.name in rows, depth[n.output] * (1 if n.name in rows else -1))
        )

    def _open(self, node: Node, anchor: Node | None) -> None:
        draft = _Draft({node.name}, node.output, anchor)
        self.owner[node.name] = draft
        if self.kinds[node.name] is Kind.COPY:
            return
        joins = self._joins(node)
        while (region := self._region(draft.output, joins)) is not None:
            nodes, draft.output = region
            draft.members.update(n.name for n in nodes)
            self.owner.update({n.name: draft for n in nodes})

    def _joins(self, node: Node) -> Callable[[Node], bool]:
        """Whether a node may become part of the group that `node` opens.

        Elementwise nodes of the same shape may.  A group that starts with a reduction along rows
        also takes what has the rows' full shape, and further reductions of the same rows.
        """
        shapes = {self.graph.shape(node.output)}
        axes = self._row_axes(node)
        if axes:
            shapes.add(self.graph.shape(node.inputs[0]))

        def joins(other: Node) -> bool:
            if other.name in self.owner or other.name not in self.kinds:
                return False
            if self.kinds[other.name] is Kind.ELEMENTWISE:
                return self.graph.shape(other.output) in shapes
            same_rows = bool(axes) and self._row_axes(other) == axes
            return same_rows and self.graph.shape(other.inputs[0]) in shapes

        return joins

    def _row_axes(self, node: Node) -> tuple[int, ...]:
        """Axes of a reduction that keeps the rank and runs over the last axes; else ()."""
        if self.kinds[node.name] is not Kind.ROWS or not node.op.startswith("Reduce"):
            return ()
        axes, rank = tuple(node.attrs["axes"]), len(self.graph.shape(node.inputs[0]))
        last = axes == tuple(range(rank - len(axes), rank))
        return axes if last and node.attrs["keepdims"] else ()

    def _region(self, value: str, joins: Callable[[Node], bool]) -> tuple[list[Node], str] | None:
        """Nodes from `value` to the point where all its uses have met, and that point's output;
        None if a use is by a node that may not join."""
        taken, opened = list[Node](), {value}
        while opened == {value} or len(opened) > 1:
            if len(taken) >= _REGION_LIMIT or opened & set(self.graph.outputs):
                return None
            names = {n.name for n in taken}
            waiting = [n for v in opened for n in self.users[v] if n.name not in names]
            if not waiting:
                return None
            node = min(waiting, key=lambda n: self.order[n.name])
            if not joins(node):
                return None
            taken.append(node)
            names.add(node.name)
            opened.add(node.output)
            opened = {v for v in opened if not self._closed(v, names)}
        return taken, opened.pop()

    def _closed(self, value: str, inside: set[str]) -> bool:
        users = self.users[value]
        return bool(users) and all(n.name in inside for n in users)

    def _join_consumer(self, draft: _Draft) -> None:
        """Moves an elementwise group into the only group that uses it, if that reads in place."""
        if draft.anchor is not None or draft.output in self.graph.outputs:
            return
        users = self.users[draft.output]
        homes = {id(self.owner[n.name]) if n.name in self.owner else 0 for n in users}
        if not users or len(homes) != 1 or 0 in homes:
            return
        shape = self.graph.shape(draft.output)
        if not all(self._reads_in_place(n, draft.output, shape) for n in users):
            return
        target = self.owner[users[0].name]
        target.members |= draft.members
        self.owner.update(dict.fromkeys(draft.members, target))

    def _reads_in_place(self, node: Node, value: str, shape: tuple[int, ...]) -> bool:
        kind = self.kinds[node.name]
        if kind is Kind.ROWS:
            return node.inputs[0] == value and node.inputs.count(value) == 1
        return kind is Kind.ELEMENTWISE and self.graph.shape(node.output) == shape

    def _items(self, views: Iterable[str]) -> Iterator[Item]:
        """Each group stands where its last node stood."""
        views = set(views)
        for node in self.graph.nodes:
            draft = self.owner.get(node.name)
            if draft is None:
                role = Role.VIEW if node.name in views else Role.HOST
                yield Item(role, (node,), next((o for o in node.outputs if o), ""))
            elif node.output == draft.output:
                members = sorted(draft.members, key=self.order.__getitem__)
                nodes = tuple(self.graph.nodes[self.order[name]] for name in members)
                yield Item(Role.KERNEL, nodes, draft.output, draft.anchor)
