"""Every built-in network, compiled, agrees with ONNX Runtime: untuned and with other schedules."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from engine import zoo
from engine.graph.onnx_import import load_proto
from engine.graph.partition import extract_search_tasks, lower
from engine.graph.task import LoweredGraph
from engine.records import Schedule
from engine.runtime.build import compile_network
from engine.space import sketches
from engine.target import host

pytestmark = pytest.mark.slow

DIRECT, TRANSFORMED = 1e-4, 1e-3
"""Largest errors relative to the largest output: direct sums only, and with Winograd."""


def random_schedules(lowered: LoweredGraph, rng: np.random.Generator) -> dict[str, Schedule]:
    """A legal schedule of a random sketch for each search task, transforms included."""
    found = {}
    for task in extract_search_tasks(lowered, 2):
        spaces = sketches(task.workload, task.target, 2, accuracy="fast")
        sketch = spaces[int(rng.integers(len(spaces)))]
        rows = np.stack(
            [rng.choice(np.array(knob.values), 400) for knob in sketch.knobs] or [np.zeros(1)], 1
        ).astype(np.int64)
        legal = rows[:, : len(sketch.knobs)]
        legal = legal[sketch.valid(legal)]
        row = legal[0] if len(legal) else sketch.default()
        found[task.key] = sketch.schedule(row)
    return found


@pytest.mark.parametrize(
    ("name", "batch"), [*((name, 1) for name in zoo.names()), ("resnet-18", 4)]
)
def test_compiled_networks_agree_with_onnxruntime(name: str, batch: int) -> None:
    model = zoo.build(name, batch)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    entry = session.get_inputs()[0]
    rng = np.random.default_rng(0)
    image = rng.standard_normal(entry.shape).astype(np.float32)
    expected = session.run(None, {entry.name: image})[0]
    lowered = lower(load_proto(model), host())
    for schedules, bound in ({}, DIRECT), (random_schedules(lowered, rng), TRANSFORMED):
        network = compile_network(lowered, schedules, threads=2, jobs=2)
        assert all(step.tuned for step in network.program.steps if step.workload_key in schedules)
        for threads in 1, 2:
            found = network.run({entry.name: image}, threads=threads)[session.get_outputs()[0].name]
            error = np.abs(found - expected).max() / np.abs(expected).max()
            assert error < bound, (threads, bound)
