"""A compiled network computes what its graph says, and says clearly what it does not take."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import InputError
from engine.graph import Graph
from engine.graph.host import run_graph
from engine.runtime.network import CompiledNetwork

Feeds = dict[str, NDArray[Any]]


def agree(found: Feeds, wanted: Feeds) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        scale = np.abs(array).max()
        np.testing.assert_allclose(found[name] / scale, array / scale, atol=1e-5)


@pytest.fixture
def feeds() -> Feeds:
    return {"x": np.random.default_rng(3).standard_normal((1, 3, 12, 12)).astype(np.float32)}


@pytest.fixture
def mixed_feeds() -> Feeds:
    x = np.random.default_rng(4).standard_normal((2, 8)).astype(np.float32)
    return {"x": x, "shift": np.array([100, 200])}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_outputs_match_the_graph(
    small: CompiledNetwork, small_graph: Graph, feeds: Feeds, threads: int
) -> None:
    agree(small.run(feeds, threads=threads), run_graph(small_graph, feeds))


def test_host_calls_and_integers(
    mixed: CompiledNetwork, mixed_graph: Graph, mixed_feeds: Feeds
) -> None:
    assert {s.op for s in mixed.program.host_steps} == {"CumSum", "ArgMax", "Add"}
    for _ in range(2):
        agree(mixed.run(mixed_feeds), run_graph(mixed_graph, mixed_feeds))


def test_results_are_fresh(small: CompiledNetwork, small_graph: Graph, feeds: Feeds) -> None:
    first = small.run(feeds)
    kept = {name: array.copy() for name, array in first.items()}
    other = {"x": feeds["x"] * -3}
    second = small.run(other)
    agree(second, run_graph(small_graph, other))
    for name in first:
        np.testing.assert_array_equal(first[name], kept[name])
        assert not np.shares_memory(first[name], second[name])


def test_calling_by_position(
    small: CompiledNetwork, mixed: CompiledNetwork, feeds: Feeds, mixed_feeds: Feeds
) -> None:
    y, z = small(feeds["x"])
    assert y.shape == (1, 5, 6, 6) and z.shape == (1, 10)
    assert len(mixed(*mixed_feeds.values(), threads=1)) == 2
    with pytest.raises(InputError, match=r"2 arrays for 1 inputs.*x float32\[1, 3, 12, 12\]"):
        small(y, z)


def test_views_of_other_arrays_are_taken(
    small: CompiledNetwork, small_graph: Graph, feeds: Feeds
) -> None:
    wide = np.zeros((1, 3, 12, 24), dtype=np.float32)
    wide[..., ::2] = feeds["x"]
    agree(small.run({"x": wide[..., ::2]}), run_graph(small_graph, feeds))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((1, 3, 12, 13), np.float32)}, r"input 'x' is float32\[1, 3, 12, 13\]"),
        ({"x": np.zeros((1, 3, 12, 12))}, r"is float64.*Give float32\[1, 3, 12, 12\]"),
        ({"x": np.zeros((1, 3, 12, 12), ">f4")}, "input 'x' is"),
        ({"x": "text"}, "input 'x' is"),
        ({"q": np.zeros(3)}, "there is no input 'q'.*x float32"),
    ],
)
def test_wrong_inputs(small: CompiledNetwork, feeds: Feeds, change: Feeds, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small.run({**feeds, **change})


def test_missing_input_and_wrong_threads(small: CompiledNetwork, feeds: Feeds) -> None:
    with pytest.raises(InputError, match="input 'x' is missing"):
        small.run({})
    for threads in (0, -1, 257, 1.5, True):
        with pytest.raises(InputError, match="threads"):
            small.run(feeds, threads=threads)  # type: ignore[arg-type]
    small.run(feeds, threads=np.int64(2))  # type: ignore[arg-type]


def test_what_is_no_mapping_or_no_array(small: CompiledNetwork, feeds: Feeds) -> None:
    for wrong in (feeds["x"], None, [1]):
        with pytest.raises(InputError, match="by input name"):
            small.run(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no array"):
        small.run({"x": [[1], [1, 2]]})  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", ["missing", "small", "double", "gaps", "read-only"])
def test_outputs_that_do_not_fit_are_refused(
    small: CompiledNetwork, feeds: Feeds, kind: str
) -> None:
    prepared = small.prepare(feeds, threads=1)
    outputs = prepared.empty_outputs()
    shape = outputs["z"].shape
    outputs["z"] = {
        "small": np.zeros(1, np.float32),
        "double": np.zeros(shape),
        "gaps": np.zeros((*shape, 2), np.float32)[..., 0],
        "read-only": np.broadcast_to(np.float32(0), shape),
    }.get(kind, outputs["z"])
    if kind == "missing":
        del outputs["z"]
    with pytest.raises(InputError, match="no room for output 'z'"):
        prepared.run_into(outputs)


def test_a_child_forked_amid_another_threads_run(small: CompiledNetwork, feeds: Feeds) -> None:
    small.run(feeds, threads=1)
    with small._lock:  # as another thread holds it that the child does not have
        child = os.fork()
        if not child:
            small.run(feeds, threads=2)
            os._exit(0)
    deadline = time.monotonic() + 60
    ended, status = 0, 0
    while not ended and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended and status == 0


def test_several_threads_may_run_one_network(small: CompiledNetwork, small_graph: Graph) -> None:
    rng = np.random.default_rng(5)
    inputs = [{"x": rng.standard_normal((1, 3, 12, 12)).astype(np.float32)} for _ in range(4)]
    results: dict[int, Feeds] = {}

    def work(i: int) -> None:
        for _ in range(20):
            results[i] = small.run(inputs[i], threads=1 + i % 2)

    callers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for i, given in enumerate(inputs):
        agree(results[i], run_graph(small_graph, given))


def test_prepared_runs_read_the_inputs_anew(
    small: CompiledNetwork, small_graph: Graph, feeds: Feeds
) -> None:
    prepared = small.prepare(feeds, threads=2)
    outputs = prepared.empty_outputs()
    for factor in (1, 2):
        feeds["x"] *= factor
        prepared.run_into(outputs)
        agree(outputs, run_graph(small_graph, feeds))


def test_profile_names_every_step(mixed: CompiledNetwork, small: CompiledNetwork) -> None:
    for network in (mixed, small):
        times = network.profile(repeat=3)
        steps = [t.step for t in times if t.step is not None]
        assert steps == list(network.program.steps)
        assert all(t.seconds > 0 for t in times)
        copies = {t.name for t in times if t.step is None}
        assert copies >= {"read x", "write y"}


def test_memory_is_reported(small: CompiledNetwork) -> None:
    assert small.memory["activations"] >= 20 * 14 * 14 * 4
    assert small.memory["weights"] >= 20 * 20 * 9 * 4
    assert small.memory["code"] > 0
