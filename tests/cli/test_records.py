"""`noctune records`: what tells rows apart, what is said where there are none, bad files."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.exchange import export_store
from db.store import open_store
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode
from tests.cli.conftest import Run


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A workload that was timed in two ways."""
    path = tmp_path / "trials.sqlite"
    with open_store(str(path)) as store:
        store.register_workload("[key]", {"anchor": "dense", "data_shape": [1, 784]})
        for mode in (TimingMode.COLD_WEIGHTS, TimingMode.IN_NETWORK):
            scope = RecordScope("cpu", 2, mode, "7")
            store.add_records([MeasureRecord("[key]", scope, Schedule("s", {"a": 1}), (0.001,))])
    return path


def test_rows_of_two_timing_modes_can_be_told_apart(
    run: Run, database: Path, tmp_path: Path
) -> None:
    open_store(str(tmp_path / "empty.sqlite")).close()
    diff = ("diff", tmp_path / "empty.sqlite")
    for words in (("list",), ("best",), diff):
        header, _, *rows = run("records", *words, "--db", database).out.splitlines()[-4:]
        assert "timing" in header.split(), words
        assert ["cold_weights" in row for row in rows].count(True) == 1
        assert ["in_network" in row for row in rows].count(True) == 1
    assert "generator" in run("records", "best", "--db", database).out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("list --workload nonsense", "No records of a workload 'nonsense'. There are records of: "),
        ("list --errors", "No trial failed."),
        ("list --errors --workload [key]", "No trial of this workload failed."),
        ("best --threads 99", "No valid records for 99 threads; there are some for 2."),
    ],
)
def test_nothing_matches(run: Run, database: Path, words: str, text: str) -> None:
    found = run("records", *words.split(), "--db", database)
    assert found.code == 0 and found.out.startswith(text) and found.out.count("\n") == 1
    found = run("records", *words.split(), "--db", database, "--json")
    assert found.json == [] and found.err.startswith(text)


def test_workloads_are_found_by_key_and_by_name(run: Run, database: Path) -> None:
    name = run("records", "list", "--db", database).out.splitlines()[2].split("  ")[0]
    assert name.startswith("dense")
    for text in ("[key]", name):
        found = run("records", "list", "--workload", text, "--db", database, "--json").json
        assert [record["workload_key"] for record in found] == ["[key]"] * 2


def test_an_empty_database_says_so(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    open_store(str(path)).close()
    for action, text in (("list", "holds no records yet"), ("best", "holds no valid records yet")):
        assert text in run("records", action, "--db", path).out


@pytest.fixture
def files(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with good.jsonl, bad.jsonl and empty.jsonl."""
    with open_store(str(database)) as store:
        export_store(store, tmp_path / "good.jsonl")
    (tmp_path / "bad.jsonl").write_text("no record\n" * 509)
    (tmp_path / "empty.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_without_a_usable_line_is_code_2(run: Run, files: Path) -> None:
    found = run("records", "import", "bad.jsonl", "--db", "new.sqlite")
    assert found.code == 2 and found.err.count("\n") == 1
    assert "bad.jsonl: no line of this file is one of noctune's records" in found.err
    assert found.out.count("  line ") == 10 and found.out.endswith("  ... and 499 more\n")


def test_good_files_are_read_beside_a_bad_one(run: Run, files: Path) -> None:
    words = ("good.jsonl", "bad.jsonl", "empty.jsonl", "--db", "new.sqlite", "--json")
    found = run("records", "import", *words)
    assert found.code == 2 and [report["new"] for report in found.json] == [2, 0, 0]


def test_known_records_and_empty_files_are_fine(run: Run, files: Path) -> None:
    for _ in range(2):
        assert run("records", "import", "good.jsonl", "--db", "new.sqlite").code == 0
    assert run("records", "import", "empty.jsonl", "--db", "new.sqlite").code == 0


def test_a_missing_file_makes_no_database(run: Run, files: Path) -> None:
    assert run("records", "import", "absent.jsonl", "--db", "new.sqlite").code == 2
    assert not (files / "new.sqlite").exists()


def test_failed_trials_are_listed_with_their_reason(run: Run, database: Path) -> None:
    failed = MeasureRecord(
        "[key]", RecordScope("cpu", 2), Schedule("s", {}), (), ErrorKind.CRASH, "signal 11"
    )
    with open_store(str(database)) as store:
        store.add_records([failed])
    assert "signal 11" in run("records", "list", "--errors", "--db", database).out
