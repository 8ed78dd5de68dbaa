"""Groups, search tasks and whole networks: the lowered network computes what the graph computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from lowered_run import close, run_lowered
from onnx_models import floats, model, node

from engine import zoo
from engine.errors import ModelError
from engine.graph import load_model, load_proto
from engine.graph.fuse import group_nodes
from engine.graph.host import run_graph
from engine.graph.partition import extract_search_tasks, lower
from engine.target import named

DATA = Path(__file__).parents[1] / "data"
AVX512, AVX2 = named("avx512"), named("avx2")
IMAGE = {"x": (1, 16, 8, 8)}


def lowered(nodes, inputs, outputs, constants=None, target=AVX512):
    graph = load_proto(model(nodes, inputs, outputs, constants))
    return graph, lower(graph, target)


def same(graph, low, tolerance=1e-5, **feeds):
    """Checks the lowered network against the graph; gives the steps' anchors."""
    feeds = feeds or {n: floats(*graph.shape(n), seed=i) for i, n in enumerate(graph.inputs)}
    expected, found = run_graph(graph, feeds), run_lowered(low, feeds)
    for name, array in expected.items():
        close(found[name], array, tolerance)
    return [s.workload.anchor if s.workload else s.node.op for s in low.steps]


def epilogues(low):
    return [t.workload.description["epilogue"] for t in extract_search_tasks(low)]


# the tutorial's network -------------------------------------------------------------------------
def test_resnet50_is_cut_into_the_tutorials_tasks():
    graph = load_proto(zoo.build("resnet-50"))
    tasks = extract_search_tasks(lower(graph, AVX512))

    def row(about):
        strides, pads = about["strides"] or [1], about["pads"] or [0]
        assert len(set(strides)) == len(set(pads)) == 1
        return json.dumps(
            [about["anchor"], about["data_shape"], about["weight_shape"], strides[0], pads[0],
             about["epilogue"], about["output_shape"]]
        )  # fmt: skip

    seed = json.loads((DATA / "resnet50_tasks.json").read_text())["tasks"]
    expected = {
        json.dumps(
            [t["anchor"], t["data"], t["weight"], t["stride"], t["pad"], t["epilogue"], t["output"]]
        ): t["weight_count"]
        for t in seed
    }
    found = {row(t.workload.description): t.weight for t in tasks}
    assert len(tasks) == 29 and sum(t.weight for t in tasks) == 57
    assert found == expected
    flops = {row(t.workload.description): t.workload.flops for t in tasks}
    for line, task in zip(expected, seed, strict=True):
        assert "flops" not in task or flops[line] == task["flops"]


