"""Batch norms and scales move into weights wherever that is right, and nowhere else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import floats, model, node, ops, run_one

from engine.graph import Graph, load_proto
from engine.graph.host import run_graph


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(np.float32)


def bn(x: str, y: str, p: str) -> onnx.NodeProto:
    return node("BatchNormalization", f"{x} {p}s {p}b {p}m {p}v", y, epsilon=0.01)


def bn_constants(p: str, c: int, seed: int = 3) -> dict[str, np.ndarray]:
    return {
        f"{p}s": positive(c, seed=seed),
        f"{p}b": floats(c, seed=seed + 1),
        f"{p}m": floats(c, seed=seed + 2),
        f"{p}v": positive(c, seed=seed + 3),
    }


def check(m: onnx.ModelProto, want_ops: list[str], **shapes: tuple[int, ...]) -> Graph:
    """The graph has these operators and computes what onnxruntime computes of the original."""
    ort = pytest.importorskip("onnxruntime")
    graph = load_proto(m)
    assert ops(graph) == want_ops
    feeds = {name: floats(*graph.shape(name), seed=9) for name in graph.inputs}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wants = ort.InferenceSession(m.SerializeToString(), options).run(None, feeds)
    got = run_graph(graph, feeds, use_onnxruntime=False)
    for name, want in zip(graph.outputs, wants, strict=True):
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4)
    return graph


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_backward_into_conv(bias: bool, group: int) -> None:
    nodes = [node("Conv", "x w c" if bias else "x w", "h", group=group), bn("h", "y", "p")]
    constants = {"w": floats(6, 4 // group, 3, 3), "c": floats(6), **bn_constants("p", 6)}
    check(model(nodes, {"x": [1, 4, 5, 5]}, ["y"], constants), ["Conv", "Add"])


@pytest.mark.parametrize("group", [1, 2])
def test_backward_into_transposed_conv(group: int) -> None:
    nodes = [node("ConvTranspose", "x w", "h", group=group, strides=[2, 2]), bn("h", "y", "p")]
    constants = {"w": floats(4, 6 // group, 3, 3), **bn_constants("p", 6)}
    check(model(nodes, {"x": [1, 4, 5, 5]}, ["y"], constants), ["ConvTranspose", "Add"])


def test_backward_into_matmul() -> None:
    nodes = [node("Gemm", "x w c", "h", transB=1), bn("h", "y", "p")]
    constants = {"w": floats(6, 4), "c": floats(6), **bn_constants("p", 6)}
    check(model(nodes, {"x": [2, 4]}, ["y"], constants), ["MatMul", "Add"])


def test_not_backward_when_the_product_has_other_users() -> None:
    nodes = [node("Conv", "x w", "h"), bn("h", "y", "p"), node("Relu", "h", "z")]
    constants = {"w": floats(6, 4, 3, 3), **bn_constants("p", 6)}
    m = model(nodes, {"x": [1, 4, 5, 5]}, ["y", "z"], constants)
    check(m, ["Conv", "Mul", "Add", "Relu"])
    m = model(nodes[:2], {"x": [1, 4, 5, 5]}, ["y", "h"], constants)
    check(m, ["Conv", "Mul", "Add"])


def test_shared_weights_are_scaled_for_one_user_only() -> None:
    nodes = [node("Conv", "x w", "h"), bn("h", "y", "p"), node("Conv", "x w", "z")]
    constants = {"w": floats(6, 4, 3, 3), **bn_constants("p", 6)}
    check(model(nodes, {"x": [1, 4, 5, 5]}, ["y", "z"], constants), ["Conv", "Add", "Conv"])


def test_forward_into_all_consuming_convs() -> None:
    """As in a pre-activation unit: the factor crosses the Relu into both convolutions."""
    nodes = [
        node("Add", "x x2", "sum"),
        bn("sum", "n", "p"),
        node("Relu", "n", "r"),
        node("Conv", "r w1", "y", pads=[1, 1, 1, 1]),
        node("Conv", "r w2", "z", group=2),
    ]
    constants = {"w1": floats(3, 4, 3, 3), "w2": floats(6, 2, 1, 1), **bn_constants("p", 4)}
    shape = [1, 4, 5, 5]
    m = model(nodes, {"x": shape, "x2": shape}, ["y", "z"], constants)
    check(m, ["Add", "Add", "Relu", "Conv", "Conv"])


def test_forward_through_max_pool() -> None:
    nodes = [
        node("MaxPool", "x", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        bn("a", "n", "p"),
        node("MaxPool", "n", "b", kernel_shape=[2, 2]),
        node("Conv", "b w", "y"),
    ]
    constants = {"w": floats(3, 4, 1, 1), **bn_constants("p", 4)}
    m = model(nodes, {"x": [1, 4, 6, 6]}, ["y"], constants)
    check(m, ["MaxPool", "Add", "MaxPool", "Conv"])


@pytest.mark.parametrize("reader", ["GlobalAveragePool", "Sigmoid"])
def test_not_forward_when_one_reader_cannot_take_it(reader: str) -> None:
    nodes = [bn("x", "n", "p"), node("Conv", "n w", "y"), node(reader, "n", "z")]
    constants = {"w": floats(3, 4, 1, 1), **bn_constants("p", 4)}
    m = model(nodes, {"x": [1, 4, 6, 6]}, ["y", "z"], constants)
    check(m, ["Mul", "Add", "Conv", reader])


@pytest.mark.parametrize("factor", [-1.0, 0.0])
def test_only_positive_factors_cross_a_relu(factor: float) -> None:
    constants = {"w": floats(3, 4, 1, 1), **bn_constants("p", 4)}
    constants["ps"][2] = factor
    nodes = [bn("x", "n", "p"), node("Relu", "n", "r"), node("Conv", "r w", "y")]
    m = model(nodes, {"x": [1, 4, 6, 6]}, ["y"], constants)
    check(m, ["Mul", "Add", "Relu", "Conv"])


def test_shift_before_a_padded_conv_stays() -> None:
    """The border sees zeros, not the shift: only the factor moves."""
    nodes = [bn("x", "n", "p"), node("Conv", "n w", "y", pads=[1, 1, 1, 1])]
    constants = {"w": floats(3, 4, 3, 3), **bn_constants("p", 4)}
    check(model(nodes, {"x": [1, 4, 6, 6]}, ["y"], constants), ["Add", "Conv"])


def test_batch_norm_with_computed_statistics() -> None:
    nodes = [node("ReduceMean", "x axes", "m", keepdims=0), bn("x", "y", "p")]
    nodes[1].input[3] = "m"
    constants = {**bn_constants("p", 4), "axes": np.array([0, 2, 3])}
    del constants["pm"]
    m = model(nodes, {"x": [2, 4, 5, 5]}, ["y"], constants)
    check(m, ["ReduceMean", "Mul", "Sub", "Mul", "Reshape", "Add"])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_chain_keeps_its_values(seed: int) -> None:
    """Random chains of foldable operators with random branches and signs."""
    rng = np.random.default_rng(seed)
    nodes, constants, value, outputs = [], {}, "x", []
    for i in range(int(rng.integers(2, 9))):
        kind, new = rng.choice(["conv", "mul", "add", "relu", "pool", "out"]), f"v{i}"
        if kind == "out":
            outputs.append(value)
            continue
        if kind == "conv":
            constants[f"c{i}"] = floats(4, 4, 1, 1, seed=seed + i)
            nodes.append(node("Conv", f"{value} c{i}", new))
        elif kind in ("mul", "add"):
            shape = [(4, 1, 1), (1, 4, 1, 1), (1,), (1, 1, 1, 6)][int(rng.integers(4))]
            draw = floats if rng.random() < 0.4 else positive
            constants[f"c{i}"] = draw(*shape, seed=seed + i)
            nodes.append(node(kind.capitalize(), f"{value} c{i}", new))
        elif kind == "relu":
            nodes.append(node("Relu", value, new))
        else:
            attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
            nodes.append(node("MaxPool", value, new, **attrs))
        value = new
    outputs = list(dict.fromkeys([*outputs, value]))
    m = model(nodes, {"x": [1, 4, 6, 6]}, outputs, constants)
    x = floats(1, 4, 6, 6, seed=seed)
    graph = load_proto(m)
    assert graph.outputs == tuple(outputs)
    got = run_graph(graph, {"x": x}, use_onnxruntime=False)
    for name, want in _numpy(m, x).items():
        if name in outputs:
            scale = max(float(np.abs(want).max()), 1.0)
            np.testing.assert_allclose(got[name] / scale, want / scale, atol=1e-4)


def _numpy(m: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """The chain's values in float64, straight from the model."""
    values = {t.name: onnx.numpy_helper.to_array(t) for t in m.graph.initializer}
    values["x"] = x
    for n in m.graph.node:
        a = np.asarray(values[n.input[0]], np.float64)
        if n.op_type == "Conv":
            y = np.einsum("nchw,mc->nmhw", a, values[n.input[1]][:, :, 0, 0])
        elif n.op_type in ("Mul", "Add"):
            y = a * values[n.input[1]] if n.op_type == "Mul" else a + values[n.input[1]]
        elif n.op_type == "Relu":
            y = np.maximum(a, 0)
        else:
            padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
            y = windows.max((4, 5))
        values[n.output[0]] = y
    return values


