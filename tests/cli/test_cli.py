"""The command line: help, errors in one line, exit codes, speed of start."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from db.store import open_store
from flows.cli import COMMANDS, command_parser
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]


def test_help_lists_every_command(run: Run) -> None:
    found = run("--help")
    assert found.code == 0
    for name in COMMANDS:
        assert f"  {name} " in found.out
    assert run().out == found.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(run: Run, name: str) -> None:
    found = run(name, "--help")
    assert found.code == 0
    assert "example:" in found.out and f"noctune {name}" in found.out
    module = import_module("flows.commands." + name.replace("-", "_"))
    assert module.__doc__ and module.EXAMPLE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_understood(name: str) -> None:
    module = import_module("flows.commands." + name.replace("-", "_"))
    words = module.EXAMPLE.split()
    words = words[words.index("noctune") + 2 :]
    command_parser(name, module).parse_args(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    """docs/usage.md names each command and each of its options."""
    text = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    assert f"noctune {name}" in text
    module = import_module("flows.commands." + name.replace("-", "_"))
    for action in command_parser(name, module)._actions:
        for option in action.option_strings:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in text, f"noctune {name} {option}"


def test_unknown_command(run: Run) -> None:
    found = run("tnue")
    assert found.code == 2 and "Did you mean 'tune'?" in found.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tasks", "resnet18"), "Did you mean 'resnet-18'"),
        (("tasks", "nosuch.onnx"), "nosuch.onnx: there is no such file"),
        (("tasks", "mlp", "--target", "avx9"), "unknown target 'avx9'"),
        (("space", "mlp", "--task", "99"), "there is no task 99"),
        (("zoo", "nosuch"), "no built-in network"),
        (("zoo", "mlp", "-o", "/nosuch/folder/mlp.onnx"), "mkdir -p /nosuch/folder"),
        (("tune", "nosuch.onnx"), "no such file"),
        (("tune", "mlp", "--db", "mysql://host/db"), "no such kind of database"),
        (("tune", "mlp", "--target", "avx9"), "unknown target 'avx9'"),
        (("compile", "mlp", "-o", "/nosuch/mlp.net"), "does not exist"),
        (("run", "nosuch.net", "--input", "x.npz", "-o", "y.npz"), "nosuch.net"),
        (("bench", "nosuch.net"), "nosuch.net"),
        (("records", "best", "--db", "nosuch.sqlite"), "there is no such database"),
        (("nightly", "mlp"), "a night needs an end"),
        (("nightly", "mlp", "--time", "1h", "--against", "tvm"), "unknown engine 'tvm'"),
        (("nightly", "nosuch/*.onnx", "--time", "1h"), "no models are found"),
        (("rollback", "nosuch"), "never published here (the folder does not exist). Name the"),
        (("rollback", "nosuch", "--list", "--folder", "."), "never published here. Name the"),
        (("nightly", ".", "--time", "1h"), "no models are found. Name ONNX files"),
        (("tune", "mlp", "--db", "/dev/null"), "no regular file"),
        (("tune", "mlp", "--db", "sqlite:///d.sqlite?mode=ro"), "a path and nothing else"),
        (("nightly", "", "--time", "1h"), "an empty name is no model"),
        (("nightly", "mlp", "--trials", "1", "--folder", ""), "has no name"),
        (("nightly", "mlp", "--trials", "1", "--folder", "/proc/x"), "nothing can be published"),
        (("nightly", "mlp", "--trials", "1", "--folder", __file__), "Not a directory"),
        (("rollback", "../pub/mlp", "--list"), "not the name of a network"),
        (("distill", "-o", "/nosuch/best.jsonl"), "does not exist"),
        (("distill", "--archive", "/nosuch/rest.jsonl"), "does not exist"),
        (("distill", "--db", "nosuch.sqlite"), "there is no such database"),
        (("compile", "mlp", "-o", "mlp.net", "--target", "avx9"), "unknown target 'avx9'"),
        (("compile", "mlp", "-o", "mlp.net", "--db", "mysql://host/db"), "no such kind"),
        (("compile", "mlp", "-o", "mlp.net", "--db", "/nosuch/x.sqlite"), "does not exist"),
        (("compile", "nosuch.onnx", "-o", "mlp.net"), "no such file"),
        (("bench", "nosuch.net", "--against", "tvm"), "unknown engine 'tvm'"),
        (("bench", "nosuch.net", "--against", "openvino"), "--model MODEL"),
        (("bench", "nosuch.net", "--model", "nosuch"), "neither a file nor"),
        (("tune", "mlp", "--db", "/nosuch/x.sqlite"), "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    run: Run, words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any server is started, too."""

    def start(_: object) -> None:
        pytest.fail("a server was started")

    monkeypatch.setattr("flows.prefect_run.prefect_server", start)
    monkeypatch.chdir(tmp_path)
    found = run(*words)
    assert found.code == 2 and found.out == ""
    assert message in found.err
    assert found.err.count("\n") == 1 and found.err.startswith("noctune: ")
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("records export --db a.sqlite a.sqlite", "would overwrite"),
        ("records export --db link link", "would overwrite"),
        ("records export --db link a.sqlite", "would overwrite"),
        ("records export --db sqlite:///a.sqlite a.sqlite", "would overwrite"),
        ("records export --db a.sqlite a.sqlite-wal", "would overwrite"),
        ("records export --db a.sqlite b.sqlite", "SQLite database"),
        ("records prune --failed --db a.sqlite --archive a.sqlite-shm", "would overwrite"),
        ("distill --db a.sqlite -o a.sqlite", "would overwrite"),
        ("distill --db a.sqlite -o b.sqlite", "SQLite database"),
        ("distill --db a.sqlite --archive new.jsonl -o new.jsonl", "would overwrite"),
        ("distill --db a.sqlite --archive link", "would overwrite"),
        ("compile mlp --db a.sqlite -o a.sqlite", "would overwrite"),
        ("compile mlp --db new.sqlite -o new.sqlite", "would overwrite"),
        ("compile s.onnx --db a.sqlite -o s.onnx", "would overwrite"),
        ("compile s.onnx --db a.sqlite -o s.data", "would overwrite"),
        ("run s.net --input in.npz -o s.net", "would overwrite"),
        ("run s.net --input in.npz -o in.npz", "would overwrite"),
        ("profile s.net --trace s.net", "would overwrite"),
        ("zoo mlp -o a.sqlite", "SQLite database"),
    ],
)
def test_no_output_overwrites_what_is_needed(
    run: Run, words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx
    from onnx.external_data_helper import convert_model_to_external_data

    from engine.zoo import build

    def start(_: object) -> None:
        pytest.fail("a server was started")

    monkeypatch.setattr("flows.prefect_run.prefect_server", start)
    monkeypatch.chdir(tmp_path)
    for name in ("a.sqlite", "b.sqlite"):
        open_store(name).close()
    Path("link").symlink_to("a.sqlite")
    model = build("mlp")
    convert_model_to_external_data(model, location="s.data")
    onnx.save(model, "s.onnx")
    for name in ("s.net", "in.npz"):
        Path(name).write_text(name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = run(*words.split())
    assert found.code == 2 and message in found.err
    assert found.err.count("\n") == 1 and found.err.startswith("noctune: ")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_rollback_says_what_is_published(run: Run, tmp_path: Path) -> None:
    from tasks.publishing import publish

    (tmp_path / "new.net").write_text("a network")
    publish(tmp_path / "out", "mine", tmp_path / "new.net", {})
    found = run("rollback", "other", "--folder", tmp_path / "out")
    assert found.code == 2 and "never published here. There are: mine." in found.err


@pytest.mark.parametrize(
    "words",
    [
        ("tune",), ("tune", "mlp", "--time", "soon"), ("tune", "mlp", "--trials", "0"),
        ("compile", "mlp"), ("bench", "x.net", "--repeat", "0"), ("tasks", "mlp", "--shape", "x"),
        ("bench", "x.net", "--min-repeat-ms", "nan"), ("records",),
        ("bench", "x.net", "--min-repeat-ms", "1e300"), ("tune", "mlp", "--time", "9" * 20 + "h"),
        ("tune", "mlp", "--seed", "-1"), ("nightly", "mlp", "--seed", "x"),
        ("nightly", "mlp", "--keep-records", "-1"), ("distill", "--spread", "-1"),
    ],
)  # fmt: skip
def test_bad_options_are_code_2(run: Run, words: tuple[str, ...]) -> None:
    found = run(*words)
    assert found.code == 2 and "error:" in found.err


@pytest.mark.parametrize("how", ["option", "variable"])
def test_errors_are_lines_of_json_where_all_is(
    run: Run, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compile", "nosuch.onnx", "-o", "x.net"]
    if how == "option":
        words.append("--log-json")
    else:
        monkeypatch.setenv("PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER", "json")
    for debug in ("", "1"):
        monkeypatch.setenv("NOCTUNE_DEBUG", debug)
        found = run(*words)
        line = json.loads(found.err)
        assert found.code == 2 and found.err.count("\n") == 1 and found.out == ""
        assert "nosuch.onnx: there is no such file" in line["msg"] and line["levelname"] == "ERROR"
        assert ("Traceback" in line["msg"]) == (debug == "1")


def test_a_fault_of_ours_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import flows.commands.zoo

    def fail(_: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(flows.commands.zoo, "run", fail)
    found = run("zoo")
    assert found.code == 1
    assert "unexpected ZeroDivisionError: oops" in found.err and "Traceback" not in found.err
    monkeypatch.setenv("NOCTUNE_DEBUG", "1")
    assert "Traceback" in run("zoo").err


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device", "out.net"), "Free some space"),
        (MemoryError(), "out of memory"),
    ],
)
def test_the_machines_faults(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    import flows.commands.zoo

    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(flows.commands.zoo, "run", fail)
    found = run("zoo")
    assert found.code == 2 and text in found.err


QUICK = """
import sys
from flows.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
slow = [name for name in ("prefect", "sqlalchemy", "lightgbm", "pydantic") if name in sys.modules]
print("SLOW", slow, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", [("--help",), ("zoo",), ("tune", "--help"), ("run", "--help")])
def test_quick_commands_import_nothing_slow(words: tuple[str, ...]) -> None:
    found = subprocess.run(
        [sys.executable, "-c", QUICK, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "SLOW []" in found.stderr


def test_run_imports_neither_prefect_nor_sql_nor_onnx(compiled: Path, tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "in.npz", input=np.zeros((1, 784), np.float32))
    script = QUICK.replace('"pydantic")', '"pydantic", "onnx", "onnxruntime")')
    words = ("run", str(compiled), "--input", "in.npz", "-o", "out.npz")
    found = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "SLOW []" in found.stderr
