"""Search tasks and the lowered network that they were cut from.

In: `engine.graph.partition` makes them.  Out: `space`, `search`, `measure` and `runtime` read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.expr import ComputeDag, Layout
from engine.graph.ir import Graph, Node
from engine.records import RecordScope, TimingMode
from engine.target import Target


@dataclass(frozen=True)
class Workload:
    """A computation that kernels are generated for, found once however often networks use it.

    `layouts` gives the canonical buffer of each non-constant placeholder and of each output: a halo
    as wide as this computation reads, nothing else in the buffer.  In a network the buffers may be
    larger (views, wider halos); the same schedule is generated again for those.
    """

    key: str
    dag: ComputeDag
    layouts: Mapping[str, Layout]
    anchor: str
    description: Mapping[str, Any] = field(default_factory=dict)
    """data_shape, weight_shape, strides, pads, epilogue (list), output_shape, flops; shapes in
    channels-last order and weights as HWIO, as the field prints them."""

    base: Workload | None = None
    """Set on a kernel that was extended by a second output: the workload that is tuned for it."""

    @property
    def flops(self) -> int:
        return self.dag.flops


@dataclass(frozen=True)
class SearchTask:
    """What the search tunes: a workload on a target, `weight` times in the networks at hand."""

    workload: Workload
    target: Target
    weight: int = 1
    threads: int = 1
    timing_mode: TimingMode = TimingMode.COLD_WEIGHTS

    @property
    def key(self) -> str:
        return self.workload.key

    @property
    def scope(self) -> RecordScope:
        return RecordScope(self.target.key, self.threads, self.timing_mode)


@dataclass(frozen=True)
class Step:
    """One kernel (`workload` set) or host call (`node` set) of a lowered network.

    `bindings` maps the DAG's placeholder and output names to graph values; `layouts` gives the real
    layout of each non-constant one.  A host call reads and writes row-major buffers.
    """

    name: str
    workload: Workload | None
    node: Node | None
    bindings: Mapping[str, str]
    layouts: Mapping[str, Layout]


@dataclass(frozen=True)
class LoweredGraph:
    """Steps in execution order.

    `storage` maps every non-constant value to (buffer name, layout); values that share a buffer are
    views of one another (reshape, concat, slice, identity).  `graph` is the graph after all passes,
    its constants are those that the steps bind.
    """

    graph: Graph
    target: Target
    steps: tuple[Step, ...]
    storage: Mapping[str, tuple[str, Layout]]
