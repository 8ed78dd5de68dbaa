"""Runs a lowered network step by step with NumPy, through its real layouts."""

from __future__ import annotations

import numpy as np

from engine.expr.reference import reference
from engine.graph.check import check, offsets
from engine.graph.dialect import DIALECT_OPSET
from engine.graph.host import run_node


def run_lowered(lowered, feeds):
    """Output name -> array.  Buffers start as NaN with zero halos, so that stray reads show."""
    check(lowered)
    graph, memory = lowered.graph, {}
    for buffer, layout in lowered.storage.values():
        if buffer not in memory:
            memory[buffer] = np.full(layout.size, np.nan, object_or_float(lowered, buffer))
    halos = [zero_halo(memory[b], layout) for b, layout in lowered.storage.values() if layout.halo]
    for name in graph.inputs:
        write(lowered, memory, name, np.asarray(feeds[name]))
    for step in lowered.steps:
        run_step(lowered, memory, step)
    for flat, border in halos:
        assert (flat[border] == 0).all(), "a step wrote into a halo"
    return {n: read(lowered, memory, n) for n in graph.outputs}


def close(found, expected, tolerance):
    """Whether arrays agree, errors measured against the largest element."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(scale, 1e-30))


def object_or_float(lowered, name):
    value = lowered.graph.values.get(name)
    return np.float32 if value is None or value.dtype == "float32" else object


def zero_halo(flat, layout):
    """Zeroes what a layout promises to be zero; gives the places."""
    whole = np.zeros(flat.size, bool)
    wide = type(layout)(
        tuple(n + a + b for n, (a, b) in zip(layout.shape, layout.halo, strict=True)),
        layout.strides,
        layout.offset - sum(a * s for (a, _), s in zip(layout.halo, layout.strides, strict=True)),
        layout.size,
        layout.block_axis,
        layout.block,
    )
    whole[offsets(wide)] = True
    whole[offsets(layout)] = False
    flat[whole] = 0.0
    return flat, whole


def read(lowered, memory, value):
    if value in lowered.graph.constants:
        return lowered.graph.constants[value]
    buffer, layout = lowered.storage[value]
    array = memory[buffer][offsets(layout)]
    known = lowered.graph.values.get(value)
    return array.astype(known.dtype) if known is not None else array


def write(lowered, memory, value, array):
    buffer, layout = lowered.storage[value]
    assert array.shape == layout.shape
    memory[buffer][offsets(layout)] = array


def run_step(lowered, memory, step):
    if step.workload is None:
        node = step.node
        arrays = [read(lowered, memory, step.bindings[n]) if n else None for n in node.inputs]
        results = run_node(node, DIALECT_OPSET, arrays)
        for name, array in zip(node.outputs, results, strict=True):
            if name:
                write(lowered, memory, step.bindings[name], array)
        return
    dag = step.workload.dag
    feeds = {p.name: read(lowered, memory, step.bindings[p.name]) for p in dag.placeholders}
    for name, array in reference(dag, feeds).items():
        write(lowered, memory, step.bindings[name], array)
