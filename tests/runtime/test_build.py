"""Compiling: which schedules are taken, what is shared, what falls away at the border."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import TargetError
from engine.graph import Graph
from engine.graph.host import run_graph
from engine.graph.partition import lower
from engine.graph.task import LoweredGraph
from engine.records import Schedule
from engine.runtime.buffers import covered
from engine.runtime.build import compile_network
from engine.runtime.make import Order, make_kernels
from engine.runtime.network import CompiledNetwork, load
from engine.runtime.program import KernelStep
from engine.runtime.weights import WeightBlob
from engine.space.sketch import sketches
from engine.target import host, missing_features, named


def kernel_steps(network: CompiledNetwork) -> list[KernelStep]:
    return [s for s in network.program.steps if isinstance(s, KernelStep)]


def close(network: CompiledNetwork, graph: Graph, tolerance: float = 1e-5) -> None:
    feeds = network.sample_inputs(7)
    wanted = run_graph(graph, feeds)
    for name, array in network.run(feeds, threads=2).items():
        assert np.abs(array - wanted[name]).max() <= tolerance * np.abs(wanted[name]).max()


def test_given_schedules_are_taken_and_others_are_default(
    small_lowered: LoweredGraph, small_graph: Graph, small: CompiledNetwork
) -> None:
    assert small.program.untuned == tuple(kernel_steps(small))
    assert small.program.estimate is None
    convs = [
        s.workload for s in small_lowered.steps if s.workload and s.workload.anchor == "conv2d"
    ]
    fast = [
        (w, s) for w in convs for s in sketches(w, host(), 2, accuracy="fast")
        if s.dag.algorithm.startswith("winograd4")
    ]  # fmt: skip
    assert fast, "no convolution of the network has a Winograd form"
    workload, sketch = fast[0]
    schedule = sketch.schedule(sketch.default())
    network = compile_network(
        small_lowered, {workload.key: schedule, "unknown": schedule},
        estimates={workload.key: 2e-6}, threads=2,
    )  # fmt: skip
    tuned = [s for s in kernel_steps(network) if s.tuned]
    assert {s.workload_key for s in tuned} == {workload.key}
    assert all((s.algorithm, s.estimate) == (sketch.dag.algorithm, 2e-6) for s in tuned)
    close(network, small_graph, 1e-4)


def test_a_schedule_of_an_older_generator_is_replaced(
    small_lowered: LoweredGraph, small_graph: Graph
) -> None:
    keys = [s.workload.key for s in small_lowered.steps if s.workload]
    old = Schedule("forgotten", {"a": 1})
    network = compile_network(small_lowered, dict.fromkeys(keys, old), threads=1)
    assert network.program.untuned == tuple(kernel_steps(network))
    close(network, small_graph)


def test_equal_kernels_and_weights_are_stored_once(small_lowered: LoweredGraph) -> None:
    """The same steps once more need no code and no constants, but for the two border copies."""
    steps = small_lowered.steps
    copies = tuple(replace(s, name=f"{s.name}_again") for s in steps)
    once = compile_network(small_lowered, threads=1)
    twice = compile_network(replace(small_lowered, steps=(*steps, *copies)), threads=1)
    assert len(twice.program.kernels) == len(once.program.kernels) + 2
    assert once.memory["weights"] == twice.memory["weights"]
    assert len(kernel_steps(twice)) > len(kernel_steps(once))


def test_border_copies_become_part_of_reading_and_writing(
    small: CompiledNetwork, small_lowered: LoweredGraph
) -> None:
    border = [s.name for s in small_lowered.steps if {"x", "y"} & set(s.bindings.values())]
    assert len(border) == 2 and not {s.name for s in small.program.steps} & set(border)
    for tensor in (*small.inputs, small.outputs[0]):
        assert tensor.layout is not None and tensor.layout.blocked


def test_several_processes_make_the_same_code(
    small_lowered: LoweredGraph, small_graph: Graph, small: CompiledNetwork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("engine.runtime.make.SHARE", 2)
    network = compile_network(small_lowered, threads=2, jobs=2)
    assert len(network._code) == 3
    assert network.program == small.program
    close(network, small_graph)


def test_a_helper_that_dies_is_replaced(
    small_lowered: LoweredGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runtime.make.SHARE", 1)
    monkeypatch.setattr("engine.runtime.make.sys.executable", "/bin/false")
    workloads = [s.workload for s in small_lowered.steps if s.workload][:2]
    orders = [Order(f"k{i}", w, None, w.layouts) for i, w in enumerate(workloads)]
    made, images = make_kernels(orders, host(), 1, 2)
    assert list(made) == ["k0", "k1"]
    assert len(images) == 2 and all(image.startswith(b"\x7fELF") for image in images)


def test_zero_cells_stay_zero(small_lowered: LoweredGraph, small: CompiledNetwork) -> None:
    """Halos and padded channels are zeroed once only, so no kernel may write to them."""
    for _ in range(2):
        small.run(small.sample_inputs(11))
    session = small._session
    assert session is not None
    seen = 0
    for tensor in (*small.inputs, *small.outputs):
        assert tensor.layout is not None
        flat = session.arena[tensor.offset // 4 :][: tensor.layout.size]
        cells = flat[~covered(tensor.layout.size, [tensor.layout])]
        assert not cells.any()
        seen += cells.size
    assert seen, "no buffer has a halo or padded channels"


@pytest.mark.parametrize("name", ["avx2", "sse42"])
def test_named_targets(small_graph: Graph, name: str) -> None:
    target = named(name)
    if missing_features(target):
        pytest.skip(f"this machine lacks {name}")
    close(compile_network(lower(small_graph, target), threads=2), small_graph)


def test_a_network_for_another_cpu_compiles_saves_and_refuses_to_run(
    small_graph: Graph, tmp_path: Path
) -> None:
    target = replace(named("avx512"), features=("+avx1024",), name="avx1024", cpu="x86-64-v4")
    lowered = lower(small_graph, replace(target, features=()))
    network = compile_network(replace(lowered, target=replace(target, features=())), threads=1)
    network.program = replace(network.program, target=target)
    network.save(tmp_path / "net")
    with pytest.raises(TargetError, match="lacks avx1024"):
        network.run(network.sample_inputs())
    with pytest.raises(TargetError, match="lacks avx1024"):
        load(tmp_path / "net")


def test_weight_blob() -> None:
    blob = WeightBlob()
    a, b = np.arange(5, dtype=np.float32), np.array([True, False])
    first = blob.add(a)
    assert blob.add(a.copy()) == first
    second = blob.add(b)
    scalar = blob.add(np.int64(7))
    block = blob.join()
    assert first % 64 == second % 64 == scalar % 64 == block.ctypes.data % 4096 == 0
    assert first >= 256 and block.nbytes >= scalar + 8 + 256
    np.testing.assert_array_equal(block[first : first + 20].view(np.float32), a)
    np.testing.assert_array_equal(block[second : second + 2].view(np.bool_), b)
    assert block[scalar : scalar + 8].view(np.int64)[0] == 7
