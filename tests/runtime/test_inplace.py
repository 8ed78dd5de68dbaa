"""Sums that overwrite the operand they add."""

from __future__ import annotations

import numpy as np
import pytest

from engine import zoo
from engine.graph.host import run_graph
from engine.graph.onnx_import import load_proto
from engine.graph.partition import extract_search_tasks, lower
from engine.records import Schedule
from engine.runtime.build import compile_network
from engine.runtime.inplace import reuse_in_place
from engine.space import sketches
from engine.target import host


@pytest.fixture(scope="module")
def residual():
    """A network with residual sums, and a schedule without and with parts for each task."""
    graph = load_proto(zoo.build("resnet-18"))
    lowered = lower(graph, host())
    whole: dict[str, Schedule] = {}
    parts: dict[str, Schedule] = {}
    for task in extract_search_tasks(lowered, 1):
        sketch = sketches(task.workload, task.target, 1, accuracy="strict")[0]
        schedule = sketch.schedule(sketch.default())
        splits = {k.name: k.values for k in sketch.knobs if k.name.endswith(".split")}
        whole[task.key] = Schedule(
            schedule.sketch, {**schedule.knobs, **{n: v[-1] for n, v in splits.items()}}
        )
        parts[task.key] = Schedule(
            schedule.sketch, {**schedule.knobs, **{n: v[0] for n, v in splits.items()}}
        )
    return graph, lowered, whole, parts


def shared(lowered) -> int:
    return len(lowered.storage) - len({buffer for buffer, _ in lowered.storage.values()})


def test_sums_lie_where_their_operand_lay(residual):
    graph, lowered, whole, _ = residual
    fixed = frozenset({*graph.inputs, *graph.outputs})
    assert shared(reuse_in_place(lowered, whole, fixed)) >= shared(lowered) + 4


def test_partial_sums_never_overwrite_the_operand(residual):
    graph, lowered, whole, parts = residual
    fixed = frozenset({*graph.inputs, *graph.outputs})
    most = shared(reuse_in_place(lowered, whole, fixed))
    assert shared(reuse_in_place(lowered, parts, fixed)) < most


def test_unknown_schedules_share_nothing_with_a_single_output(residual):
    graph, lowered, _, _ = residual
    one = [s for s in lowered.steps if s.workload and len(s.workload.dag.outputs) == 1]
    found = reuse_in_place(lowered, {}, frozenset({*graph.inputs, *graph.outputs}))
    for step in one:
        target = step.bindings[step.workload.dag.outputs[0]]
        assert found.storage[target] == lowered.storage[target]


@pytest.mark.parametrize("kind", [2, 3], ids=["whole", "parts"])
def test_outputs_stay_right(residual, kind):
    graph, lowered = residual[:2]
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(graph.shape(n)).astype(np.float32) for n in graph.inputs}
    expected = run_graph(graph, feeds)
    network = compile_network(lowered, residual[kind], threads=1, jobs=2)
    for threads in 1, 2:
        found = network.run(feeds, threads=threads)
        for name, array in expected.items():
            assert np.abs(found[name] - array).max() < 1e-4 * np.abs(array).max()
