"""Workloads for tests: from networks of a few nodes, from operators' declarations, from DAGs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from engine.expr import ComputeDag, Layout, Placeholder, Stage, row_major, workload_key
from engine.graph.builder import Builder
from engine.graph.cells import Format, canonical, sliced
from engine.graph.declare import Declared
from engine.graph.ir import Graph, Value
from engine.graph.layout_plan import halo_of
from engine.graph.partition import lower
from engine.graph.task import LoweredGraph, Workload
from engine.ops import Call, Case, Kind, Operand, Operator, axis_names
from engine.target import Target


def network(
    inputs: Mapping[str, tuple[int, ...]], build: Callable[[Builder], str], target: Target
) -> LoweredGraph:
    """The lowered network that `build` makes of the inputs; it gives the output's name."""
    b = Builder()
    for name, shape in inputs.items():
        b.values[name] = Value(name, shape)
    out = build(b)
    graph = Graph("net", tuple(inputs), (out,), tuple(b.nodes), b.constants, b.values)
    return lower(graph, target)


@dataclass
class Names:
    """The DAG under construction, as declarations see it."""

    taken: set[str] = field(default_factory=set)
    extra: dict[str, np.ndarray] = field(default_factory=dict)

    def unique(self, base: str) -> str:
        name = base if base not in self.taken else f"{base}_{len(self.taken)}"
        self.taken.add(name)
        return name

    def constant(self, base: str, array: np.ndarray) -> Operand:
        name = self.unique(base)
        self.extra[name] = array
        return Operand(name, array.shape, array)


def of_case(
    operator: Operator, case: Case, shape: tuple[int, ...], target: Target, seed: int = 7
) -> tuple[Workload, dict[str, np.ndarray]]:
    """The workload of one of the operator's own cases, and its inputs; `shape` of the output.

    Tensors of windows lie in blocks of channels, all others plainly.
    """
    arrays = case.arrays(np.random.default_rng(seed))
    names = Names()
    operands = tuple(
        None if a is None else Operand(names.unique(f"in{i}"), a.shape, a if i in case.constant
                                       else None)
        for i, a in enumerate(arrays)
    )  # fmt: skip
    call = Call(operator.name, case.attrs, operands, shape, axis_names(len(shape)), names)
    stages = operator.declare(call)
    assert stages, "the operator's own cases must be declared"
    feeds = {o.tensor: a for o, a in zip(operands, arrays, strict=True) if o is not None}
    placeholders = [Placeholder(o.tensor, o.shape, o.constant) for o in operands if o is not None]
    placeholders += [Placeholder(n, a.shape, True) for n, a in names.extra.items()]
    form = Format.BLOCKED if operator.kind is Kind.WINDOW else Format.PLAIN
    blocked = {"in0", stages[-1].name} if form is Format.BLOCKED else set()
    return of_dag(tuple(placeholders), stages, target, blocked), feeds | names.extra


def of_dag(
    placeholders: tuple[Placeholder, ...],
    stages: tuple[Stage, ...],
    target: Target,
    blocked: set[str] = frozenset(),  # type: ignore[assignment]
) -> Workload:
    """A workload of stages alone; `blocked` tensors lie in blocks of channels with halos."""
    dag = ComputeDag(placeholders, stages, (stages[-1].name,))
    declared = Declared(dag, {}, {}, {})
    layouts: dict[str, Layout] = {}
    variables = [p.name for p in placeholders if not p.constant] + [stages[-1].name]
    for name in variables:
        shape = dag.shapes[name]
        form = Format.BLOCKED if name in blocked and len(shape) > 2 else Format.PLAIN
        layouts[name] = canonical(shape, form, target.lanes, halo_of(declared, name, shape))
    return Workload(workload_key(dag), dag, layouts, stages[-1].name)


def roomier(layout: Layout, rng: np.random.Generator) -> Layout:
    """The tensor inside a bigger buffer: a wider halo, a slice of the channels or of an axis."""
    shape, rank = layout.shape, len(layout.shape)
    if not rank:
        return replace(layout, offset=3, size=7)
    if not layout.blocked:
        axis = int(rng.integers(rank))
        start, more = (int(v) for v in rng.integers(0, 4, 2))
        bigger = (*shape[:axis], start + shape[axis] + more, *shape[axis + 1 :])
        return sliced(axis, start, shape[axis])(row_major(bigger))
    block, channels = layout.block, shape[1]
    before, after = (int(v) * block for v in rng.integers(0, 2, 2))
    if channels % block:
        after = 0
    halo = tuple(
        (a + int(x), b + int(y)) if i > 1 else (0, 0)
        for i, ((a, b), (x, y)) in enumerate(
            zip((layout.halo or ((0, 0),) * rank), rng.integers(0, 3, (rank, 2)), strict=True)
        )
    )
    whole = canonical(
        (shape[0], before + channels + after, *shape[2:]), Format.BLOCKED, block, halo
    )
    if before + channels + after < block:
        return layout
    return sliced(1, before, channels)(whole)
