"""Sketch rules on whole networks."""

from __future__ import annotations

from engine import zoo
from engine.graph.onnx_import import load_proto
from engine.graph.partition import lower
from engine.space import sketches
from engine.target import host


def test_a_second_output_leaves_the_sketches_as_they_are():
    lowered = lower(load_proto(zoo.build("resnet-18")), host())
    extended = [s.workload for s in lowered.steps if s.workload and s.workload.base]
    assert extended
    for workload in extended:
        plain = sketches(workload.base, host(), 2, accuracy="fast")
        both = sketches(workload, host(), 2, accuracy="fast")
        assert [(s.name, s.knobs) for s in both] == [(s.name, s.knobs) for s in plain]
