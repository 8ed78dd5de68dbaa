"""Pass: an elementwise step joins the kernel that makes its operand, as a second output.

    s = conv(x) + r                      s, y = conv(x) + r, relu(s * a + b)
    y = relu(s * a + b)          -->     # one pass over memory less; s has other users too

In: a `LoweredGraph`.  Out: the same with fewer steps.  Workload keys stay those of plain kernels:
the search tunes the kernel, and its schedule serves the extended one, whose loops are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.expr import ComputeDag, Expr, Read, Stage, reads, rewrite, var
from engine.graph.task import LoweredGraph, Step


def extend_kernels(lowered: LoweredGraph) -> LoweredGraph:
    """Every elementwise step merged that can be."""
    steps: list[Step] = []
    maker: dict[str, int] = {}
    for step in lowered.steps:
        at = _host(step, steps, maker)
        if at is None:
            steps.append(step)
            at = len(steps) - 1
        else:
            steps[at] = _merge(steps[at], step)
        for value in outputs(steps[at]):
            maker[value] = at
    return replace(lowered, steps=tuple(steps))


def outputs(step: Step) -> tuple[str, ...]:
    """Values that a kernel step writes."""
    if step.workload is None:
        return ()
    return tuple(step.bindings[name] for name in step.workload.dag.outputs)


def _host(step: Step, steps: list[Step], maker: Mapping[str, int]) -> int | None:
    """The step that may take this one: it makes its only variable, in the same shape."""
    work = step.workload
    if work is None or work.anchor != "elementwise" or len(work.dag.outputs) != 1:
        return None
    variables = [p for p in work.dag.placeholders if not p.constant]
    if len(variables) != 1 or any(s.reducer or s.index or s.unroll for s in work.dag.stages):
        return None
    source = variables[0]
    at = maker.get(step.bindings[source.name])
    if at is None or source.shape != work.dag.shapes[work.dag.outputs[0]]:
        return None
    host = steps[at].workload
    if host is None or len(host.dag.outputs) != 1 or not host.dag.anchor.reducer:
        return None
    if not all(_pointwise(stage, source.name) for stage in work.dag.stages):
        return None
    made = host.dag.stage(host.dag.outputs[0])
    follows = [a.extent for a in made.axes] == list(source.shape) and made.index is None
    return at if follows else None


def _pointwise(stage: Stage, tensor: str) -> bool:
    own = tuple(var(a.name) for a in stage.axes)
    return all(r.index == own and r.fill is None for r in reads(stage.body) if r.tensor == tensor)


def _merge(host: Step, step: Step) -> Step:
    assert host.workload is not None and step.workload is not None
    mine, theirs = host.workload, step.workload
    made = mine.dag.outputs[0]
    source = next(p.name for p in theirs.dag.placeholders if not p.constant)
    names = {p.name: f"next_{p.name}" for p in theirs.dag.placeholders}
    names |= {s.name: f"next_{s.name}" for s in theirs.dag.stages}
    names[source] = made
    output = names[theirs.dag.outputs[0]]
    dag = _joined(mine.dag, theirs.dag, names, source, output)
    bindings = {names[n]: value for n, value in step.bindings.items() if n != source}
    layouts = {names[n]: layout for n, layout in step.layouts.items() if n != source}
    canonical = {names[n]: layout for n, layout in theirs.layouts.items() if n != source}
    workload = replace(mine, dag=dag, layouts={**mine.layouts, **canonical}, base=mine)
    return replace(
        host, workload=workload, bindings={**host.bindings, **bindings},
        layouts={**host.layouts, **layouts},
    )  # fmt: skip


def _joined(
    mine: ComputeDag, theirs: ComputeDag, names: Mapping[str, str], source: str, output: str
) -> ComputeDag:
    """Both DAGs, with the names of the second one changed."""

    def leaf(e: Expr) -> Expr | None:
        return Read(names.get(e.tensor, e.tensor), e.index, e.fill) if isinstance(e, Read) else None

    stages = tuple(
        replace(s, name=names[s.name], body=rewrite(s.body, leaf)) for s in theirs.stages
    )
    extra = tuple(replace(p, name=names[p.name]) for p in theirs.placeholders if p.name != source)
    return replace(
        mine, placeholders=mine.placeholders + extra, stages=mine.stages + stages,
        outputs=(*mine.outputs, output),
    )  # fmt: skip
