"""Import: what a model may look like, and what is said where it cannot be taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_models import floats, model, node, ops, run_one

from engine.errors import ModelError
from engine.graph import load_model, load_proto
from engine.graph.host import run_graph

CASES = Path(__file__).parents[1] / "data" / "cases"


# files ------------------------------------------------------------------------------------------
def test_missing_empty_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model file"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="not a file"):
        load_model(tmp_path)
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"empty\.onnx: the file is empty"):
        load_model(tmp_path / "empty.onnx")
    (tmp_path / "text.onnx").write_text("this is not a network\n" * 20)
    with pytest.raises(ModelError, match="cannot parse the model"):
        load_model(tmp_path / "text.onnx")
    np.savez(tmp_path / "arrays.onnx", x=np.zeros(3))
    with pytest.raises(ModelError):
        load_model(tmp_path / "arrays.onnx.npz")


@settings(max_examples=60, deadline=None)
@given(part=st.floats(0, 1, exclude_max=True), case=st.sampled_from(["G1-21", "G1-39", "G1-05"]))
def test_truncated_files(tmp_path_factory: pytest.TempPathFactory, part: float, case: str) -> None:
    """Every cut of a file is refused by a ModelError; no other exception, no half network."""
    data = (CASES / f"{case}.onnx").read_bytes()
    path = tmp_path_factory.mktemp("cut") / "cut.onnx"
    path.write_bytes(data[: int(part * len(data))])
    with pytest.raises(ModelError, match=r"cut\.onnx"):
        load_model(path)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Flipped bytes give a network or a ModelError, never another exception."""
    rng = np.random.default_rng(seed)
    data = bytearray((CASES / "G1-21.onnx").read_bytes())
    for at in rng.integers(0, len(data), 3):
        data[at] = int(rng.integers(0, 256))
    path = tmp_path_factory.mktemp("bad") / "bad.onnx"
    path.write_bytes(bytes(data))
    try:
        graph = load_model(path)
    except ModelError as error:
        assert "bad.onnx" in str(error)
    else:
        assert graph.outputs


@pytest.mark.parametrize("opset", [6, 24, 99])
def test_unsupported_operator_sets(opset: int) -> None:
    with pytest.raises(ModelError, match=rf"operator set {opset} .*7 to 23"):
        load_proto(model([node("Relu", "x", "y")], {"x": [2]}, ["y"], opset=opset))


