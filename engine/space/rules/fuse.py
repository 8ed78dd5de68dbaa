"""Rule: an elementwise stage joins the group that makes its newest operand.

for i: c[i] = reduce(...)            for i: t = reduce(...)
for i: y[i] = relu(c[i] + b[i])  -->        y[i] = relu(t + b[i])
"""

from __future__ import annotations

from dataclasses import replace

from engine.expr import Stage, var
from engine.space.skeleton import Group, Skeleton


def apply(skeleton: Skeleton) -> list[Skeleton]:
    """One skeleton whose groups cover all stages that are not inlined."""
    groups: list[list[Stage]] = []
    for stage in skeleton.dag.stages:
        if stage.name in skeleton.inlined:
            continue
        host = _host(skeleton, groups, stage)
        if host is None:
            groups.append([stage])
        else:
            host.append(stage)
    made = tuple(
        Group(g[0], tuple(g[1:]), tuple(s.name for s in g if _stored(skeleton, g, s)))
        for g in groups
    )
    fused = any(g.epilogue for g in made)
    return [replace(skeleton, groups=made, trace=skeleton.trace + ("fuse",) * fused)]


def _host(skeleton: Skeleton, groups: list[list[Stage]], stage: Stage) -> list[Stage] | None:
    """The group that may take the stage: all it needs from later groups is its own point."""
    if stage.reducer is not None:
        return None
    needed = {r.tensor for r in skeleton.reads_of(stage)}
    for group in reversed(groups):
        made = {s.name for s in group}
        if not made & needed:
            continue
        own = tuple(var(a.name) for a in stage.axes)
        own_reads = [r for r in skeleton.reads_of(stage) if r.tensor in made]
        same = all(r.index == own and r.fill is None for r in own_reads)
        return group if same and stage.shape == group[0].shape and not stage.unroll else None
    return None


def _stored(skeleton: Skeleton, group: list[Stage], stage: Stage) -> bool:
    """Outputs, and whatever a stage outside the group reads."""
    if stage.name in skeleton.dag.outputs:
        return True
    outside = [s for s in skeleton.dag.stages if s not in group and s.name not in skeleton.inlined]
    return any(r.tensor == stage.name for s in outside for r in skeleton.reads_of(s))
