"""Names and paths of models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelError
from engine.target import host
from engine.zoo import build
from tasks.finding import find_models, network_names
from tasks.networks import (
    check_model,
    distinct_names,
    graph_hash,
    load_graph,
    load_network,
    merge_tasks,
)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "perceptron.onnx"
    path.write_bytes(build("mlp").SerializeToString())
    return path


def test_names_and_paths_load(model_file: Path) -> None:
    builtin, file = load_graph("mlp"), load_graph(str(model_file))
    assert builtin.name == "mlp" and file.name == "perceptron"
    assert graph_hash(builtin) == graph_hash(file)


def test_hash_sees_weights_and_shapes() -> None:
    graph = load_graph("mlp")
    name = next(n for n, a in graph.constants.items() if a.size > 10)
    changed = {**graph.constants, name: graph.constants[name] + np.float32(1)}
    assert graph_hash(graph) != graph_hash(replace(graph, constants=changed))
    assert graph_hash(graph) != graph_hash(load_graph("mlp", batch=2))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("resnet18", "Did you mean 'resnet-18'"),
        ("nosuch.onnx", "no such file"),
        (".", "folder"),
        ("zzz", "neither a file nor a built-in network"),
    ],
)
def test_what_is_no_model(text: str, hint: str) -> None:
    with pytest.raises(ModelError, match=hint):
        check_model(text)


def test_options_that_a_model_does_not_take(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(build("mlp").SerializeToString())
    check_model("mlp", batch=4)
    check_model(str(path), {"input": (4, 784)})
    with pytest.raises(ModelError, match="--batch N"):
        check_model("mlp", {"input": (4, 784)})
    with pytest.raises(ModelError, match="--shape"):
        check_model(str(path), batch=4)


def test_shared_tasks_are_merged() -> None:
    target = host()
    one, two = load_network("mlp", target), load_network("mlp", target, batch=2)
    assert two.name == "mlp-b2"
    alone = merge_tasks([one], 1)
    both = merge_tasks([one, one], 1)
    assert [t.key for t in both] == [t.key for t in alone]
    assert [t.weight for t in both] == [2 * t.weight for t in alone]
    assert len(merge_tasks([one, two], 1)) == 2 * len(alone)


def test_two_networks_of_one_name_are_refused(model_file: Path) -> None:
    network = load_network(str(model_file), host())
    with pytest.raises(ModelError, match="two networks are named 'perceptron'"):
        distinct_names([network, network])


def test_folders_and_globs(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx", "sub/c.onnx", "readme.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    folder = find_models([str(tmp_path)])
    assert [Path(p).name for p in folder] == ["a.onnx", "b.onnx", "c.onnx"]
    assert find_models([f"{tmp_path}/*.onnx", str(tmp_path / "a.onnx"), "mlp"]) == (
        str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"), "mlp",
    )  # fmt: skip
    with pytest.raises(ModelError, match="no models are found"):
        find_models([f"{tmp_path}/*.pb"])


def test_globs_give_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.onnx", "noctune.sqlite", "sub/c.onnx", "sub/c.net", "other.pb"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("x")
    assert find_models(["**"]) == ("a.onnx", "sub/c.onnx")
    assert find_models(["other.pb", "./a.onnx", "a.onnx"]) == ("other.pb", "./a.onnx")
    for text in ("", " "):
        with pytest.raises(ModelError, match="an empty name is no model"):
            find_models(["a.onnx", text])


def test_folders_tell_files_of_one_name_apart() -> None:
    assert network_names(["a/model.onnx", "b/model.onnx", "c/net.onnx", "mlp"]) == {
        "a/model.onnx": "a-model", "b/model.onnx": "b-model", "c/net.onnx": "net", "mlp": "mlp",
    }  # fmt: skip
    deep = network_names(["x/a/m.onnx", "y/a/m.onnx", "b/m.onnx"])
    assert list(deep.values()) == ["x-a-m", "y-a-m", "b-m"]
    assert network_names(["sub/mlp.onnx", "mlp"]) == {"sub/mlp.onnx": "sub-mlp", "mlp": "mlp"}
    assert network_names(["squeezenet_v1.1"]) == {"squeezenet_v1.1": "squeezenet_v1.1"}
