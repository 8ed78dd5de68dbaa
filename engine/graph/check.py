"""Consistency of a lowered network, for tests and for finding faults in the planner.

In: a `LoweredGraph`.  Out: nothing; ValueError names the first fault.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.expr import Layout, row_major
from engine.graph.task import LoweredGraph, Step


def check(lowered: LoweredGraph) -> None:
    """Every read value was written before, in bounds; nothing is overwritten; outputs are plain."""
    graph, storage = lowered.graph, lowered.storage
    sizes: dict[str, int] = {}
    for name, (buffer, layout) in storage.items():
        _require(sizes.setdefault(buffer, layout.size) == layout.size, f"{name}: buffer size")
        cells = offsets(layout)
        _require(cells.size == 0 or cells.min() >= 0, f"{name} starts before its buffer")
        _require(cells.size == 0 or cells.max() < layout.size, f"{name} leaves its buffer")
    for name in (*graph.inputs, *graph.outputs):
        if name in storage:
            _require(storage[name] == (name, row_major(graph.shape(name))), f"{name} is not plain")
    written = {
        name: np.ones(storage[name][1].size, dtype=bool) for name in graph.inputs if name in storage
    }
    for step in lowered.steps:
        _check_names(lowered, step)
        outputs = _outputs(step)
        for name in (n for n in step.layouts if n not in outputs):
            buffer, layout = storage[step.bindings[name]]
            done = written.get(buffer, np.zeros(layout.size, dtype=bool))
            _require(bool(done[offsets(layout)].all()), f"{step.name} reads {name} too early")
        for name in outputs:
            buffer, layout = storage[step.bindings[name]]
            done = written.setdefault(buffer, np.zeros(layout.size, dtype=bool))
            _require(not done[offsets(layout)].any(), f"{step.name} overwrites {buffer}")
            done[offsets(layout)] = True
    for name in graph.outputs:
        ready = name in graph.constants or name in written
        _require(ready or name not in storage, f"output {name} is never written")


def offsets(layout: Layout) -> NDArray[np.int64]:
    """Place of each element in the buffer, in floats, shaped like the tensor."""
    total = np.full((1,) * len(layout.shape), layout.offset, dtype=np.int64)
    grid = np.ogrid[tuple(slice(n) for n in layout.shape)]
    for axis, (index, stride) in enumerate(zip(grid, layout.strides, strict=True)):
        if axis == layout.block_axis and layout.blocked:
            total = total + index // layout.block * stride + index % layout.block
        else:
            total = total + index * stride
    return np.broadcast_to(total, layout.shape)


def _outputs(step: Step) -> tuple[str, ...]:
    if step.workload is not None:
        return step.workload.dag.outputs
    assert step.node is not None
    return tuple(o for o in step.node.outputs if o)


def _check_names(lowered: LoweredGraph, step: Step) -> None:
    constants, storage = lowered.graph.constants, lowered.storage
    for name, value in step.bindings.items():
        known = value in constants if name not in step.layouts else value in storage
        _require(known, f"{step.name}: {name} is bound to unknown {value}")
        if name in step.layouts:
            _require(step.layouts[name] == storage[value][1], f"{step.name}: layout of {name}")
    if step.workload is None:
        return
    dag = step.workload.dag
    names = {p.name for p in dag.placeholders} | set(dag.outputs)
    _require(names == set(step.bindings), f"{step.name} binds {sorted(step.bindings)}")
    for name in names:
        value = step.bindings[name]
        shape = storage[value][1].shape if name in step.layouts else constants[value].shape
        _require(tuple(shape) == dag.shapes[name], f"{step.name}: shape of {name}")
        if name in step.layouts:
            same = step.workload.layouts[name].shape == shape
            _require(same, f"{step.name}: canonical shape of {name}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"lowered network: {what}")
