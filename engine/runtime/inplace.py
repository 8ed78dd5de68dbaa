"""In-place sums: a kernel writes over the operand that it adds at the end.

    y = conv(x) + r,  r not needed afterwards      -->      y lies where r lay

The sum then misses no cache line that the operand has not brought in, and the network needs less
memory.  In: a lowered graph and the schedules.  Out: the graph with such values sharing a buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.expr import Placeholder, Stage, reads, var
from engine.graph.task import LoweredGraph, Step, Workload
from engine.records import Schedule


def reuse_in_place(
    lowered: LoweredGraph, schedules: Mapping[str, Schedule], fixed: frozenset[str]
) -> LoweredGraph:
    """`fixed` names values that must keep a buffer of their own (inputs and outputs)."""
    storage = dict(lowered.storage)
    last = _last_uses(lowered)
    residents: dict[str, list[str]] = {}
    for cell, (buffer, _) in storage.items():
        residents.setdefault(buffer, []).append(cell)
    for at, step in enumerate(lowered.steps):
        if step.workload is None or not _keeps_no_sums(step.workload, schedules):
            continue
        target = step.bindings[step.workload.dag.outputs[0]]
        if target in fixed or len(residents[storage[target][0]]) > 1:
            continue
        for operand in _operands(step):
            buffer, layout = storage[operand]
            dead = all(last.get(cell, -1) <= at for cell in residents[buffer])
            alone = all(storage[c][1] == layout for c in residents[buffer])
            if operand in fixed or not dead or not alone or layout != storage[target][1]:
                continue
            if any(cell in fixed for cell in residents[buffer]):
                continue
            storage[target] = (buffer, layout)
            residents[buffer].append(target)
            break
    return replace(lowered, storage=storage)


def _last_uses(lowered: LoweredGraph) -> dict[str, int]:
    """Value -> the last step that names it."""
    return {cell: at for at, step in enumerate(lowered.steps) for cell in step.bindings.values()}


def _keeps_no_sums(workload: Workload, schedules: Mapping[str, Schedule]) -> bool:
    """Whether no partial sums of a split reduction wait in the first output."""
    if len(workload.dag.outputs) > 1:
        return True  # they wait in the last one
    schedule = schedules.get(workload.key)
    if schedule is None:
        return False
    extents = {a.extent for stage in workload.dag.stages for a in stage.reduce_axes}
    parts = [value for name, value in schedule.knobs.items() if name.endswith(".split")]
    return all(part in extents for part in parts)


def _operands(step: Step) -> list[str]:
    """Values of the output's shape that are read point by point, behind the only reduction."""
    assert step.workload is not None
    dag = step.workload.dag
    if sum(stage.reducer is not None for stage in dag.stages) != 1:
        return []
    behind = {dag.anchor.name}
    for stage in dag.stages:
        if any(r.tensor in behind for r in reads(stage.body)):
            behind.add(stage.name)
    behind.discard(dag.anchor.name)
    shape = dag.shapes[dag.outputs[0]]
    bound = list(step.bindings.values())
    return [
        step.bindings[p.name]
        for p in dag.placeholders
        if not p.constant
        and p.shape == shape
        and bound.count(step.bindings[p.name]) == 1
        and all(s.name in behind and _pointwise(s, p) for s in dag.consumers(p.name))
    ]


def _pointwise(stage: Stage, placeholder: Placeholder) -> bool:
    own = tuple(var(a.name) for a in stage.axes)
    found = [r for r in reads(stage.body) if r.tensor == placeholder.name]
    return (
        stage.reducer is None
        and stage.index is None
        and all(r.index == own and r.fill is None for r in found)
    )
