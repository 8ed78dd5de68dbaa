"""Compiling a network: a lowered graph and the best schedules become a `CompiledNetwork`.

In: `LoweredGraph`, schedules and estimates by workload key.  Out: object code, packed weights and
the program that ties them together.  Equal kernels (same workload, schedule and layouts) are
generated once; equal packed constants are stored once, in order of first use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from engine.codegen.constants import derive
from engine.errors import ModelError
from engine.expr import ComputeDag, Layout, row_major
from engine.graph.task import LoweredGraph, Step, Workload
from engine.records import Schedule
from engine.runtime.driver import driver_ir
from engine.runtime.inplace import reuse_in_place
from engine.runtime.jit import emit_object
from engine.runtime.make import Made, Order, make_kernels
from engine.runtime.network import CompiledNetwork
from engine.runtime.plan import Buffer, MemoryPlan, plan_memory, zero_cells
from engine.runtime.program import (
    BUFFER,
    HOST,
    WEIGHT,
    HostStep,
    KernelCode,
    KernelStep,
    Program,
    Tensor,
)
from engine.runtime.weights import WeightBlob


def compile_network(
    lowered: LoweredGraph,
    schedules: Mapping[str, Schedule] | None = None,
    *,
    estimates: Mapping[str, float] | None = None,
    threads: int | None = None,
    jobs: int = 1,
) -> CompiledNetwork:
    """The network for `lowered.target`, ready to run and to save.

    `schedules` and `estimates` (seconds) are by workload key; a workload without a schedule, or
    with one that its sketches no longer know, gets the default (`network.program.untuned` lists
    those steps).  `threads` is the number that runs use unless told otherwise: by default the
    target's cores.  `jobs` processes compile.
    """
    target = lowered.target
    threads = threads or target.cores
    borders, skipped = _direct_copies(lowered)
    steps = tuple(s for s in lowered.steps if s.name not in skipped)
    fixed = frozenset({*lowered.graph.inputs, *lowered.graph.outputs, *borders.values()})
    lowered = reuse_in_place(replace(lowered, steps=steps), schedules or {}, fixed)
    orders, names = _orders(steps, schedules or {})
    made, images = make_kernels(orders, target, threads, jobs)
    plan = plan_memory(_buffers(lowered, steps, borders))
    maker = _Maker(lowered, plan, made, names, estimates or {})
    program = maker.program(steps, borders, threads)
    driver = emit_object(
        driver_ir(program), target.cpu, target.feature_string, triple=target.triple, passes=2
    )
    return CompiledNetwork(program, (driver, *images), maker.weights.join())


def _orders(
    steps: Sequence[Step], schedules: Mapping[str, Schedule]
) -> tuple[list[Order], dict[str, str]]:
    """An order for each different kernel, and step name -> kernel name."""
    known: dict[tuple[str, tuple[tuple[str, Layout], ...]], Order] = {}
    names: dict[str, str] = {}
    for step in steps:
        if step.workload is None:
            continue
        key = step.workload.key
        same = (key, tuple(sorted(step.layouts.items(), key=lambda item: item[0])))
        if same not in known:
            name = f"k{len(known)}"
            known[same] = Order(name, step.workload, schedules.get(key), step.layouts)
        names[step.name] = known[same].name
    return list(known.values()), names


@dataclass
class _Maker:
    """Turns steps into those of a program, collecting their weights on the way."""

    lowered: LoweredGraph
    plan: MemoryPlan
    made: Mapping[str, Made]
    names: Mapping[str, str]
    estimates: Mapping[str, float]
    weights: WeightBlob = field(default_factory=WeightBlob)

    def program(self, steps: Sequence[Step], borders: Mapping[str, str], threads: int) -> Program:
        lowered, graph = self.lowered, self.lowered.graph
        return Program(
            graph.name, lowered.target, threads, graph.opset,
            tuple(self._border(n, borders) for n in graph.inputs),
            tuple(self._border(n, borders) for n in graph.outputs),
            tuple(
                KernelCode(k.name, k.regions, k.units, k.workspace, k.workspace_per_thread)
                for k in (m.kernel for m in self.made.values())
            ),
            tuple(self._host(s) if s.workload is None else self._kernel(s) for s in steps),
            self.plan.size,
        )  # fmt: skip

    def _border(self, name: str, borders: Mapping[str, str]) -> Tensor:
        return self._tensor(borders.get(name, name), name)

    def _tensor(self, cell: str, name: str | None = None) -> Tensor:
        """A value as the outside or a host call sees it."""
        graph, name = self.lowered.graph, name or cell
        if cell in graph.constants:
            array = graph.constants[cell]
            if array.dtype.hasobject:
                raise ModelError(f"constant '{name}' holds strings", where=graph.name)
            return Tensor(name, array.shape, array.dtype.name, WEIGHT, self.weights.add(array))
        value = graph.values.get(name)
        dtype = value.dtype if value is not None else "float32"
        if cell not in self.lowered.storage:
            raise ModelError(f"value '{name}' is never computed", where=graph.name)
        buffer, layout = self.lowered.storage[cell]
        if dtype != "float32":
            return Tensor(name, layout.shape, dtype, HOST)
        return Tensor(name, layout.shape, dtype, BUFFER, self.plan.offsets[buffer], layout)

    def _host(self, step: Step) -> HostStep:
        node = step.node
        assert node is not None
        bound = step.bindings

        def tensor(name: str) -> Tensor | None:
            return self._tensor(bound.get(name, name)) if name else None

        return HostStep(
            step.name, node.op, node.domain, node.attrs,
            tuple(tensor(n) for n in node.inputs), tuple(tensor(n) for n in node.outputs),
        )  # fmt: skip

    def _kernel(self, step: Step) -> KernelStep:
        workload = step.workload
        assert workload is not None
        made = self.made[self.names[step.name]]
        constants = self._constants(step, made)
        args = []
        for name in made.kernel.arguments:
            if name in constants:
                args.append((WEIGHT, constants[name]))
            else:
                buffer, _ = self.lowered.storage[step.bindings[name]]
                args.append((BUFFER, self.plan.offsets[buffer]))
        return KernelStep(
            step.name, made.kernel.name, tuple(args), workload.key, workload.anchor,
            made.dag.algorithm, workload.flops, made.schedule, made.tuned,
            self.estimates.get(workload.key) if made.tuned else None,
            _work(workload, made.dag), _bytes(made),
        )  # fmt: skip

    def _constants(self, step: Step, made: Made) -> dict[str, int]:
        """Constant argument -> offset of its packed values."""
        held, packings = self.lowered.graph.constants, made.kernel.packings
        given = {
            p.name: held[step.bindings[p.name]]
            for p in made.dag.placeholders
            if p.constant and p.derive is None
        }
        derived = any(p.derive and p.name in packings for p in made.dag.placeholders)
        arrays = derive(made.dag, given) if derived else given
        return {name: self.weights.add(p.pack(arrays[name])) for name, p in packings.items()}


def _work(workload: Workload, dag: ComputeDag) -> int:
    """FLOPs of an algorithm's products, those of overhanging tiles included."""
    if dag.algorithm == "direct":
        return workload.flops
    products = (s for s in dag.stages if s.reducer == "sum" and not s.unroll)
    return sum(2 * prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in products)


