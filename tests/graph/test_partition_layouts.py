"""Layout planning: views where they are possible, copies where they are not, and right values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_run import close, run_lowered
from onnx_models import floats, model, node

from engine.graph import load_proto
from engine.graph.host import run_graph
from engine.graph.partition import lower
from engine.target import named

AVX512, SSE = named("avx512"), named("sse42")
PADS = {"pads": [1, 1, 1, 1]}


def weights(**shapes):
    return {name: floats(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}


def anchors(nodes, inputs, outputs, constants=None, target=AVX512):
    """Lowers, checks the values, and gives (anchors of the steps, lowered network)."""
    graph = load_proto(model(nodes, inputs, outputs, constants))
    low = lower(graph, target)
    feeds = {n: floats(*graph.shape(n), seed=i) for i, n in enumerate(graph.inputs)}
    found = run_lowered(low, feeds)
    for name, array in run_graph(graph, feeds).items():
        close(found[name], array, 1e-5)
    return [s.workload.anchor if s.workload else s.node.op for s in low.steps], low


def buffer(low, name):
    return low.storage[name][0]


def test_spatial_tensors_are_blocked_with_the_halo_of_their_readers():
    nodes = [
        node("Conv", "x w", "a", **PADS),
        node("Conv", "a v", "b", pads=[2, 2, 2, 2], kernel_shape=[5, 5]),
        node("MaxPool", "a", "c", kernel_shape=[3, 3], **PADS),
        node("Add", "b c", "y"),
    ]
    found, low = anchors(
        nodes, {"x": (1, 3, 9, 9)}, ["y"], weights(w=(32, 3, 3, 3), v=(32, 32, 5, 5))
    )
    a = low.storage["a"][1]
    assert (a.block, a.halo[2:]) == (16, ((2, 2), (2, 2)))
    image = low.storage["x@blocked"][1]
    assert (image.block, image.halo[2:]) == (3, ((1, 1), (1, 1)))
    assert found == ["copy", "conv2d", "max_pool2d", "conv2d", "copy"]
    pool = next(s for s in low.steps if s.name == "max_pool2d")
    assert not any(map(any, pool.workload.layouts["data"].halo))


def test_channels_that_do_not_fill_the_last_block():
    nodes = [node("Conv", "x w", "a", **PADS), node("Conv", "a v", "y", **PADS)]
    _, low = anchors(nodes, {"x": (2, 5, 6, 7)}, ["y"], weights(w=(20, 5, 3, 3), v=(3, 20, 3, 3)))
    assert low.storage["a"][1].block == 16 and low.storage["y@inner"][1].block == 3


def test_parts_of_a_concat_are_written_in_place():
    nodes = [
        node("Conv", "x w", "a", **PADS), node("Conv", "x v", "b", **PADS),
        node("Concat", "a b", "c", axis=1), node("Conv", "c u", "y", **PADS),
    ]  # fmt: skip
    constants = weights(w=(16, 16, 3, 3), v=(32, 16, 3, 3), u=(16, 48, 3, 3))
    found, low = anchors(nodes, {"x": (2, 16, 6, 6)}, ["y"], constants)
    assert buffer(low, "a") == buffer(low, "b") == "c"
    assert low.storage["b"][1].halo[2:] == ((1, 1), (1, 1))
    assert found.count("copy") == 2  # the network's input and output


def test_a_value_in_two_concats_is_copied_into_one():
    nodes = [
        node("Relu", "x", "r"), node("Conv", "r w", "a", **PADS), node("Conv", "r w", "b", **PADS),
        node("Concat", "a b", "c", axis=1), node("Concat", "a r a", "d", axis=1),
        node("Conv", "c v", "y"), node("Conv", "d u", "z"),
    ]  # fmt: skip
    constants = weights(w=(16, 16, 3, 3), v=(8, 32, 1, 1), u=(8, 48, 1, 1))
    anchors(nodes, {"x": (1, 16, 6, 6)}, ["y", "z"], constants)


def test_dense_blocks_grow_in_one_buffer():
    nodes, parts = [node("Conv", "x w0", "f0", **PADS)], ["f0"]
    for i in range(1, 4):
        nodes += [
            node("Concat", " ".join(parts), f"c{i}", axis=1), node("Relu", f"c{i}", f"r{i}"),
            node("Conv", f"r{i} w{i}", f"f{i}", **PADS),
        ]  # fmt: skip
        parts.append(f"f{i}")
    nodes += [node("Concat", " ".join(parts), "c4", axis=1), node("Conv", "c4 w4", "y", **PADS)]
    constants = weights(**{f"w{i}": (16, 16 * max(i, 1), 3, 3) for i in range(5)})
    found, low = anchors(nodes, {"x": (2, 16, 5, 5)}, ["y"], constants)
    assert {buffer(low, n) for n in (*parts, "c2", "c3", "c4")} == {"c4"}
    assert found.count("copy") == 2  # the network's input and output


def test_concat_of_uneven_channels_goes_through_plain_buffers():
    nodes = [
        node("Conv", "x w", "a"), node("Conv", "x v", "b"), node("Concat", "a b", "c", axis=1),
        node("Conv", "c u", "y"),
    ]  # fmt: skip
    constants = weights(w=(17, 16, 1, 1), v=(7, 16, 1, 1), u=(16, 24, 3, 3))
    _, low = anchors(nodes, {"x": (1, 16, 6, 6)}, ["y"], constants)
    assert not low.storage["c"][1].blocked


def test_nested_concats_with_constants_inputs_and_outputs():
    nodes = [
        node("Relu", "x", "r"), node("Concat", "r k", "a", axis=1),
        node("Concat", "a x", "b", axis=1), node("Neg", "b", "n"),
        node("Concat", "r n", "y", axis=1),
    ]  # fmt: skip
    anchors(nodes, {"x": (2, 3, 4)}, ["r", "b", "y"], weights(k=(2, 2, 4)))


def test_concat_on_other_axes():
    nodes = [
        node("Conv", "x w", "a"), node("Relu", "a", "r"), node("Neg", "a", "n"),
        node("Concat", "r n", "c", axis=3), node("Concat", "r n", "d", axis=0),
        node("Conv", "c w", "y"), node("Conv", "d w", "z"),
    ]  # fmt: skip
    anchors(nodes, {"x": (1, 16, 6, 6)}, ["y", "z"], weights(w=(16, 16, 3, 3)))


@pytest.mark.parametrize("start,end", [(16, 48), (0, 16), (8, 24), (3, 5)])
def test_channel_slices(start, end):
    nodes = [
        node("Conv", "x w", "a", **PADS), node("Slice", "a s e axes", "b"),
        node("MaxPool", "b", "p", kernel_shape=[3, 3], **PADS), node("Relu", "p", "y"),
    ]  # fmt: skip
    constants = weights(w=(64, 16, 3, 3)) | {
        "s": np.array([start]), "e": np.array([end]), "axes": np.array([1]),
    }  # fmt: skip
    _, low = anchors(nodes, {"x": (2, 16, 5, 5)}, ["y"], constants)
    assert (buffer(low, "b") == buffer(low, "a")) == (start % 16 == 0 and end % 16 == 0)


def test_split_branches_join_again():
    nodes = [
        node("Conv", "x w", "a", **PADS), node("Split", "a", "p q", axis=1, num_outputs=2),
        node("Conv", "q v", "r", **PADS), node("Concat", "p r", "c", axis=1),
        node("Conv", "c w", "y", **PADS),
    ]  # fmt: skip
    constants = weights(w=(32, 32, 3, 3), v=(16, 16, 3, 3))
    anchors(nodes, {"x": (1, 32, 6, 6)}, ["y"], constants)


def test_flatten_behind_a_global_pool_costs_nothing():
    nodes = [
        node("Conv", "x w", "a"), node("GlobalAveragePool", "a", "g"),
        node("Flatten", "g", "f"), node("Gemm", "f v", "y"),
    ]  # fmt: skip
    constants = weights(w=(32, 16, 3, 3), v=(32, 10))
    found, low = anchors(nodes, {"x": (2, 16, 6, 6)}, ["y"], constants)
    assert found == ["copy", "conv2d", "global_avg_pool2d", "dense"]
    assert buffer(low, "f") == "g"


def test_flatten_of_a_plane_is_copied_to_plain_order():
    nodes = [node("Conv", "x w", "a"), node("Flatten", "a", "f"), node("Gemm", "f v", "y")]
    constants = weights(w=(32, 16, 3, 3), v=(512, 10))
    found, _ = anchors(nodes, {"x": (2, 16, 6, 6)}, ["y"], constants)
    assert found == ["copy", "conv2d", "copy", "dense"]


def test_attention_heads_are_views():
    nodes = [
        node("MatMul", "x q", "a"), node("Reshape", "a heads", "b"),
        node("Transpose", "b", "c", perm=[0, 2, 1, 3]),
        node("MatMul", "x k", "d"), node("Reshape", "d heads", "e"),
        node("Transpose", "e", "f", perm=[0, 2, 3, 1]),
        node("MatMul", "c f", "s"), node("Softmax", "s", "p"), node("MatMul", "p c", "o"),
        node("Transpose", "o", "t", perm=[0, 2, 1, 3]), node("Reshape", "t whole", "u"),
        node("MatMul", "u q", "y"),
    ]  # fmt: skip
    constants = weights(q=(8, 8), k=(8, 8)) | {
        "heads": np.array([2, 5, 2, 4]), "whole": np.array([2, 5, 8]),
    }  # fmt: skip
    found, low = anchors(nodes, {"x": (2, 5, 8)}, ["y"], constants)
    assert found.count("transpose") == 1 and "copy" not in found
    assert buffer(low, "c") == "a" and buffer(low, "o") == "t"


def test_networks_that_pass_inputs_and_views_out():
    nodes = [
        node("Identity", "x", "i"), node("Relu", "x", "y"), node("Identity", "y", "y2"),
        node("Reshape", "y", "r"), node("Transpose", "y", "t", perm=[1, 0, 2]),
    ]  # fmt: skip
    nodes[3].input.append("shape")
    _, low = anchors(
        nodes, {"x": (2, 3, 4)}, ["i", "y", "y2", "r", "t"], {"shape": np.array([6, 4])}
    )
    owners = [buffer(low, n) for n in ("x", "i", "y", "y2", "r", "t")]
    assert owners == ["x", "i", "y", "y2", "r", "t"]


def test_values_with_the_planners_own_names():
    nodes = [
        node("Relu", "x", "x@blocked"), node("Conv", "x w", "y@inner"),
        node("Conv", "x@blocked w", "y"), node("Softmax", "y@inner", "z", axis=1),
    ]  # fmt: skip
    anchors(nodes, {"x": (1, 16, 6, 6)}, ["y", "z"], weights(w=(16, 16, 3, 3)))


def test_gates_broadcast_over_planes():
    nodes = [
        node("Conv", "x w", "a", **PADS), node("GlobalAveragePool", "a", "g"),
        node("Conv", "g v", "h"), node("Sigmoid", "h", "s"), node("Mul", "a s", "m"),
        node("ReduceMean", "m axes", "y", keepdims=0),
    ]  # fmt: skip
    constants = weights(w=(32, 16, 3, 3), v=(32, 32, 1, 1)) | {"axes": np.array([2, 3])}
    found, _ = anchors(nodes, {"x": (2, 16, 6, 6)}, ["y"], constants)
    assert "copy" not in found[1:]


def window(op, rank, **attrs):
    """A 3-wide operator that keeps the spatial size."""
    n = rank - 2
    return lambda a, o: node(op, a, o, kernel_shape=[3] * n, pads=[1] * 2 * n, **attrs)


def steps(rank, size):
    """Operators over tensors [2, size, size, ...], by name: (first, second, output) -> node."""
    conv, deep = window("Conv", rank), window("Conv", rank, group=size)
    pool, mean = window("MaxPool", rank), window("AveragePool", rank)
    whole = list(range(rank))
    return {
        "conv": lambda a, b, o: conv(f"{a} w", o),
        "depthwise": lambda a, b, o: deep(f"{a} dw", o),
        "relu": lambda a, b, o: node("Relu", a, o),
        "add": lambda a, b, o: node("Add", f"{a} {b}", o),
        "bias": lambda a, b, o: node("Add", f"{a} c", o),
        "pool": lambda a, b, o: pool(a, o),
        "mean": lambda a, b, o: mean(a, o),
        "softmax": lambda a, b, o: node("Softmax", a, o, axis=1),
        "matmul": lambda a, b, o: node("MatMul", f"{a} m", o),
        "swap": lambda a, b, o: node("Transpose", a, o, perm=[*whole[:-2], rank - 1, rank - 2]),
        "turn": lambda a, b, o: node("Transpose", a, o, perm=[0, *whole[1:-1][::-1], rank - 1]),
        "gate": lambda a, b, o: node("Mul", f"{a} g", o),
        "gather": lambda a, b, o: node("Gather", f"{a} order", o, axis=1),
        "twice": lambda a, b, o: node("Concat", f"{a} {b}", o, axis=1),
        "half": lambda a, b, o: node("Slice", f"{a} low high axis", o),
        "norm": lambda a, b, o: node("LayerNormalization", f"{a} ln", o),
        "average": lambda a, b, o: node("ReduceMean", f"{a} space", o, keepdims=1),
        "spread": lambda a, b, o: node("Mul", f"{a} {b}", o),
        "flat": lambda a, b, o: node("Reshape", f"{a} shape", o),
    }


def dense_block(table, a, b, c, out):
    """[a b] and [a b c], a part of each, and the sum of the parts."""
    names = [f"{out}{i}" for i in range(4)]
    return [
        node("Concat", f"{a} {b}", names[0], axis=1),
        node("Concat", f"{a} {b} {c}", names[1], axis=1),
        table["half"](names[0], "", names[2]),
        table["half"](names[1], "", names[3]),
        table["add"](names[2], names[3], out),
    ]


def operands(rank, size, start):
    """The constants that `steps` names."""
    taps, ones = (3,) * (rank - 2), (1,) * (rank - 2)
    found = weights(
        w=(size, size, *taps), dw=(size, 1, *taps), c=(size, *ones), m=(size, size),
        g=(2, 1, *(size,) * (rank - 2)), ln=(size,),
    )  # fmt: skip
    found["w"] *= 1 / size
    found["m"] *= 1 / size
    return found | {
        "order": np.arange(size)[::-1].copy(),
        "low": np.array([start]),
        "high": np.array([start + size]),
        "axis": np.array([1]),
        "space": np.arange(2, rank),
        "shape": np.array([2, size, -1, *(size,) * (rank - 3)]),
    }


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_networks_compute_the_same(data):
    """Any mix of operators; a "twice" ends with a "half", an "average" with a "spread"."""
    size, rank = data.draw(st.sampled_from([(16, 4), (20, 4), (16, 3), (20, 3), (5, 5)]))
    table, nodes, known = steps(rank, size), [], ["x"]
    for i in range(data.draw(st.integers(2, 10))):
        op = data.draw(st.sampled_from(["dense", *sorted(set(table) - {"half", "spread"})]))
        a, b = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
        out, second = f"v{i}", {"twice": "half", "average": "spread"}.get(op)
        if op == "dense":
            nodes += dense_block(table, a, b, data.draw(st.sampled_from(known)), out)
        elif second:
            nodes += [table[op](a, b, out + "i"), table[second](out + "i", b, out)]
        else:
            nodes.append(table[op](a, b, out))
        known.append(out)
    outputs = sorted({known[-1], *data.draw(st.lists(st.sampled_from(known[1:]), max_size=2))})
    start = data.draw(st.sampled_from([0, size // 4, size]))
    shape = (2, *(size,) * (rank - 1))
    graph = load_proto(model(nodes, {"x": shape}, outputs, operands(rank, size, start)))
    low = lower(graph, data.draw(st.sampled_from([AVX512, SSE])))
    feeds = {"x": floats(*shape)}
    found = run_lowered(low, feeds)
    for name, array in run_graph(graph, feeds).items():
        close(found[name], array, 1e-4)
