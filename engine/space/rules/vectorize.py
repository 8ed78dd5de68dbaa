"""Rule: the axis that lies along the lanes of a vector register, and the temporaries' layouts.

A space axis is best when the store and all loads of variables are contiguous or constant along it;
constants are packed anyway.  A reduction axis serves when no space axis does.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.expr import Layout, Read, Stage, reads
from engine.space.skeleton import Group, Skeleton, lane_stride

_SCATTER, _GATHER = 12, 8


def apply(skeleton: Skeleton) -> list[Skeleton]:
    """One skeleton with vector axes for all groups, temporaries laid out."""
    layouts = dict(skeleton.layouts)
    groups = []
    for group in skeleton.groups:
        current = replace(skeleton, layouts=layouts)
        axis, reduces = _choose(current, group)
        chosen = replace(group, vector=axis, vector_reduces=reduces)
        groups.append(chosen)
        for stage in chosen.stages:
            if stage.name in chosen.stores and stage.name not in skeleton.dag.outputs:
                layouts[stage.name] = temporary_layout(skeleton, chosen, stage)
    return [replace(skeleton, groups=tuple(groups), layouts=layouts)]


def _choose(skeleton: Skeleton, group: Group) -> tuple[str | None, bool]:
    shared = {a.name for a in skeleton.shared}
    best: tuple[float, str | None, bool] = (1.0, None, False)  # scalar code: one point a step
    stage = group.stage
    for axis in reversed(stage.axes):  # of equals, the innermost
        if axis.name not in shared and axis.name not in stage.unroll and axis.extent > 1:
            found = (_space_cost(skeleton, group, axis.name), axis.name, False)
            best = min(best, found, key=_cost)
    if stage.reducer is None or {a.name for a in stage.reduce_axes} <= set(stage.unroll):
        return best[1], best[2]
    for axis in stage.reduce_axes:
        if axis.extent >= skeleton.target.lanes:
            found = (_reduce_cost(skeleton, stage, axis.name), axis.name, True)
            best = min(best, found, key=_cost)
    return best[1], best[2]


def _cost(choice: tuple[float, str | None, bool]) -> float:
    return choice[0]


def _space_cost(skeleton: Skeleton, group: Group, axis: str) -> float:
    """Work per point, relative to scalar code."""
    extent = group.axis(axis).extent
    lanes = skeleton.target.lanes
    used = min(extent, lanes) if extent < lanes else extent / (-(-extent // lanes))
    cost = 1.0
    for stage in group.stages:
        table = {}
        if stage is not group.stage:
            own = group.stage.store_index
            table = dict(zip((a.name for a in stage.axes), own, strict=True))
        for read in skeleton.reads_of(stage):
            if skeleton.is_constant(read.tensor) or read.tensor not in skeleton.layouts:
                continue
            moved = replace(read, index=tuple(i.substitute(table) for i in read.index))
            stride = lane_stride(skeleton.layouts[read.tensor], moved, axis)
            guarded = read.fill is not None and any(
                i.coeff(axis) and len(i.terms) > 1 for i in moved.index
            )
            if stride not in (0, 1) or guarded:
                cost += _GATHER / _users(skeleton, read)
        if stage.name in group.stores and stage.name in skeleton.dag.outputs:
            place = Read(stage.name, group.stage.store_index)
            stride = lane_stride(skeleton.layouts[stage.name], place, axis)
            cost += _SCATTER if stride != 1 else 0
    return cost / used


def _users(skeleton: Skeleton, read: Read) -> int:
    """Points of unrolled axes that share what a transform has loaded."""
    named = {n for i in read.index for n in i.axes}
    stages = [s for s in skeleton.inlined.values() if any(r == read for r in reads(s.body))]
    return prod(
        a.extent for s in stages for a in s.axes if a.name in s.unroll and a.name not in named
    )


def _reduce_cost(skeleton: Skeleton, stage: Stage, axis: str) -> float:
    cost = 1.6  # lanes are combined at the end
    for read in skeleton.reads_of(stage):
        if read.tensor not in skeleton.layouts or skeleton.is_constant(read.tensor):
            continue
        stride = lane_stride(skeleton.layouts[read.tensor], read, axis)
        cost += _GATHER if stride not in (0, 1) else 0
    return cost / skeleton.target.lanes


def temporary_layout(skeleton: Skeleton, group: Group, stage: Stage) -> Layout:
    """[unrolled axes][blocks of the vector axis][other axes][lanes]; shared axes have stride 0.

    Without blocks where the vector axis shares its dimension with axes that cut through them.
    """
    shape = stage.shape
    shared = {a.name for a in skeleton.shared}
    place = group.stage.store_index
    lanes = skeleton.target.lanes
    along = next(
        (d for d, i in enumerate(place) if not group.vector_reduces and group.vector in i.axes), -1
    )
    blocked = along >= 0 and _in_blocks(skeleton, group, stage, along)
    block_axis = along if blocked else -1
    block = lanes if blocked else 1
    dims = [d for d, i in enumerate(place) if not (i.axes and set(i.axes) <= shared)]
    unrolled = [d for d in dims if set(place[d].axes) & set(group.stage.unroll)]
    rest = [d for d in dims if d not in unrolled and d != along]
    own = [along] if along in dims else []
    order = unrolled + (own + rest if blocked else rest + own)
    strides = [0] * len(shape)
    step = block
    for d in reversed(order):
        strides[d] = step
        step *= -(-shape[d] // block) if d == block_axis else shape[d]
    return Layout(shape, tuple(strides), 0, step, block_axis, block)


def _in_blocks(skeleton: Skeleton, group: Group, stage: Stage, dim: int) -> bool:
    """Whether vectors fill whole blocks of a dimension, and its readers walk block by block."""
    others = [c for n, c in group.stage.store_index[dim].terms if n != group.vector]
    if not others:
        return True
    readers = skeleton.dag.consumers(stage.name)
    summed = all(
        set(read.index[dim].axes) <= {a.name for a in reader.reduce_axes}
        for reader in readers
        for read in reads(reader.body)
        if read.tensor == stage.name
    )
    return summed and all(c % skeleton.target.lanes == 0 for c in others)
