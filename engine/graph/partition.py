"""From a network to kernels: the lowered graph and its search tasks.

In: a `Graph` in the canonical dialect and a target.  Out: a `LoweredGraph` whose steps are kernels
with compute DAGs, host calls and layout copies; and the `SearchTask`s that occur in one or several
lowered graphs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from engine.expr import ComputeDag, Layout, workload_key
from engine.graph.cells import Cells, Format, canonical
from engine.graph.declare import Declared, declare, nonnegative_values
from engine.graph.describe import anchor_name, description
from engine.graph.extend import extend_kernels
from engine.graph.fuse import Item, Role, group_nodes
from engine.graph.ir import Graph, fold_value
from engine.graph.layout_plan import PlannedStep, halo_of, plan_layouts
from engine.graph.task import LoweredGraph, SearchTask, Step, Workload
from engine.ops import Kind
from engine.ops.registry import Array
from engine.target import Target


def lower(graph: Graph, target: Target) -> LoweredGraph:
    """The network as steps over buffers.

    A step's bindings name entries of `storage` or constants of the lowered graph.  Beside the
    graph's own values, `storage` holds copies in another format ("x@blocked"), the inner buffers of
    network outputs ("x@inner") and parts of a concatenation ("x@part0").
    """
    items = group_nodes(graph)
    positive = nonnegative_values(graph)
    declared = {
        item.output: declare(graph, item, positive) for item in items if item.role is Role.KERNEL
    }
    plan = plan_layouts(graph, target, items, declared)
    maker = _Maker(graph, plan.cells)
    steps = tuple(maker.step(planned) for planned in plan.steps)
    storage = {name: (plan.cells.buffer(name), maker.layout(name)) for name in plan.cells.table}
    lowered = _with_constants(graph, steps, maker.constants)
    return extend_kernels(LoweredGraph(lowered, target, steps, storage))


def extract_search_tasks(
    lowered: LoweredGraph | Sequence[tuple[LoweredGraph, int]], threads: int = 1
) -> tuple[SearchTask, ...]:
    """Workloads with a reduction, once each, in order of first use.

    `lowered` is one network, or several with a count each; a task's weight is the number of its
    occurrences in all of them.
    """
    networks = [(lowered, 1)] if isinstance(lowered, LoweredGraph) else lowered
    found: dict[tuple[str, str], SearchTask] = {}
    for network, count in networks:
        for workload in _tunable(network.steps):
            key = (workload.key, network.target.key)
            known = found.get(key) or SearchTask(workload, network.target, 0, threads)
            found[key] = replace(known, weight=known.weight + count)
    return tuple(found.values())


def _tunable(steps: Iterable[Step]) -> Iterable[Workload]:
    for step in steps:
        if step.workload and any(s.reducer for s in step.workload.dag.stages):
            yield step.workload.base or step.workload


class _Maker:
    """Makes steps of planned steps; one workload for equal computations."""

    def __init__(self, graph: Graph, cells: Cells) -> None:
        self.graph, self.cells = graph, cells
        self.constants: dict[str, Array] = {}
        self._layouts: dict[str, Layout] = {}
        self._workloads: dict[tuple[str, tuple[Layout, ...]], Workload] = {}
        self._names: dict[str, int] = {}

    def layout(self, cell: str) -> Layout:
        """The final layout of a cell."""
        if cell not in self._layouts:
            self._layouts[cell] = self.cells.layout(cell)
        return self._layouts[cell]

    def step(self, planned: PlannedStep) -> Step:
        """The step, its constants noted."""
        layouts = {name: self.layout(cell) for name, cell in planned.cells.items()}
        if planned.declared is None:
            node = planned.item.nodes[0]
            fixed = {n: n for n in node.inputs if n in self.graph.constants}
            self.constants.update((n, self.graph.constants[n]) for n in fixed)
            bindings = {**fixed, **planned.cells}
            return Step(self._unique(node.op.lower()), None, node, bindings, layouts)
        self.constants.update(planned.declared.constants)
        bindings = {**planned.declared.bindings, **planned.cells}
        workload = self._workload(planned, planned.declared)
        return Step(self._unique(workload.anchor), workload, None, bindings, layouts)

    def _workload(self, planned: PlannedStep, declared: Declared) -> Workload:
        forms = {name: self.cells.table[cell].form for name, cell in planned.cells.items()}
        shapes = declared.dag.shapes
        layouts = {
            name: canonical(
                shapes[name], form, self.cells.lanes, halo_of(declared, name, shapes[name])
            )
            for name, form in forms.items()
        }
        key = _key(planned.item, declared.dag, forms)
        same = (key, tuple(layouts.values()))
        if same not in self._workloads:
            self._workloads[same] = self._new(key, planned.item, declared, layouts)
        return self._workloads[same]

    def _new(
        self, key: str, item: Item, declared: Declared, layouts: Mapping[str, Layout]
    ) -> Workload:
        if not declared.node_stages:  # a copy that the planner made
            shape = list(declared.dag.stages[0].shape)
            about = {
                "anchor": "copy", "data_shape": shape, "weight_shape": None, "strides": [],
                "pads": [], "epilogue": [], "output_shape": shape, "flops": 0,
            }  # fmt: skip
            return Workload(key, declared.dag, layouts, "copy", about)
        anchor = anchor_name(item, declared)
        about = description(self.graph, item, declared)
        return Workload(key, declared.dag, layouts, anchor, about)

    def _unique(self, base: str) -> str:
        count = self._names[base] = self._names.get(base, 0) + 1
        return base if count == 1 else f"{base}_{count}"


def _key(item: Item, dag: ComputeDag, forms: Mapping[str, Format]) -> str:
    """The workload key; tensors in blocks are the rule for windows and noted for all others."""
    key = workload_key(dag)
    if item.kind is Kind.WINDOW or Format.BLOCKED not in forms.values():
        return key
    blocked = [name for name, form in forms.items() if form is Format.BLOCKED]
    return json.dumps([*json.loads(key), {"blocked": blocked}], separators=(",", ":"))


def _with_constants(graph: Graph, steps: Sequence[Step], constants: Mapping[str, Array]) -> Graph:
    """The graph with exactly the constants that the steps bind, and those that are outputs."""
    bound = {name for step in steps for name in step.bindings.values()}
    kept = {name: array for name, array in constants.items() if name in bound}
    kept.update((n, graph.constants[n]) for n in graph.outputs if n in graph.constants)
    values = {n: v for n, v in graph.values.items() if n not in graph.constants or n in kept}
    values.update({n: fold_value(a, n) for n, a in kept.items()})
    return replace(graph, constants=kept, values=values)
