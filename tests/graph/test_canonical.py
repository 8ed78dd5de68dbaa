"""Every node of an imported graph is as the dialect says; windows agree with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx_models import floats, model, node, ops

from engine.errors import ModelError
from engine.graph import Graph, load_model, load_proto
from engine.graph.dialect import ATTRIBUTES, OPSET_ATTR
from engine.graph.host import run_graph
from engine.zoo import build

CASES = Path(__file__).parents[1] / "data" / "cases"


def check_dialect(graph: Graph) -> None:
    """Attributes complete and of plain types, names unique, every value described, order right."""
    known = {*graph.inputs, *graph.constants}
    names = set()
    for n in graph.nodes:
        assert n.name and n.name not in names
        names.add(n.name)
        assert set(filter(None, n.inputs)) <= known, f"{n.name} reads ahead"
        known.update(n.outputs)
        if n.op in ATTRIBUTES and OPSET_ATTR not in n.attrs and not n.domain:
            assert set(n.attrs) == set(ATTRIBUTES[n.op]), n.op
            for value in n.attrs.values():
                assert type(value) in (int, float, str, tuple), n.op
    assert set(graph.outputs) <= known
    for name in known - {""}:
        assert graph.values[name].name == name
    for name, array in graph.constants.items():
        assert graph.shape(name) == array.shape
        assert graph.values[name].dtype == array.dtype.name


@pytest.mark.parametrize("case", sorted(p.stem for p in CASES.glob("*.onnx")))
def test_cases_follow_the_dialect(case: str) -> None:
    data = np.load(CASES / f"{case}.npz")
    shapes = {str(n): data[f"s0_in_{i}"].shape for i, n in enumerate(data["input_names"])}
    check_dialect(load_model(CASES / f"{case}.onnx", shapes))


@pytest.mark.parametrize("name", ["resnet-18", "squeezenet_v1.1", "mlp", "mobilenet-v2"])
def test_zoo_follows_the_dialect(name: str) -> None:
    graph = load_proto(build(name))
    check_dialect(graph)
    assert set(ops(graph)) <= set(ATTRIBUTES)


# windows ----------------------------------------------------------------------------------------
def agrees(m: Any, x: np.ndarray) -> None:
    """Same shape and values as onnxruntime, run as the dialect's own kernels and otherwise."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        (want,) = ort.InferenceSession(m.SerializeToString(), options).run(None, {"x": x})
    except Exception:
        assume(False)  # a geometry that nobody takes
    graph = load_proto(m)
    check_dialect(graph)
    assert graph.shape("y") == want.shape
    for backend in (True, False):
        got = run_graph(graph, {"x": x}, use_onnxruntime=backend)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@st.composite
def windows(draw: st.DrawFn, *, dilated: bool = True) -> dict[str, Any]:
    n = draw(st.integers(1, 3))
    sizes = {1: 12, 2: 8, 3: 5}[n]
    attrs: dict[str, Any] = {
        "kernel_shape": [draw(st.integers(1, 3)) for _ in range(n)],
        "strides": [draw(st.integers(1, 3)) for _ in range(n)],
    }
    if dilated and draw(st.booleans()):
        attrs["dilations"] = [draw(st.integers(1, 2)) for _ in range(n)]
    kinds = ["none", "explicit", "VALID"]
    if all(k >= s for k, s in zip(attrs["kernel_shape"], attrs["strides"], strict=True)):
        kinds += ["SAME_UPPER", "SAME_LOWER"]  # onnxruntime crops where windows leave gaps
    pad = draw(st.sampled_from(kinds))
    if pad == "explicit":
        small = [k - 1 for k in attrs["kernel_shape"]]
        attrs["pads"] = [draw(st.integers(0, p)) for p in small + small]
    elif pad != "none":
        attrs["auto_pad"] = pad
    shape = (draw(st.integers(1, 2)), 4, *(draw(st.integers(3, sizes)) for _ in range(n)))
    return {"attrs": attrs, "shape": shape}


