"""Skeletons: which stages get loops of their own, before any loop is sized.

A sketch rule takes a skeleton and gives one or more; `engine.space.rules` applies them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.expr import Axis, ComputeDag, Layout, Read, Stage, reads
from engine.target import Target


@dataclass(frozen=True)
class Group:
    """A stage with loops of its own, the stages fused behind it, and how it is vectorised.

    `stores` names the tensors that the group writes; `vector` is the axis along the lanes.
    """

    stage: Stage
    epilogue: tuple[Stage, ...] = ()
    stores: tuple[str, ...] = ()
    vector: str | None = None
    vector_reduces: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.stage, *self.epilogue)

    def axis(self, name: str) -> Axis:
        return next(a for a in self.stage.axes + self.stage.reduce_axes if a.name == name)


@dataclass(frozen=True)
class Skeleton:
    """A DAG on the way to a sketch.

    `groups` in execution order; `shared` axes are walked once around all groups (empty: every group
    is a parallel region of its own); `layouts` holds inputs, outputs and temporaries;
    `trace` the names of the rules that changed something.
    """

    dag: ComputeDag
    target: Target
    layouts: Mapping[str, Layout]
    groups: tuple[Group, ...] = ()
    inlined: Mapping[str, Stage] = field(default_factory=dict)
    shared: tuple[Axis, ...] = ()
    trace: tuple[str, ...] = ()

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Tensors that one group writes and another reads, and that are not outputs."""
        stored = [name for g in self.groups for name in g.stores]
        return tuple(n for n in stored if n not in self.dag.outputs)

    def reads_of(self, stage: Stage) -> tuple[Read, ...]:
        """Reads of memory: those of inlined producers are followed to their source."""
        out: list[Read] = []
        for read in reads(stage.body):
            producer = self.inlined.get(read.tensor)
            if producer is None:
                out.append(read)
                continue
            table = dict(zip((a.name for a in producer.axes), read.index, strict=True))
            for deeper in self.reads_of(producer):
                index = tuple(i.substitute(table) for i in deeper.index)
                out.append(Read(deeper.tensor, index, deeper.fill))
        return tuple(out)

    def is_constant(self, tensor: str) -> bool:
        return tensor in self.dag.constants or any(
            p.constant for p in self.dag.placeholders if p.name == tensor
        )


def lane_stride(layout: Layout, read: Read, axis: str) -> int:
    """Step in floats when `axis` advances by one inside a vector; -1 if it is not even."""
    total = 0
    for dim, affine in enumerate(read.index):
        coeff = affine.coeff(axis)
        if not coeff:
            continue
        if dim == layout.block_axis and layout.blocked:
            total += coeff
        else:
            total += coeff * layout.strides[dim]
    return total