# shapes -----------------------------------------------------------------------------------------
def test_open_dimensions_are_named_with_the_option_to_give() -> None:
    m = model([node("Relu", "x", "y")], {"x": ["N", 3, None, "W"]}, ["y"])
    with pytest.raises(ModelError) as caught:
        load_proto(m)
    text = str(caught.value)
    assert "input 'x'" in text and "dimension 0 (N)" in text and "--shape x=1,3,224,224" in text
    graph = load_proto(m, shapes={"x": (2, 3, 5, 7)})
    assert graph.shape("x") == graph.shape("y") == (2, 3, 5, 7)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "there is no input 'z'.*The inputs are: x"),
        ({"x": (1, 3)}, "3 dimensions, the given shape 2"),
        ({"x": (1, 4, 5)}, "has 3 in dimension 1, the given shape 4"),
        ({"x": (-1, 3, 5)}, "negative"),
    ],
)
def test_wrong_shapes(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    m = model([node("Relu", "x", "y")], {"x": ["N", 3, 5]}, ["y"])
    with pytest.raises(ModelError, match=message):
        load_proto(m, shapes=shapes)


def test_shape_arithmetic_is_gone() -> None:
    """Shape, Gather, Range, ConstantOfShape and Where on shapes leave one Reshape."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Range", "zero n one", "r"),
        node("ReduceSum", "r", "total", keepdims=0),
        node("ConstantOfShape", "n1", "zeros"),
        node("Shape", "zeros", "n2"),
        node("Concat", "n2 rest", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    constants = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "axes": np.array([0]),
        "rest": np.array([-1]),
    }
    graph = load_proto(model(nodes, {"x": ["N", 3, 4]}, ["y"], constants), shapes={"x": (2, 3, 4)})
    assert ops(graph) == ["Reshape"] and graph.nodes[0].attrs == {"shape": (2, 12)}


def test_shape_that_depends_on_data_is_refused() -> None:
    m = model([node("NonZero", "x", "y", name="where")], {"x": [4]}, ["y"])
    with pytest.raises(ModelError, match=r"node 'where' \(ai.onnx::NonZero, opset 21\).*depends"):
        load_proto(m)


# operators --------------------------------------------------------------------------------------
def test_unknown_operator_and_domain() -> None:
    m = model([node("Reluu", "x", "y", name="n7")], {"x": [4]}, ["y"])
    with pytest.raises(ModelError, match=r"node 'n7' \(ai.onnx::Reluu, opset 21\).*no such operat"):
        load_proto(m)
    extra = node("Fused", "x", "y", domain="my.domain")
    m = model([extra], {"x": [4]}, ["y"], imports=[helper.make_opsetid("my.domain", 3)])
    with pytest.raises(ModelError, match=r"node 'y' \(my.domain::Fused, opset 3\).*is unknown"):
        load_proto(m)


@pytest.mark.parametrize(
    ("op", "reason"),
    [("RandomNormalLike", "random"), ("Flatten", "axis 5 is out of range"), ("Conv", "w")],
)
def test_refusals_name_the_node(op: str, reason: str) -> None:
    attrs = {"axis": 5} if op == "Flatten" else {}
    inputs = "x w" if op == "Conv" else "x"
    m = model([node(op, inputs, "y", **attrs)], {"x": [2, 3, 4]}, ["y"])
    with pytest.raises(ModelError, match=reason):
        load_proto(m)


def test_training_mode_is_refused() -> None:
    m = model(
        [node("Dropout", "x r t", "y")],
        {"x": [2]},
        ["y"],
        {"r": np.float32(0.5), "t": np.bool_(True)},
    )
    with pytest.raises(ModelError, match="training mode"):
        load_proto(m)


def test_unproduced_values() -> None:
    with pytest.raises(ModelError, match="reads 'ghost'"):
        load_proto(model([node("Relu", "ghost", "y")], {"x": [2]}, ["y"]))
    with pytest.raises(ModelError, match="nothing computes output 'z'"):
        load_proto(model([node("Relu", "x", "y")], {"x": [2]}, ["z"]))


def test_constant_nodes_are_weights() -> None:
    weight = numpy_helper.from_array(floats(4, 3, 3, 3))
    nodes = [node("Constant", "", "w", value=weight), node("Conv", "x w", "y")]
    graph = load_proto(model(nodes, {"x": [1, 3, 5, 5]}, ["y"]))
    assert ops(graph) == ["Conv"] and graph.nodes[0].inputs[1] in graph.constants


def test_sparse_initializers() -> None:
    dense = np.zeros((3, 4), np.float32)
    dense[1, 2], dense[2, 0] = 5, -2
    values = numpy_helper.from_array(np.array([5, -2], np.float32), "w")
    for index in (np.array([6, 8]), np.array([[1, 2], [2, 0]])):
        m = model([node("MatMul", "x w", "y")], {"x": [2, 3]}, ["y"])
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(index, "i"), [3, 4])
        m.graph.sparse_initializer.append(sparse)
        x = floats(2, 3)
        np.testing.assert_allclose(run_one(load_proto(m), x=x), x @ dense, rtol=1e-6)


def test_initialisers_listed_as_inputs_are_constants() -> None:
    graph = load_model(CASES / "G1-21.onnx")
    assert graph.inputs == ("x",) and "BatchNormalization" not in ops(graph)
    assert "Mul" not in ops(graph)


# functions and branches -------------------------------------------------------------------------
def test_local_functions_are_expanded() -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "a"], ["out"]),
    ]
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1)
    body[0].attribute.append(reference)
    imports = [helper.make_opsetid("", 21)]
    function = helper.make_function("local", "Bent", ["a"], ["out"], body, imports, ["slope"])
    nodes = [
        node("Bent", "x", "h", domain="local", slope=0.5),
        node("Bent", "h", "y", domain="local", slope=0.25),
    ]
    m = model(nodes, {"x": [7]}, ["y"], imports=[helper.make_opsetid("local", 1)])
    m.functions.append(function)
    graph = load_proto(m)
    assert ops(graph) == ["LeakyRelu", "Add"] * 2
    assert [n.attrs["alpha"] for n in graph.nodes if n.op == "LeakyRelu"] == [0.5, 0.25]
    x = floats(7)
    h = np.where(x < 0, 0.5 * x, x) + x
    np.testing.assert_allclose(run_one(graph, x=x), np.where(h < 0, h / 4, h) + h, rtol=1e-6)


def test_standard_functions_are_expanded() -> None:
    nodes = [node("Gelu", "x", "g"), node("Mish", "g", "y")]
    graph = load_proto(model(nodes, {"x": [2, 9]}, ["y"], opset=22))
    assert sorted(ops(graph)) == ["Gelu", "Mul", "Softplus", "Tanh"]


def test_constant_condition_takes_one_branch() -> None:
    branches = {}
    for key, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        info = [onnx.ValueInfoProto(name="r")]
        branches[key] = helper.make_graph([node(op, "x", "r")], key, [], info)
    nodes = [node("Not", "no", "yes"), node("If", "yes", "y", **branches)]
    graph = load_proto(model(nodes, {"x": [3]}, ["y"], {"no": np.bool_(False)}))
    assert ops(graph) == ["Relu"] and graph.outputs == ("y",)


def branches(then: list[onnx.NodeProto], other: list[onnx.NodeProto]) -> onnx.NodeProto:
    sides = [
        helper.make_graph(nodes, key, [], [onnx.ValueInfoProto(name="r")])
        for key, nodes in (("then", then), ("else", other))
    ]
    return node("If", "c", "y", name="choice", then_branch=sides[0], else_branch=sides[1])


def test_computed_condition_selects_between_both_branches() -> None:
    choice = branches([node("Relu", "x", "h"), node("Neg", "h", "r")], [node("Exp", "x", "r")])
    m = model([choice], {"x": [3]}, ["y"])
    m.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, [1]))
    graph = load_proto(m)
    x = floats(3)
    for flag, want in ((True, -np.maximum(x, 0)), (False, np.exp(x))):
        np.testing.assert_allclose(run_one(graph, x=x, c=np.array([flag])), want, rtol=1e-6)


def test_branches_of_other_shapes_need_a_constant_condition() -> None:
    choice = branches([node("ReduceSum", "x", "r")], [node("Exp", "x", "r")])
    m = model([choice], {"x": [3]}, ["y"])
    m.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    with pytest.raises(ModelError, match=r"node 'choice' \(ai.onnx::If, opset 21\).*other shapes"):
        load_proto(m)


def test_a_branch_that_cannot_be_imported_is_named() -> None:
    choice = branches([node("Exp", "x", "r")], [node("NonZero", "x", "r")])
    m = model([choice], {"x": [3]}, ["y"])
    m.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    with pytest.raises(ModelError, match=r"node 'choice'.*else_branch .*NonZero inside it"):
        load_proto(m)


# names ------------------------------------------------------------------------------------------
def test_node_names_are_unique() -> None:
    graph = load_model(CASES / "G1-43.onnx")
    names = [n.name for n in graph.nodes]
    assert all(names) and len(set(names)) == len(names)


def test_outputs_keep_their_names() -> None:
    nodes = [
        node("Relu", "x", "h"),
        node("Identity", "h", "a"),
        node("Dropout", "h", "b"),
        node("Identity", "c", "k"),
        node("Identity", "k", "k2"),
    ]
    m = model(nodes, {"x": [3]}, ["a", "b", "h", "k", "k2", "x"], {"c": np.float32([1, 2])})
    graph = load_proto(m)
    assert graph.outputs == ("a", "b", "h", "k", "k2", "x")
    x = floats(3)
    got = run_graph(graph, {"x": x})
    for name in "abh":
        np.testing.assert_array_equal(got[name], np.maximum(x, 0))
    np.testing.assert_array_equal(got["k2"], [1, 2])
    np.testing.assert_array_equal(got["x"], x)


# types ------------------------------------------------------------------------------------------
def test_half_precision_is_computed_in_float32() -> None:
    nodes = [
        node("MatMul", "x w", "h"),
        node("Cast", "h", "wide", to=TensorProto.FLOAT),
        node("Cast", "wide", "narrow", to=TensorProto.FLOAT16),
        node("Relu", "narrow", "y"),
    ]
    m = model(
        nodes, {"x": [2, 8]}, [], {"w": floats(8, 3).astype(np.float16)}, dtype=TensorProto.FLOAT16
    )
    m.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT16, [2, 3]))
    graph = load_proto(m)
    assert ops(graph) == ["Cast", "MatMul", "Relu", "Cast"]
    assert graph.values["x"].dtype == graph.values["y"].dtype == "float16"
    x = floats(2, 8).astype(np.float16)
    want = np.maximum(x.astype(np.float32) @ graph.constants[graph.nodes[1].inputs[1]], 0)
    got = run_one(graph, x=x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


# constants --------------------------------------------------------------------------------------
def test_huge_constants_are_not_made() -> None:
    """A filled tensor of 4 TB stays an Expand of one number."""
    nodes = [node("ConstantOfShape", "s", "big"), node("ReduceMax", "big", "m", keepdims=0)]
    nodes.append(node("Add", "x m", "y"))
    graph = load_proto(model(nodes, {"x": [2]}, ["y"], {"s": np.array([1 << 20, 1 << 20])}))
    assert ops(graph)[0] == "Expand"
    assert sum(c.nbytes for c in graph.constants.values()) < 1000


# external data ----------------------------------------------------------------------------------
def test_missing_external_data(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes((CASES / "G1-31.onnx").read_bytes())
    with pytest.raises(ModelError, match=r"external data of tensor 'w' .*part0\.bin"):
        load_model(tmp_path / "m.onnx")
    (tmp_path / "G1-31_weights").mkdir()
    (tmp_path / "G1-31_weights" / "part0.bin").write_bytes(b"short")
    with pytest.raises(ModelError, match=r"external data of tensor 'w' is incomplete.*part0\.bin"):
        load_model(tmp_path / "m.onnx")


def test_external_data_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is the model's, not the working directory; paths out of it are refused."""
    monkeypatch.chdir(tmp_path)
    assert ops(load_model(CASES / "G1-31.onnx")) == ["MatMul", "Add"]
    m = onnx.load(CASES / "G1-31.onnx", load_external_data=False)
    for tensor in m.graph.initializer:
        tensor.external_data[0].value = "../outside.bin"
    (tmp_path / "inner").mkdir()
    (tmp_path / "outside.bin").write_bytes(b"\0" * 8192)
    with pytest.raises(ModelError, match="inside the model's folder"):
        load_proto(m, tmp_path / "inner")


def test_external_data_behind_a_link(tmp_path: Path) -> None:
    """Download caches keep both files elsewhere and link to them."""
    (tmp_path / "blob").write_bytes((CASES / "G1-31_weights" / "part0.bin").read_bytes())
    folder = tmp_path / "snapshot" / "G1-31_weights"
    folder.mkdir(parents=True)
    (folder / "part0.bin").symlink_to(tmp_path / "blob")
    (tmp_path / "snapshot" / "m.onnx").symlink_to(CASES / "G1-31.onnx")
    assert ops(load_model(tmp_path / "snapshot" / "m.onnx")) == ["MatMul", "Add"]


def test_more_than_two_gib_are_mapped_not_read(tmp_path: Path) -> None:
    """2.25 GiB in a sparse file (G1-32); no message of the whole model is made."""
    rows, columns = 589824, 1024
    with (tmp_path / "big.bin").open("wb") as file:
        file.truncate(rows * columns * 4)
        file.seek((rows - 1) * columns * 4)
        file.write(np.float32(3).tobytes())
    m = model([node("Gather", "w i", "y")], {"i": [2]}, ["y"], dtype=TensorProto.INT64)
    weight = TensorProto(name="w", data_type=1, dims=[rows, columns], data_location=1)
    weight.external_data.add(key="location", value="big.bin")
    m.graph.initializer.append(weight)
    onnx.save(m, tmp_path / "big.onnx")
    graph = load_model(tmp_path / "big.onnx")
    array = graph.constants[graph.nodes[0].inputs[0]]
    assert isinstance(array, np.memmap) and array.nbytes > 2 << 30
    got = run_one(graph, i=np.array([0, rows - 1]))
    assert not got[0].any() and got[1, 0] == 3 and not got[1, 1:].any()
