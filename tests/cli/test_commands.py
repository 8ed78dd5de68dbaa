"""What the quick commands print and write."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from db.store import open_store
from engine.records import MeasureRecord, RecordScope, Schedule
from engine.target import host
from flows import environment
from flows.commands.run import write_arrays
from flows.options import add_network, network_words
from tests.cli.conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]

ROOT = Path(__file__).resolve().parents[2]

TASK_KEYS = [
    "id", "workload_key", "weight", "anchor", "data_shape", "weight_shape", "strides", "pads",
    "epilogue", "output_shape", "flops",
]  # fmt: skip


def test_zoo_list(run: Run) -> None:
    found = run("zoo", "--json")
    names = [n["name"] for n in found.json]
    assert {"resnet-18", "resnet-50", "bert-base", "mlp"} <= set(names)
    text = run("zoo").out
    assert all(name in text for name in names)


def test_zoo_writes_onnx(run: Run, tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "net.onnx"
    assert run("zoo", "mlp", "-o", path, "--batch", "3").code == 0
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


def test_tasks_json(run: Run) -> None:
    found = run("tasks", "mlp", "--json").json
    assert [list(t) for t in found] == [TASK_KEYS] * len(found)
    assert [t["id"] for t in found] == list(range(len(found)))
    assert found[0]["anchor"] == "dense" and found[0]["flops"] == 2 * 784 * 512


def test_tasks_text_and_dag(run: Run) -> None:
    assert "3 search tasks, 3 occurrences" in run("tasks", "mlp").out
    dag = run("tasks", "mlp", "--dag").out
    assert "PLACEHOLDER [1, 784]" in dag and "+=" in dag


def test_space(run: Run) -> None:
    found = run("space", "mlp", "--task", "0", "--json").json
    assert found and all(entry["id"] == 0 and entry["size"] >= 1 for entry in found)
    assert all(entry["knobs"] for entry in found)
    assert "knob" in run("space", "mlp", "--task", "0").out


def test_compile_without_records_says_so(run: Run, tmp_path: Path) -> None:
    out, db = tmp_path / "mlp.net", tmp_path / "db.sqlite"
    found = run("compile", "mlp", "-o", out, "--db", db)
    assert found.code == 0 and out.is_file()
    assert "0 of 3 search tasks from records" in found.out
    assert found.out.count("no record, default schedule") == 3
    assert "Outputs agree with" in found.out
    assert f"There is no database '{db}'" in found.out and not db.exists()


def test_compile_json(run: Run, tmp_path: Path) -> None:
    result = run("compile", "mlp", "-o", tmp_path / "x.net", "--db", tmp_path / "d", "--json")
    found = result.json
    assert result.err == "", "Prefect says nothing"
    assert found["network"] == "mlp" and found["tuned"] == 0 and len(found["untuned"]) == 3
    assert found["verification"]["ok"] and found["verification"]["max_rel_error"] < 1e-3


def test_compile_writes_nothing_if_the_outputs_are_wrong(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasks.building

    bad = {"ok": False, "max_rel_error": 0.5, "max_abs_error": 1.0, "reference": "the reference"}
    monkeypatch.setattr(tasks.building, "verify", lambda *a, **k: bad)
    found = run("compile", "mlp", "-o", tmp_path / "mlp.net", "--db", tmp_path / "db.sqlite")
    assert found.code == 2 and "other outputs than the model" in found.err
    assert not list(tmp_path.glob("*.net*"))


def test_run_computes_what_the_model_does(run: Run, compiled: Path, tmp_path: Path) -> None:
    from engine.graph.host import run_graph
    from tasks.networks import load_graph

    x = np.random.default_rng(0).standard_normal((1, 784)).astype(np.float32)
    np.savez(tmp_path / "in.npz", input=x)
    found = run("run", compiled, "--input", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert found.code == 0
    want = run_graph(load_graph("mlp"), {"input": x})
    with np.load(tmp_path / "out.npz") as got:
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"input": np.zeros((1, 783), np.float32)}, "Give float32[1, 784]"),
        ({"input": np.zeros((1, 784), np.float64)}, "float64"),
        ({"other": np.zeros((1, 784), np.float32)}, "input 'input'"),
        ({}, "input 'input' is missing"),
    ],
)
def test_run_refuses_wrong_arrays(
    run: Run, compiled: Path, tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    found = run("run", compiled, "--input", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert found.code == 2 and message in found.err
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04cut"])
def test_run_refuses_files_that_hold_no_arrays(
    run: Run, compiled: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    found = run("run", compiled, "--input", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert found.code == 2 and "not an .npz file" in found.err


def test_run_refuses_a_single_array(run: Run, compiled: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 784), np.float32))
    found = run("run", compiled, "--input", tmp_path / "in.npy", "-o", tmp_path / "out.npz")
    assert found.code == 2 and "single array" in found.err


@pytest.mark.parametrize(("offset", "value"), [(10, 99), (8, 1)])  # unknown method, encrypted
def test_run_refuses_members_that_it_cannot_read(
    run: Run, compiled: Path, tmp_path: Path, offset: int, value: int
) -> None:
    np.savez(tmp_path / "in.npz", input=np.zeros((1, 784), np.float32))
    content = bytearray((tmp_path / "in.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + offset] = value
    (tmp_path / "in.npz").write_bytes(content)
    found = run("run", compiled, "--input", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert found.code == 2 and "not an .npz file" in found.err


def test_arrays_of_any_name_are_written(tmp_path: Path) -> None:
    arrays = {name: np.arange(3.0) for name in ("file", "allow_pickle", "a/b", "ü 'x'")}
    write_arrays(tmp_path / "out.npz", arrays)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        assert set(found.files) == set(arrays)
        assert all((found[name] == array).all() for name, array in arrays.items())


def test_profile(run: Run, compiled: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    found = run("profile", compiled, "--repeat", "2", "--threads", "1", "--trace", trace, "--json")
    layers = found.json["layers"]
    products = [row for row in layers if row["kind"] == "dense"]
    assert products and all(row["memory_share"] > 0 < row["peak_share"] for row in products)
    assert found.json["total_ms"] == pytest.approx(sum(row["ms"] for row in layers))
    events = json.loads(trace.read_text())["traceEvents"]
    assert [e["name"] for e in events] == [row["name"] for row in layers]
    text = run("profile", compiled, "--repeat", "2").out
    assert "% peak" in text and "% memory" in text and "Sum of layers" in text


@pytest.mark.parametrize("cut", [0, 10, 1000])
def test_damaged_networks_are_refused(run: Run, compiled: Path, tmp_path: Path, cut: int) -> None:
    (tmp_path / "cut.net").write_bytes(compiled.read_bytes()[:cut])
    found = run("bench", tmp_path / "cut.net")
    assert found.code == 2 and "cut.net" in found.err


def test_bench_json(run: Run, compiled: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = run(
        "bench", compiled, "--model", "mlp", "--against", "onnxruntime", "--repeat", "2",
        "--min-repeat-ms", "5", "--threads", "1", "--json",
    ).json  # fmt: skip
    assert list(found) == [
        "network", "threads", "noctune", "peers", "ratio", "estimated_ms", "max_abs_error",
        "max_rel_error",
    ]  # fmt: skip
    assert list(found["noctune"]) == ["median_ms", "min_ms", "mean_ms", "std_ms"]
    assert list(found["peers"]["onnxruntime"]) == ["median_ms", "min_ms"]
    mine, peer = found["noctune"]["median_ms"], found["peers"]["onnxruntime"]["median_ms"]
    assert found["ratio"]["onnxruntime"] == pytest.approx(peer / mine)
    assert found["threads"] == 1 and found["estimated_ms"] is None
    assert 0 <= found["max_rel_error"] < 1e-3


def flow_runs() -> list[str]:
    """Names of the flow runs that the server knows."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return [run.name for run in client.read_flow_runs(limit=200)]


