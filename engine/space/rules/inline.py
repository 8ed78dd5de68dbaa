"""Rule: compute a cheap elementwise stage where it is read.

    a(i) = f(x[i])                       b(i) = g(f(x[i]))
    b(i) = g(a[i])             -->
Also constant transforms (`stage.unroll` covers all its reduction axes) whose only reader is another
constant transform: their values stay in registers.
"""

from __future__ import annotations

from dataclasses import replace

from engine.expr import Stage, Unary, reads, walk
from engine.space.skeleton import Skeleton

_COSTLY = {"exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "sqrt", "reciprocal"}


def apply(skeleton: Skeleton) -> list[Skeleton]:
    """One skeleton, with all stages inlined that may be."""
    dag = skeleton.dag
    inlined = {s.name: s for s in dag.stages if s.name not in dag.outputs and _may(skeleton, s)}
    if not inlined:
        return [skeleton]
    return [replace(skeleton, inlined=inlined, trace=(*skeleton.trace, "inline"))]


def _may(skeleton: Skeleton, stage: Stage) -> bool:
    consumers = skeleton.dag.consumers(stage.name)
    if len(consumers) != 1:
        return (
            stage.reducer is None and not _costly(stage) and not _after_reduction(skeleton, stage)
        )
    reader = consumers[0]
    if stage.reducer is not None:
        own = {a.name for a in stage.reduce_axes}
        return own <= set(stage.unroll) and bool(reader.unroll) and reader.reducer is not None
    if _after_reduction(skeleton, stage):
        return False
    if any(r.fill is not None for r in reads(reader.body) if r.tensor == stage.name):
        return False
    return not _costly(stage) or _read_once(reader, stage)


def _costly(stage: Stage) -> bool:
    return any(isinstance(e, Unary) and e.op in _COSTLY for e in walk(stage.body))


def _after_reduction(skeleton: Skeleton, stage: Stage) -> bool:
    """Elementwise work behind a reduction of the same shape belongs to its epilogue."""
    for read in reads(stage.body):
        producer = next((s for s in skeleton.dag.stages if s.name == read.tensor), None)
        if producer is None:
            continue
        if producer.reducer is not None and len(producer.shape) == len(stage.shape):
            return True
        if producer.reducer is None and _after_reduction(skeleton, producer):
            return True
    return False


def _read_once(reader: Stage, stage: Stage) -> bool:
    """Whether the reader needs each element for one of its points only."""
    used = {
        n for r in reads(reader.body) if r.tensor == stage.name for i in r.index for n in i.axes
    }
    return all(a.name in used for a in reader.axes if a.extent > 1)
