"""Layout planning: where every value lies, and which copies that costs.

In: items of `engine.graph.fuse` and their DAGs.  Out: kernel, host and copy steps over named cells.

Spatial tensors around convolutions and pools are channel-blocked, with zero halos as wide as their
readers' padding; everything else is plain.  Concat, Slice, Reshape and Transpose become views where
the layouts allow it: a Concat's parts are written into its buffer by their producers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate

from engine.expr import Axis, ComputeDag, Layout, Placeholder, Read, Stage, reads, var
from engine.graph.cells import (
    Cells,
    Format,
    Halo,
    Shape,
    View,
    block_of,
    canonical,
    permuted,
    reinterpreted,
    reshaped,
    same_memory,
    sliced,
    unpermuted,
)
from engine.graph.declare import Declared, declare
from engine.graph.formats import choose_formats, keeps_channels
from engine.graph.fuse import Item, Role
from engine.graph.ir import Graph, Node
from engine.ops import Kind, axis_names
from engine.ops.registry import Array
from engine.target import Target


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """An item or a copy, and the cells that its names stand for (DAG names, or node values)."""

    item: Item
    declared: Declared | None
    cells: Mapping[str, str]


@dataclass
class Plan:
    """Steps in order, over `cells`."""

    cells: Cells
    steps: list[PlannedStep] = field(default_factory=list)


def plan_layouts(
    graph: Graph, target: Target, items: Sequence[Item], declared: Mapping[str, Declared]
) -> Plan:
    """`declared` holds the DAG of each kernel item by its output."""
    planner = _Planner(graph, target.lanes, items, declared)
    return planner.run()


def halo_of(declared: Declared, name: str, shape: Shape) -> Halo:
    """How far zero-filled reads of a tensor reach beyond each of its spatial axes."""
    reach = [(0, 0)] * len(shape)
    for stage in declared.dag.stages:
        for read in reads(stage.body):
            if read.tensor != name or read.fill != 0.0:
                continue
            for axis in range(2, len(shape)):
                low, high = read.index[axis].bounds(stage.extents)
                before, after = reach[axis]
                reach[axis] = (max(before, -low), max(after, high - shape[axis] + 1))
    return tuple(reach)


def copy_dag(source: str, to: str, shape: Shape, array: Array | None) -> Declared:
    """The identity over a shape, from one value to another."""
    axes = tuple(Axis(n, e) for n, e in zip(axis_names(len(shape)), shape, strict=True))
    stage = Stage("copy", axes, Read("data", tuple(var(a.name) for a in axes)))
    dag = ComputeDag((Placeholder("data", shape, array is not None),), (stage,), ("copy",))
    constants = {} if array is None else {source: array}
    return Declared(dag, {"data": source, "copy": to}, constants, {})


@dataclass
class _Planner:
    graph: Graph
    lanes: int
    items: Sequence[Item]
    declared: Mapping[str, Declared]
    cells: Cells = field(init=False)
    steps: list[PlannedStep] = field(default_factory=list)
    native: dict[str, str] = field(default_factory=dict)
    form: dict[str, Format] = field(default_factory=dict)
    placed: dict[str, tuple[str, int]] = field(default_factory=dict)
    within: dict[str, tuple[str, int]] = field(default_factory=dict)
    maker: dict[str, Item] = field(default_factory=dict)
    readers: dict[str, list[Item]] = field(default_factory=dict)

    def run(self) -> Plan:
        self.cells = Cells(self.lanes)
        self.maker = {out: i for i in self.items for out in i.nodes[-1].outputs if out}
        for item in self.items:
            for name in item.inputs:
                self.readers.setdefault(name, []).append(item)
        self.form = choose_formats(self.graph, self.items, self.readers, self.lanes)
        for item in reversed(self.items):
            self._claim_parts(item)
        for name in self.graph.inputs:
            self.cells.root(name, self.graph.shape(name), Format.PLAIN)
            self.native[name] = name
        for item in self.items:
            self._place(item)
        return Plan(self.cells, self.steps)

    # parts of a bigger buffer -------------------------------------------------------------------
    def _claim_parts(self, item: Item) -> None:
        """Lets producers write where a Concat, Transpose or Reshape wants their values."""
        if item.role is not Role.VIEW:
            return
        node = item.nodes[0]
        if node.op == "Concat" and not self._within_another(node):
            for i, part in enumerate(node.inputs):
                if self._claimable(part) and self._same_form(part, node.output):
                    self.placed[part] = (node.output, i)
        transposed = node.op == "Transpose" and self._writes_transposed(node)
        if transposed or (node.op == "Reshape" and self._writes_output(node)):
            self.placed[node.inputs[0]] = (node.output, 0)

    def _within_another(self, node: Node) -> bool:
        """Whether all parts lie side by side in a later Concat already, as in dense blocks.

        The value is then a slice of that one: [a b] of [a b c].
        """
        places = [self.placed.get(part, ("", -1)) for part in node.inputs]
        whole, first = places[0]
        side_by_side = places == [(whole, first + i) for i in range(len(places))]
        free = node.output not in self.graph.outputs and node.output not in self.placed
        if not (whole and side_by_side and free and self._same_form(node.output, whole)):
            return False
        other = self.maker[whole].nodes[0]
        if other.op != "Concat" or other.attrs["axis"] != node.attrs["axis"]:
            return False
        self.within[node.output] = (whole, first)
        return True

    def _claimable(self, value: str) -> bool:
        maker = self.maker.get(value)
        if maker is None or value in self.placed or value in self.graph.outputs:
            return False
        return maker.role is Role.KERNEL or maker.nodes[0].op == "Concat"

    def _same_form(self, part: str, whole: str) -> bool:
        if self.form[part] is not self.form[whole]:
            return False
        if self.form[part] is Format.PLAIN:
            return True
        blocks = [block_of(self.graph.shape(n), self.lanes) for n in (part, whole)]
        return blocks[0] == blocks[1]

    def _writes_output(self, node: Node) -> bool:
        """Whether a network output is another shape of a value that a kernel writes."""
        source = node.inputs[0]
        plain = self.form.get(source) is Format.PLAIN and self._claimable(source)
        return plain and node.output in self.graph.outputs

    def _writes_transposed(self, node: Node) -> bool:
        """Whether the source is better written in transposed order than read so."""
        source, perm = node.inputs[0], node.attrs["perm"]
        users = self.readers.get(node.output, [])
        dense = node.output in self.graph.outputs or any(
            u.role is Role.HOST or u.nodes[0].op == "Reshape" for u in users
        )
        maker = self.maker.get(source)
        return (
            dense
            and perm[-1] == len(perm) - 1
            and self.form.get(source) is Format.PLAIN
            and self._claimable(source)
            and maker is not None
            and maker.role is Role.KERNEL
            and len(self.readers[source]) == 1
        )

    # steps --------------------------------------------------------------------------------------
    def _place(self, item: Item) -> None:
        if item.role is Role.VIEW:
            self._place_view(item.nodes[0])
        elif item.role is Role.HOST:
            self._place_host(item)
        else:
            self._place_kernel(item, self.declared[item.output])
        for out in item.nodes[-1].outputs:
            if out in self.graph.outputs and self.native[out] != out:
                cell = self.cells.root(out, self.graph.shape(out), Format.PLAIN)
                self._copy(self.native[out], cell.name)

    def _own_cell(self, value: str) -> str:
        """A cell for a value that a step computes: its own buffer, or its place in another's."""
        shape, form = self.graph.shape(value), self.form[value]
        place = self.placed.get(value) or self.within.get(value)
        if place is not None:
            self._open_whole(place[0])
            name = value
            self._part(name, value, *place)
        else:
            outside = value in self.graph.outputs
            name = self._beside(value, "inner") if outside and form is Format.BLOCKED else value
            self.cells.root(name, shape, form)
        self.native[value] = name
        return name

    def _open_whole(self, value: str) -> None:
        if value not in self.native:
            self._own_cell(value)

    def _part(self, name: str, value: str, whole: str, position: int) -> None:
        """The cell `name` as the place of the `position`-th input in the value `whole`."""
        node = self.maker[whole].nodes[0]
        shape, form, home = self.graph.shape(value), self.form[whole], self.native[whole]
        if node.op == "Transpose":
            self.cells.view(name, home, shape, form, unpermuted(tuple(node.attrs["perm"])))
            return
        if node.op == "Reshape":
            self.cells.view(name, home, shape, form, reshaped(shape))
            return
        axis = int(node.attrs["axis"])
        sizes = [self.graph.shape(n)[axis] for n in node.inputs]
        start = [0, *accumulate(sizes)][position]
        view = sliced(axis, start, shape[axis])
        self.cells.view(name, home, shape, form, view, halo=form is Format.BLOCKED)

    def _place_view(self, node: Node) -> None:
        match node.op:
            case "Concat":
                self._place_concat(node)
            case _ if self.placed.get(node.inputs[0]) == (node.output, 0):
                self._open_whole(node.output)
            case "Reshape":
                shape = self.graph.shape(node.output)
                source = self._use(node.inputs[0], Format.PLAIN, dense=True)
                self._alias(node, source, Format.PLAIN, reshaped(shape))
            case "Identity":
                form = self.form[node.output]
                source = self._use(node.inputs[0], form)
                self._alias(node, source, form, lambda layout: layout, halo=True)
            case "Transpose":
                self._place_transpose(node)
            case "Slice":
                self._place_slice(node)

    def _alias(self, node: Node, source: str, form: Format, view: View, halo: bool = False) -> None:
        name = node.output
        if name in self.graph.outputs:
            name = self._beside(name, "view")
        shape = self.graph.shape(node.output)
        self.cells.view(name, source, shape, form, view, halo=halo)
        self.native[node.output] = name

    def _place_concat(self, node: Node) -> None:
        self._open_whole(node.output)
        if node.output in self.within:
            return
        for i, part in enumerate(node.inputs):
            if self.placed.get(part) == (node.output, i):
                continue
            name = self._beside(node.output, f"part{i}")
            self._part(name, part, node.output, i)
            self._copy(self.native.get(part, part), name)

    def _place_transpose(self, node: Node) -> None:
        perm = tuple(node.attrs["perm"])
        if perm[-1] == len(perm) - 1 and self.form.get(node.inputs[0]) is Format.PLAIN:
            source = self._use(node.inputs[0], Format.PLAIN)
            self._alias(node, source, Format.PLAIN, permuted(perm))
        else:
            self._kernel_of(node)

    def _place_slice(self, node: Node) -> None:
        source, axes, steps = node.inputs[0], node.attrs["axes"], node.attrs["steps"]
        shape = self.graph.shape(node.output)
        if self.form[node.output] is Format.BLOCKED:
            cell = self._use(source, Format.BLOCKED)
            part = sliced(1, node.attrs["starts"][0], shape[1])
            self._alias(node, cell, Format.BLOCKED, part, halo=True)
            return
        last = len(shape) - 1
        rows = all(step == 1 for axis, step in zip(axes, steps, strict=True) if axis == last)
        if self.form.get(source, Format.PLAIN) is Format.BLOCKED or not rows:
            self._kernel_of(node)
            return
        cuts = [
            sliced(axis, start, shape[axis], step)
            for axis, start, step in zip(axes, node.attrs["starts"], steps, strict=True)
        ]

        def view(layout: Layout) -> Layout:
            return reduce(lambda inner, cut: cut(inner), cuts, layout)

        self._alias(node, self._use(source, Format.PLAIN), Format.PLAIN, view)

    def _kernel_of(self, node: Node) -> None:
        """A view operator that has to move its elements after all."""
        item = Item(Role.KERNEL, (node,), node.output, node)
        self._place_kernel(item, declare(self.graph, item))

    def _place_host(self, item: Item) -> None:
        node, found = item.nodes[0], dict[str, str]()
        for name in node.inputs:
            if name and name not in self.graph.constants:
                found[name] = self._use(name, Format.PLAIN, dense=True)
        for out in node.outputs:
            if out:
                self.cells.root(out, self.graph.shape(out), Format.PLAIN)
                self.native[out] = found[out] = out
        self.steps.append(PlannedStep(item, None, found))

    def _place_kernel(self, item: Item, declared: Declared) -> None:
        found: dict[str, str] = {}
        for holder in declared.dag.placeholders:
            value = declared.bindings[holder.name]
            if not holder.constant:
                halo = halo_of(declared, holder.name, holder.shape)
                found[holder.name] = self._use(value, self._wanted(item, value), halo)
        found[declared.dag.outputs[0]] = self._own_cell(item.output)
        self.steps.append(PlannedStep(item, declared, found))

    def _wanted(self, item: Item, value: str) -> Format | None:
        """The format in which a kernel reads a value; None for whichever it has."""
        shape, out = self.graph.shape(value), self.graph.shape(item.output)
        if item.kind is Kind.COPY:
            return None
        if item.kind is Kind.ELEMENTWISE:
            alike = [n for n in item.inputs if n in self.form and self.graph.shape(n) == out]
            return self.form[item.output] if shape == out and len(alike) > 1 else None
        assert item.anchor is not None
        if item.kind is Kind.WINDOW:
            spatial = value == item.anchor.inputs[0] or shape == out
            return Format.BLOCKED if spatial else self._weights(item, value)
        free = item.kind is Kind.ROWS and keeps_channels(self.graph, item)
        return None if free else Format.PLAIN

    def _weights(self, item: Item, value: str) -> Format | None:
        assert item.anchor is not None
        return Format.PLAIN if value in item.anchor.inputs[1:] else None

    def _use(self, value: str, form: Format | None, halo: Halo = (), *, dense: bool = False) -> str:
        """The cell to read a value from in that format; made by a copy or a view if need be."""
        native = self.native[value]
        cell = self.cells.table[native]
        ready = not dense or self.cells.contiguous(native)
        if (form is None or cell.form is form) and ready:
            if halo:
                self.cells.want_halo(native, halo)
            return native
        form = form or cell.form
        twin = self._beside(value, "dense" if dense and cell.form is form else form.value)
        if twin not in self.cells.table:
            reuse = cell.form is not form and not any(map(any, halo))
            if reuse and self._same_bytes(native, cell.shape):
                view = reinterpreted(form, self.lanes)
                self.cells.view(twin, native, cell.shape, form, view)
            else:
                self.cells.root(twin, cell.shape, form)
                self._copy(native, twin)
        if halo:
            self.cells.want_halo(twin, halo)
        return twin

    def _beside(self, value: str, what: str) -> str:
        """Name of another cell of a value, which no value of the network has."""
        name = f"{value}@{what}"
        while name in self.graph.values:
            name += "'"
        return name

    def _same_bytes(self, name: str, shape: Shape) -> bool:
        """Whether the other format of a cell is a mere view of it."""
        if not same_memory(shape, self.lanes):
            return False
        alone = canonical(shape, self.cells.table[name].form, self.lanes)
        steps = zip(self.cells.layout(name).strides, alone.strides, shape, strict=True)
        alike = all(own == other or size == 1 for own, other, size in steps)
        return alike and self.cells.freeze(name)

    def _copy(self, source: str, to: str) -> None:
        """A step that copies one cell (or a constant) to another."""
        node = Node(f"{to}/copy", "Identity", (source,), (to,))
        array = self.graph.constants.get(source)
        copied = copy_dag(source, to, self.cells.table[to].shape, array)
        cells = {"copy": to} if array is not None else {"data": source, "copy": to}
        self.steps.append(PlannedStep(Item(Role.KERNEL, (node,), to, node), copied, cells))