@settings(max_examples=60, deadline=None)
@given(w=windows(), group=st.sampled_from([1, 2, 4]))
def test_convolutions(w: dict[str, Any], group: int) -> None:
    weights = floats(8, 4 // group, *w["attrs"]["kernel_shape"], seed=1)
    constants = {"w": weights, "b": floats(8, seed=2)}
    conv = node("Conv", "x w b", "y", group=group, **w["attrs"])
    agrees(model([conv], {"x": w["shape"]}, ["y"], constants, opset=11), floats(*w["shape"]))


@settings(max_examples=60, deadline=None)
@given(w=windows(), group=st.sampled_from([1, 2]), extra=st.integers(0, 2))
def test_transposed_convolutions(w: dict[str, Any], group: int, extra: int) -> None:
    weights = floats(4, 3, *w["attrs"]["kernel_shape"], seed=1)
    attrs = dict(w["attrs"])
    if "auto_pad" not in attrs and extra < min(attrs["strides"]):
        attrs["output_padding"] = [extra] * len(attrs["strides"])
    conv = node("ConvTranspose", "x w", "y", group=group, **attrs)
    m = model([conv], {"x": w["shape"]}, ["y"], {"w": weights}, opset=11)
    agrees(m, floats(*w["shape"]))


@settings(max_examples=80, deadline=None)
@given(
    w=windows(dilated=False),
    op=st.sampled_from(["MaxPool", "AveragePool"]),
    ceil=st.booleans(),
    include=st.booleans(),
)
def test_pools(w: dict[str, Any], op: str, ceil: bool, include: bool) -> None:
    attrs = {**w["attrs"], "ceil_mode": int(ceil)}
    if op == "AveragePool":
        attrs["count_include_pad"] = int(include)
    m = model([node(op, "x", "y", **attrs)], {"x": w["shape"]}, ["y"], opset=19)
    agrees(m, floats(*w["shape"]))


# details ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_windows_over_the_whole_picture_are_global(op: str) -> None:
    m = model([node(op, "x", "y", kernel_shape=[4, 5])], {"x": [2, 3, 4, 5]}, ["y"], opset=11)
    assert ops(load_proto(m)) == [f"Global{op}"]
    agrees(m, floats(2, 3, 4, 5))


def test_slices_are_normal() -> None:
    constants = {
        "s": np.array([-1, 100]),
        "e": np.array([-(2**63), -2]),
        "a": np.array([2, 1]),
        "t": np.array([-2, -1]),
    }
    m = model([node("Slice", "x s e a t", "y")], {"x": [2, 3, 6]}, ["y"], constants)
    graph = load_proto(m)
    assert graph.nodes[0].attrs == {
        "starts": (2, 5),
        "ends": (3, 0),
        "axes": (1, 2),
        "steps": (1, -2),
    }
    x = floats(2, 3, 6)
    np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], x[:, 100:-2:-1, ::-2])


def test_split_into_slices() -> None:
    m = model([node("Split", "x", "a b c", axis=-1, num_outputs=3)], {"x": [2, 8]}, ["a", "b", "c"])
    graph = load_proto(m)
    assert [graph.shape(n) for n in graph.outputs] == [(2, 3), (2, 3), (2, 2)]
    x = floats(2, 8)
    got = run_graph(graph, {"x": x})
    np.testing.assert_array_equal(np.concatenate([got[n] for n in "abc"], 1), x)


def test_moves_are_merged() -> None:
    nodes = [
        node("Transpose", "x", "a", perm=[2, 0, 1]),
        node("Transpose", "a", "b", perm=[1, 2, 0]),
        node("Flatten", "b", "c"),
        node("Reshape", "c s", "y"),
    ]
    graph = load_proto(model(nodes, {"x": [2, 3, 4]}, ["y"], {"s": np.array([4, -1])}))
    assert ops(graph) == ["Reshape"] and graph.nodes[0].attrs == {"shape": (4, 6)}


def test_equal_nodes_are_one() -> None:
    nodes = [
        node("Exp", "x", "a"),
        node("Exp", "x", "b"),
        node("Neg", "a", "c"),
        node("Neg", "b", "d"),
        node("Mul", "c d", "y"),
    ]
    graph = load_proto(model(nodes, {"x": [3]}, ["y", "d"]))
    assert ops(graph).count("Exp") == 1
    x = floats(3)
    got = run_graph(graph, {"x": x})
    np.testing.assert_allclose(got["y"], np.exp(x) ** 2, rtol=1e-5)
    np.testing.assert_allclose(got["d"], -np.exp(x), rtol=1e-5)


def test_old_softmax_flattens() -> None:
    graph = load_model(CASES / "G1-12.onnx")
    assert ops(graph) == ["Reshape", "Softmax", "Reshape"]
    graph = load_proto(model([node("Softmax", "x", "y", axis=-1)], {"x": [2, 3]}, ["y"], opset=9))
    assert ops(graph) == ["Softmax"]


def test_clip_bounds() -> None:
    nodes = [node("Clip", "x _ hi", "a"), node("Clip", "a lo", "b"), node("Clip", "b", "y")]
    constants = {"hi": np.float32(1.5), "lo": np.float32(-0.25)}
    graph = load_proto(model(nodes, {"x": [3]}, ["y"], constants, opset=13))
    assert [n.attrs for n in graph.nodes] == [
        {"min": -np.inf, "max": 1.5},
        {"min": -0.25, "max": np.inf},
    ]