def test_commands_run_their_flows(run: Run, compiled: Path, database: Path, tmp_path: Path) -> None:
    net = tmp_path / "renamed.net"
    assert run("compile", "mlp", "-o", net, "--db", tmp_path / "db.sqlite").code == 0
    assert run("bench", net, "--min-repeat-ms", "1", "--json").code == 0
    before = flow_runs()
    assert "compile mlp" in before and "evaluate renamed.net" in before
    assert run("distill", "--db", database).code == 0
    assert flow_runs().count("distill records") == before.count("distill records") + 1


def test_every_line_is_json_if_wanted(tmp_path: Path) -> None:
    words = ("tune", "mlp", "--trials", "4", "--threads", "1", "--log-json", "--verbose")
    quiet = (environment.CONSOLE, environment.INTERNAL)
    unset = {name: value for name, value in os.environ.items() if name not in quiet}
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words], cwd=tmp_path, capture_output=True, text=True,
        env=unset | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = map(json.loads, done.stdout.splitlines())
    assert result["trials"] == 4
    log = [json.loads(line) for line in done.stderr.splitlines()]
    assert all({"created", "levelname", "name", "msg"} <= line.keys() for line in log)
    assert any(line.get("round") == 0 for line in log)
    assert {"noctune", "prefect.flow_runs"} <= {line["name"] for line in log}