def _bytes(made: Made) -> int:
    """Of a kernel's constants, inputs and outputs, each counted once."""
    kernel = made.kernel
    constants = sum(packing.size for packing in kernel.packings.values())
    return 4 * (constants + sum(prod(layout.shape) for layout in kernel.layouts.values()))


def _direct_copies(lowered: LoweredGraph) -> tuple[dict[str, str], set[str]]:
    """Copies at the network's border that reading inputs and writing outputs does on the way.

    input --read--> x --copy--> x@blocked   becomes   input --read--> x@blocked
    Out: border value -> the cell that takes its place, and the names of steps that fall away.
    """
    graph, storage = lowered.graph, lowered.storage
    users: dict[str, list[Step]] = {}
    for step in lowered.steps:
        for cell in step.bindings.values():
            users.setdefault(cell, []).append(step)
    tenants = Counter(buffer for buffer, _ in storage.values())
    borders: dict[str, str] = {}
    skipped: set[str] = set()
    for value in dict.fromkeys((*graph.inputs, *graph.outputs)):
        steps = users.get(value, [])
        if len(steps) != 1 or not _is_copy(steps[0]) or steps[0].name in skipped:
            continue
        others = [c for c in steps[0].bindings.values() if c != value]
        alone = value in storage and tenants[storage[value][0]] == 1
        both = value in graph.inputs and value in graph.outputs
        if alone and not both and len(others) == 1 and others[0] in storage:
            borders[value] = others[0]
            skipped.add(steps[0].name)
    return borders, skipped


def _is_copy(step: Step) -> bool:
    return step.workload is not None and step.workload.anchor == "copy"


def _buffers(
    lowered: LoweredGraph, steps: Sequence[Step], borders: Mapping[str, str]
) -> list[Buffer]:
    """Every float32 buffer in use, with its lifetime: inputs from -1 on, outputs to the end."""
    graph, storage = lowered.graph, lowered.storage
    lives: dict[str, list[int]] = {}

    def touch(cell: str, at: int) -> None:
        value = graph.values.get(cell)
        if cell in storage and (value is None or value.dtype == "float32"):
            lives.setdefault(storage[cell][0], []).append(at)

    for name in graph.inputs:
        touch(borders.get(name, name), -1)
    for at, step in enumerate(steps):
        for cell in step.bindings.values():
            touch(cell, at)
    for name in graph.outputs:
        touch(borders.get(name, name), len(steps))
    cells: dict[str, list[str]] = {}
    for cell, (buffer, _) in storage.items():
        cells.setdefault(buffer, []).append(cell)
    found = []
    for buffer, times in lives.items():
        layouts = [storage[c][1] for c in cells[buffer]]
        size = max(layout.size for layout in layouts)
        dense = any(x == row_major(x.shape) and x.size == size for x in layouts)
        zeros = "" if dense else zero_cells(size, layouts)
        found.append(Buffer(buffer, size, min(times), max(times), zeros))
    return found