def test_resize_that_is_not_constant_is_refused() -> None:
    m = model([node("Resize", "x _ s", "y")], {"x": [1, 1, 2, 2], "s": [4]}, ["y"])
    with pytest.raises(ModelError, match="scales must be constant"):
        load_proto(m)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4, 3, 6), (1, 2, 3, 2, 4)])
def test_global_norms(shape: tuple[int, ...], p: int) -> None:
    pool = node("GlobalLpPool", "x", "y", p=p)
    agrees(model([pool], {"x": shape}, ["y"], opset=11), floats(*shape))


def test_a_slope_larger_than_its_input_is_refused() -> None:
    prelu = node("PRelu", "x s", "y")
    with pytest.raises(ModelError, match=r"slope \[2, 1, 4\] does not fit \[3, 4\]"):
        load_proto(model([prelu], {"x": (3, 4)}, ["y"], {"s": floats(2, 1, 4)}))


@pytest.mark.parametrize(
    ("text", "shape", "weight", "attrs", "message"),
    [
        ("Conv", (1, 5, 6, 6), (4, 4, 3, 3), {}, "in 1 groups for 5 channels"),
        ("Conv", (1, 12, 6, 6), (4, 4, 3, 3), {"group": 3}, "in 3 groups for 12 channels"),
        ("Conv", (1, 4, 6, 6), (4, 4, 3, 3), {"kernel_shape": [2, 2]}, "kernel_shape"),
        ("Conv", (1, 4, 6, 2), (4, 4, 3, 4), {"strides": [1, 3]}, "longer than the data"),
        ("ConvTranspose", (1, 5, 6, 6), (4, 4, 3, 3), {}, "in 1 groups for 5 channels"),
        ("MaxPool", (1, 3, 6, 2), None, {"kernel_shape": [3, 4], "strides": [1, 3]}, "longer"),
        ("AveragePool", (1, 3, 6, 6), None, {"kernel_shape": [2, 2], "pads": [2] * 4}, "as large"),
        ("DepthToSpace", (1, 6, 3, 3), None, {"blocksize": 2}, "blocks of 2 do not fit"),
        ("SpaceToDepth", (1, 4, 3, 4), None, {"blocksize": 2}, "blocks of 2 do not fit"),
        ("Reshape", (2, 3), [4, 2], {}, "cannot take the shape"),
        ("Reshape", (2, 3), [2, 3, 0], {}, "cannot take the shape"),
        ("Split", (2, 3), [-1, 4], {"axis": 1}, "cannot be split"),
        ("Resize", (1, 1, 2, 3), None, {"scales": (1.0, 1.0, -1.0, 2.0)}, "-2"),
        ("LayerNormalization", (2, 4), (3,), {}, r"\[3\] does not fit \[4\]"),
        ("InstanceNormalization", (1, 4, 6), (3,), {}, r"\[3\] where \[4\] is needed"),
        ("GroupNormalization", (1, 4, 6), (4,), {"num_groups": 3}, "4 channels in 3 groups"),
    ],
)
def test_what_does_not_fit_is_refused(
    text: str, shape: tuple[int, ...], weight: Any, attrs: dict[str, Any], message: str
) -> None:
    """Shape inference lets these pass, and a kernel would read beyond its operands."""
    constants: dict[str, np.ndarray] = {}
    inputs = "x"
    if text == "Resize":
        constants["w"], attrs, inputs = np.array(attrs["scales"], np.float32), {}, "x r w"
        constants["r"] = np.zeros(0, np.float32)
    elif isinstance(weight, list):
        constants["w"], inputs = np.array(weight), "x w"
    elif weight is not None:
        vectors = text.endswith("Normalization")
        constants["w"], inputs = floats(*weight), "x w w" if vectors else "x w"
    bad = node(text, inputs, "y z" if text == "Split" else "y", **attrs)
    with pytest.raises(ModelError, match=message):
        load_proto(model([bad], {"x": shape}, ["y"], constants, opset=21))


def test_a_name_is_computed_once() -> None:
    twice = [node("Relu", "x", "y"), node("Neg", "x", "y")]
    with pytest.raises(ModelError, match="'y' has been computed before"):
        load_proto(model(twice, {"x": (3,)}, ["y"]))


def test_a_constant_with_a_negative_dimension_is_refused() -> None:
    proto = model([node("Add", "x w", "y")], {"x": (3,)}, ["y"], {"w": floats(3)})
    proto.graph.initializer[0].dims[:] = [-3]
    with pytest.raises(ModelError, match=r"'w' is damaged.*\[-3\]"):
        load_proto(proto)