def test_simplified_forms() -> None:
    nodes = [
        node("Sub", "x a", "h1"),
        node("Div", "h1 two", "h2"),
        node("Add", "b h2", "h3"),
        node("Mul", "h3 one", "h4"),
        node("Pow", "h4 one", "y"),
    ]
    constants = {
        "a": floats(1, 3, 1, 1),
        "b": floats(1, 3, 1, 1, seed=1),
        "two": np.float32([2]),
        "one": np.float32([1]),
    }
    m = model(nodes, {"x": [1, 3, 2, 2]}, ["y"], constants)
    graph = check(m, ["Add", "Mul", "Add"])
    assert [graph.shape(n.inputs[1]) for n in graph.nodes] == [(3, 1, 1), (), (3, 1, 1)]


def test_zero_padding_joins_the_convolution() -> None:
    nodes = [node("Pad", "x p", "h"), node("Conv", "h w", "y", pads=[0, 1, 1, 0])]
    constants = {"p": np.array([0, 0, 1, 2, 0, 0, 3, 4]), "w": floats(2, 3, 3, 3)}
    graph = check(model(nodes, {"x": [1, 3, 5, 5]}, ["y"], constants), ["Conv"])
    assert graph.nodes[0].attrs["pads"] == (1, 3, 4, 4)
    edge = [node("Pad", "x p", "h", mode="edge"), nodes[1]]
    check(model(edge, {"x": [1, 3, 5, 5]}, ["y"], constants), ["Pad", "Conv"])


def test_run_one_matches_numpy() -> None:
    graph = load_proto(model([node("Relu", "x", "y")], {"x": [5]}, ["y"]))
    x = floats(5)
    np.testing.assert_array_equal(run_one(graph, x=x), np.maximum(x, 0))
