"""Rule: groups that walk the same outer axes run together, one point of those axes at a time.

    for i: for k: a[i, k] = ...          for i:
    for i: s[i] = sum(a[i, k])    -->        for k: a[k] = ...      # stays in cache
                                             s = sum(a[k])
Temporaries then hold one point only.  Both forms are kept where both make sense.
"""

from __future__ import annotations

from dataclasses import replace

from engine.expr import Axis, var
from engine.space.rules import vectorize
from engine.space.skeleton import Skeleton


def apply(skeleton: Skeleton) -> list[Skeleton]:
    """The attached form first (if legal), then the separate one."""
    if len(skeleton.groups) < 2:
        return [skeleton]
    shared = _common(skeleton)
    if not shared:
        return [skeleton]
    attached = replace(skeleton, shared=shared, trace=(*skeleton.trace, "attach"))
    points = 1
    for axis in shared:
        points *= axis.extent
    return [attached] if points >= 4 * skeleton.target.cores else [attached, skeleton]


def _common(skeleton: Skeleton) -> tuple[Axis, ...]:
    """Leading axes that all groups have and that all their mutual reads use as they are."""
    common = list(skeleton.groups[0].stage.axes)
    for group in skeleton.groups[1:]:
        names = {(a.name, a.extent) for a in group.stage.axes}
        common = [a for a in common if (a.name, a.extent) in names]
    lanes = {g.vector for g in vectorize.apply(skeleton)[0].groups}
    common = [a for a in common if a.name not in lanes]
    made = {name for g in skeleton.groups for name in g.stores}
    for group in skeleton.groups:
        common = [a for a in common if a.name not in group.stage.unroll]
        for stage in group.stages:
            for read in skeleton.reads_of(stage):
                if read.tensor in made and read.tensor not in group.stores:
                    common = [a for a in common if _kept(read.index, a.name)]
        if any(name in skeleton.temporaries for name in group.stores):
            common = [a for a in common if _kept(group.stage.store_index, a.name)]
    return tuple(a for a in common if a.extent > 1)


def _kept(index: tuple[object, ...], axis: str) -> bool:
    return var(axis) in index
