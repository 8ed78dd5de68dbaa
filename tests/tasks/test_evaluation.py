"""Comparing outputs, timing in turns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.errors import NoctuneError
from tasks.peers import PEERS, check_peers, differences, is_installed, open_peer, random_feeds
from tasks.sidebyside import WARM_CALLS, Timing, side_by_side


def test_errors_are_relative_to_the_largest_output() -> None:
    theirs = {"y": np.array([0.0, 100.0], np.float32)}
    ours = {"y": np.array([0.5, 100.0], np.float32)}
    assert differences(ours, theirs) == (0.5, 0.005)


def test_nan_and_infinity_must_be_in_the_same_places() -> None:
    a = {"y": np.array([np.nan, np.inf, 1.0])}
    assert differences(a, {"y": np.array([np.nan, np.inf, 1.0])}) == (0.0, 0.0)
    for other in ([0.0, np.inf, 1.0], [np.nan, -np.inf, 1.0], [np.nan, np.inf, np.nan]):
        assert math.isinf(differences(a, {"y": np.array(other)})[0])


def test_other_shapes_and_kinds() -> None:
    assert math.isinf(differences({"y": np.ones(2)}, {"y": np.ones(3)})[0])
    assert differences({"y": np.empty(0)}, {"y": np.empty(0)}) == (0.0, 0.0)
    assert differences({"a": np.ones(2)}, {"b": np.ones(2)}) == (0.0, 0.0)
    assert differences({"y": np.array([1, 2])}, {"y": np.array([1, 4])}) == (2.0, 0.5)
    assert math.isinf(differences({"y": np.array(["a"])}, {"y": np.array(["b"])})[0])


def test_feeds_have_the_shapes_and_types_asked_for() -> None:
    inputs = {"x": ((2, 3), "float32"), "n": ((4,), "int64"), "m": ((1,), "bool")}
    feeds = random_feeds(inputs, np.random.default_rng(0))
    assert {k: (v.shape, v.dtype.name) for k, v in feeds.items()} == inputs
    assert set(np.unique(feeds["n"])) <= {0, 1}


def test_unknown_engine() -> None:
    with pytest.raises(NoctuneError, match="unknown engine 'tvm'"):
        check_peers(["tvm"])


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_computes(name: str) -> None:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    from engine.graph.host import run_graph
    from tasks.networks import load_graph, model_proto

    graph = load_graph("mlp")
    shapes = {n: graph.shape(n) for n in graph.inputs}
    feeds = random_feeds({n: (s, "float32") for n, s in shapes.items()}, np.random.default_rng(1))
    peer = open_peer(name, model_proto("mlp"), 1, shapes)
    assert differences(peer.run(feeds), run_graph(graph, feeds))[1] < 1e-5
    assert peer.version


def test_a_peer_that_refuses_says_so() -> None:
    if not is_installed("onnxruntime"):
        pytest.skip("onnxruntime is not installed")
    with pytest.raises(NoctuneError, match="onnxruntime cannot load the model"):
        open_peer("onnxruntime", b"junk", 1, {})


class Clock:
    """Each engine advances the time by its own step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def engine(self, name: str, seconds: float) -> object:
        def call() -> None:
            self.now += seconds
            self.order.append(name)

        return call


def test_engines_take_turns() -> None:
    clock = Clock()
    engines = {"a": clock.engine("a", 0.25), "b": clock.engine("b", 1.0)}
    found = side_by_side(engines, 3, 1.0, lambda: clock.now)  # type: ignore[arg-type]
    assert [len(g) for g in found["a"].groups] == [4, 4, 4]
    assert [len(g) for g in found["b"].groups] == [1, 1, 1]
    assert found["a"].median == 0.25 and found["b"].minimum == 1.0
    a, b = "a" * (4 + WARM_CALLS), "b" * (1 + WARM_CALLS)
    assert "".join(clock.order) == a + b + b + a + a + b


def test_statistics_are_over_groups() -> None:
    timing = Timing(((1.0, 3.0), (4.0,)))
    assert (timing.mean, timing.median, timing.minimum) == (3.0, 3.0, 1.0)
    assert timing.deviation == pytest.approx(math.sqrt(2))
    assert Timing(((1.0,),)).deviation == 0.0