@pytest.mark.parametrize("name", ["mlp", "squeezenet_v1.1", "resnet-18", "mobilenet-v2"])
def test_zoo_networks_compute_the_same(name):
    graph = load_proto(zoo.build(name))
    same(graph, lower(graph, AVX512), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-base", "inception_v3", "resnet-18-v1", "resnet3d-18"])
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_large_zoo_networks_compute_the_same(name, target):
    graph = load_proto(zoo.build(name))
    same(graph, lower(graph, target), 1e-4)


@pytest.mark.parametrize("path", sorted((DATA / "cases").glob("*.onnx")), ids=lambda p: p.stem)
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_case_models_compute_the_same(path, target):
    data = np.load(path.with_suffix(".npz"), allow_pickle=False)
    names = [str(n) for n in data["input_names"]]
    arrays = {n: data[f"s0_in_{i}"] for i, n in enumerate(names)}
    try:
        graph = load_model(path, {n: a.shape for n, a in arrays.items()})
    except ModelError as error:
        pytest.skip(str(error))
    same(graph, lower(graph, target), 1e-4, **{n: arrays[n] for n in graph.inputs})


# grouping ---------------------------------------------------------------------------------------
def conv(source, weight, out, **attrs):
    return node("Conv", f"{source} {weight}", out, **attrs)


W = {"w": floats(16, 16, 3, 3), "b": floats(16, 1, 1, seed=1)}
PADS = {"pads": [1, 1, 1, 1]}


def test_followers_join_the_anchor_until_a_value_has_two_users():
    nodes = [
        conv("x", "w", "c", **PADS), node("Add", "c b", "d"), node("Relu", "d", "e"),
        node("Exp", "e", "f"), node("Neg", "e", "g"), node("Add", "f g", "y"),
        conv("e", "w", "z"),
    ]  # fmt: skip
    graph, low = lowered(nodes, IMAGE, ["y", "z"], W)
    assert epilogues(low) == [["bias_add", "relu"], []]
    assert "elementwise" not in same(graph, low)
    extended = next(s.workload for s in low.steps if s.workload and s.workload.base)
    assert len(extended.dag.outputs) == 2
    assert extended.key == extended.base.key
    assert extended.base in [t.workload for t in extract_search_tasks(low)]


def test_uses_that_meet_again_stay_in_one_kernel():
    nodes = [
        conv("x", "w", "c", **PADS), node("Sigmoid", "c", "s"), node("Mul", "c s", "m"),
        node("Add", "m x", "y"),
    ]  # fmt: skip
    graph, low = lowered(nodes, IMAGE, ["y"], W)
    assert epilogues(low) == [["sigmoid", "multiply", "residual_add"]]
    same(graph, low)


def test_an_inner_output_of_the_network_ends_the_group():
    nodes = [conv("x", "w", "c", **PADS), node("Relu", "c", "y")]
    graph, low = lowered(nodes, IMAGE, ["c", "y"], W)
    assert epilogues(low) == [[]]
    same(graph, low)


def test_the_deeper_of_two_convolutions_takes_the_sum():
    nodes = [
        conv("x", "v", "short", **PADS), conv("x", "w", "a", **PADS), node("Relu", "a", "r"),
        conv("r", "w", "deep", **PADS), node("Add", "short deep", "y"),
    ]  # fmt: skip
    graph, low = lowered(nodes, IMAGE, ["y"], {**W, "v": 2 * W["w"]})
    assert sorted(epilogues(low)) == [[], ["relu"], ["residual_add"]]
    same(graph, low)


def test_a_follower_may_read_what_is_computed_later_than_the_anchor():
    nodes = [
        conv("x", "w", "a", **PADS), conv("a", "w", "deep", **PADS),
        node("MaxPool", "x", "p", kernel_shape=[3, 3], **PADS), node("Add", "deep p", "y"),
    ]  # fmt: skip
    graph, low = lowered(nodes, IMAGE, ["y"], W)
    assert ["residual_add"] in epilogues(low)
    same(graph, low)


def test_scale_and_mask_join_the_softmax_behind_them():
    nodes = [
        node("Mul", "x k", "a"), node("Add", "a mask", "s"), node("Softmax", "s", "y", axis=-1),
    ]  # fmt: skip
    constants = {"k": np.float32(0.125)}
    graph, low = lowered(nodes, {"x": (2, 3, 5, 5), "mask": (2, 1, 1, 5)}, ["y"], constants)
    assert same(graph, low) == ["softmax"]


def written_out_norm(axes):
    """mean, variance, (x - mean) / sqrt(variance + epsilon) * scale + shift"""
    return [
        node("ReduceMean", f"x {axes}", "m"), node("Sub", "x m", "d"), node("Mul", "d d", "q"),
        node("ReduceMean", f"q {axes}", "v"), node("Add", "v eps", "e"), node("Sqrt", "e", "r"),
        node("Div", "d r", "n"), node("Mul", "n scale", "t"), node("Add", "t shift", "y"),
    ]  # fmt: skip


def test_a_normalisation_in_single_steps_is_one_kernel():
    constants = {"last": np.array([2]), "eps": np.float32(1e-5)}
    constants |= {"scale": floats(8), "shift": floats(8, seed=1)}
    graph, low = lowered(written_out_norm("last"), {"x": (2, 3, 8)}, ["y"], constants)
    assert len(same(graph, low)) == 1


def test_rows_end_where_a_value_leaves_them():
    constants = {"last": np.array([2]), "eps": np.float32(1e-5)}
    constants |= {"scale": floats(8), "shift": floats(8, seed=1)}
    graph, low = lowered(written_out_norm("last"), {"x": (2, 3, 8)}, ["y", "v"], constants)
    groups = [[n.op for n in item.nodes] for item in group_nodes(graph)]
    assert groups[:2] == [["ReduceMean", "Sub"], ["Mul", "ReduceMean"]]
    same(graph, low)


def test_planes_of_a_convolution_are_normalised_in_blocks():
    nodes = [conv("i", "w", "x", **PADS), *written_out_norm("planes"), conv("y", "w", "z")]
    constants = {"planes": np.array([2, 3]), "eps": np.float32(1e-5), **W}
    constants |= {"scale": floats(16, 1, 1), "shift": floats(16, 1, 1, seed=1)}
    graph, low = lowered(nodes, {"i": (2, 16, 8, 8)}, ["z"], constants)
    found = same(graph, low)
    assert len(found) == 5 and found.count("copy") == 2  # the network's input and output
    assert low.storage["y"][1].blocked


def test_squares_join_the_reduction_that_reads_them():
    nodes = [
        node("Mul", "x x", "q"), node("ReduceSum", "q last", "s", keepdims=1),
        node("Sqrt", "s", "r"), node("Div", "x r", "y"),
    ]  # fmt: skip
    graph, low = lowered(nodes, {"x": (2, 3, 8)}, ["y"], {"last": np.array([2])})
    assert same(graph, low) == ["reduce"]


def test_equal_computations_are_one_task_with_a_weight():
    nodes = [conv("x", "w", "a", **PADS), conv("a", "w2", "c", **PADS), conv("c", "w", "y")]
    graph, low = lowered(nodes, IMAGE, ["y"], {**W, "w2": floats(16, 16, 3, 3, seed=5)})
    assert [t.weight for t in extract_search_tasks(low)] == [2, 1]
    twice = extract_search_tasks([(low, 2), (low, 1)], threads=2)
    assert [(t.weight, t.threads) for t in twice] == [(6, 2), (3, 2)]
    same(graph, low)


def test_keys_tell_shapes_and_epilogues_apart_but_not_names():
    def key(shape, out, *more):
        nodes = [conv("x", "w", "c"), *more]
        return extract_search_tasks(lowered(nodes, {"x": shape}, [out], W)[1])[0].key

    base = key((1, 16, 8, 8), "c")
    assert base == key((1, 16, 8, 8), "c")
    assert base != key((1, 16, 9, 8), "c")
    assert base != key((1, 16, 8, 8), "y", node("Relu", "c", "y"))
    renamed = [conv("other", "w", "out")]
    low = lowered(renamed, {"other": (1, 16, 8, 8)}, ["out"], W)[1]
    assert extract_search_tasks(low)[0].key == base


# operators without a declaration ----------------------------------------------------------------
def test_other_operators_become_host_calls():
    nodes = [
        conv("x", "w", "c"), node("Gather", "c i", "g", axis=1), node("Relu", "g", "r"),
        node("ArgMax", "r", "y", axis=1),
    ]  # fmt: skip
    constants = {**W, "i": np.array([3, 1, 2], np.int64)}
    graph, low = lowered(nodes, IMAGE, ["y"], constants)
    assert [s.node.op for s in low.steps if s.node] == ["Gather", "ArgMax"]
    same(graph, low)


def test_scalars_are_computed_like_any_tensor():
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0), node("Sqrt", "s", "r"), node("Mul", "x r", "y"),
        node("Reshape", "r one", "z"), node("Reshape", "z none", "t"), node("Neg", "t", "u"),
    ]  # fmt: skip
    constants = {"one": np.array([1]), "none": np.array([], np.int64)}
    graph, low = lowered(nodes, {"x": (2, 3)}, ["y", "u"], constants)
    assert all(step.workload for step in low.steps)
    same(graph, low, x=np.abs(floats(2, 3)))