def test_bench_notes_the_timing_where_it_is_told_to(run: Run, tmp_path: Path) -> None:
    net, db = tmp_path / "mlp.net", tmp_path / "db.sqlite"
    open_store(str(db)).close()
    assert run("compile", "mlp", "-o", net, "--db", db).code == 0
    found = run("bench", net, "--min-repeat-ms", "1", "--db", db, "--json").json
    with open_store(str(db)) as store:
        (noted,) = store.evaluations()
    assert noted.network == "mlp" and noted.data["noctune"] == found["noctune"]


def other_model(path: Path, columns: int = 784) -> Path:
    """`mlp` with other weights, or with other inputs."""
    import onnx
    from onnx import numpy_helper

    from engine.zoo import build

    model = build("mlp")
    for weight in model.graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.ndim == 2 and 784 in array.shape:
            shape = tuple(columns if n == 784 else n for n in array.shape)
            weight.CopyFrom(numpy_helper.from_array(np.ones(shape, np.float32), weight.name))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = columns
    onnx.save(model, path)
    return path


def test_bench_of_a_wrong_network_is_code_1(run: Run, compiled: Path, tmp_path: Path) -> None:
    model = other_model(tmp_path / "other.onnx")
    found = run("bench", compiled, "--model", model, "--min-repeat-ms", "1", "--json")
    assert found.code == 1 and "the outputs differ from" in found.err
    assert found.json["network"] == "mlp"


def test_bench_against_a_model_of_other_inputs(run: Run, compiled: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = other_model(tmp_path / "wide.onnx", 100)
    found = run("bench", compiled, "--model", model, "--min-repeat-ms", "1")
    assert found.code == 2 and found.out == ""
    assert "cannot run the model on the network's inputs" in found.err


def test_bench_alone_and_without_model(run: Run, compiled: Path) -> None:
    found = run("bench", compiled, "--min-repeat-ms", "1", "--json").json
    assert found["peers"] == {} == found["ratio"] and found["max_abs_error"] is None
    refused = run("bench", compiled, "--against", "onnxruntime")
    assert refused.code == 2 and "--model" in refused.err


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Forty trials of one workload."""
    scope = RecordScope(host().key, 1)
    path = tmp_path / "trials.sqlite"
    records = [
        MeasureRecord("[workload]", scope, Schedule("direct.tiled", {"a": i}), (0.001 * (i + 1),),
                      run_id="r", created=1.0 + i)
        for i in range(40)
    ]  # fmt: skip
    with open_store(str(path)) as store:
        store.add_records(records)
    return path


def test_records_commands(run: Run, database: Path, tmp_path: Path) -> None:
    best = run("records", "best", "--db", database, "--json").json
    assert [min(r["times"]) for r in best] == [0.001]
    listed = run("records", "list", "--db", database, "--limit", "3", "--json").json
    assert [r["schedule"]["knobs"]["a"] for r in listed] == [39, 38, 37]
    assert run("records", "list", "--db", database, "--errors", "--json").json == []
    stats = run("records", "stats", "--db", database, "--json").json
    assert stats["records"] == stats["valid"] == 40
    assert len(run("records", "runs", "--db", database, "--json").json) == 1
    for action in ("best", "list", "stats", "runs"):
        assert run("records", action, "--db", database).code == 0


def test_export_and_import(run: Run, database: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "all.jsonl", tmp_path / "other.sqlite"
    assert run("records", "export", file, "--db", database).code == 0
    first = run("records", "import", file, "--db", other, "--json").json
    again = run("records", "import", file, "--db", other, "--json").json
    assert (first[0]["new"], again[0]["new"], again[0]["known"]) == (40, 0, 40)
    same = run("records", "diff", database, "--db", other, "--json").json
    assert (same["only_here"], same["only_there"], same["both"]) == (0, 0, 40)


def test_distill_keeps_the_best(run: Run, database: Path, tmp_path: Path) -> None:
    out = tmp_path / "best.jsonl"
    found = run(
        "distill", "--db", database, "--keep", "2", "--spread", "5", "-o", out, "--json"
    ).json
    assert (found["kept"], found["removed"]) == (7, 33)
    assert Path(found["archive"]).is_file() and out.is_file()
    best = run("records", "best", "--db", database, "--json").json
    assert [min(r["times"]) for r in best] == [0.001]


def test_prune(run: Run, database: Path) -> None:
    assert run("records", "prune", "--db", database).code == 2
    found = run("records", "prune", "--db", database, "--older", "1d", "--json").json
    assert (found["kept"], found["removed"]) == (1, 39)


def test_the_next_command_takes_the_same_networks() -> None:
    parser = argparse.ArgumentParser()
    add_network(parser)
    typed = ["--shape", "x=1,3,8,8", "--db", "a b.db", "--target", "avx2", "--batch", "2"]
    args = parser.parse_args([*typed, "--threads", "7", "--accuracy", "strict"])
    assert parser.parse_args(network_words(args)) == args
    assert network_words(parser.parse_args([])) == []
