"""Each check of the campaign finds the damage that it is there for."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from benchmarks.kills import checks
from benchmarks.kills.jobs import write_network
from db.store import Store, open_store
from db.values import RoundInfo
from engine.records import MeasureRecord, RecordScope, Schedule, TimingMode
from tasks.building import compile_model
from tasks.publishing import publish

SCOPE = RecordScope("cpu", 1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "records.sqlite")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        for name in ("first", "second"):
            opened.register_network(name, "hash", {"conv-a": 1})
        yield opened


def trial(unroll: int) -> MeasureRecord:
    return MeasureRecord("conv-a", SCOPE, Schedule("tiled", {"unroll": unroll}), (1e-3,))


def add_round(store: Store, run: str, index: int, *unrolls: int) -> None:
    store.start_run(["first", "second"], SCOPE, run_id=run)
    records = [trial(unroll) for unroll in unrolls]
    info = RoundInfo(run, index, "conv-a", {}, ({"id": 0},), trials=len(records))
    store.commit_round(replace(info, valid=len(records)), records)


def execute(url: str, statement: str) -> None:
    with create_engine(f"sqlite:///{url}").begin() as connection:
        connection.execute(text(statement))


def test_a_database_that_is_not_there_yet_has_no_contents(url: str) -> None:
    database = checks.Database(url)
    assert len(database.contents()) == 0 and database.damage() == []
    assert not Path(url).exists(), "looking must not make it"


def test_a_good_database_has_no_violations(store: Store, url: str) -> None:
    add_round(store, "a", 0, 1, 2)
    before = checks.Database(url).contents()
    add_round(store, "a", 1, 3)
    after = checks.Database(url).contents()
    assert (len(before), after.trials) == (2, 3)
    assert checks.lost(before, after) == checks.inconsistent(after) == []
    assert checks.Database(url).damage() == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM measure_records WHERE id = 2",
        "UPDATE measure_records SET latency = 5 WHERE id = 2",
        "UPDATE tuning_rounds SET trials = 3",
    ],
)
def test_what_was_committed_must_stay_as_it_was(store: Store, url: str, statement: str) -> None:
    add_round(store, "a", 0, 1, 2)
    before = checks.Database(url).contents()
    execute(url, statement)
    after = checks.Database(url).contents()
    assert len(checks.lost(before, after)) == 1


def test_a_round_that_is_stored_in_part(store: Store, url: str) -> None:
    add_round(store, "a", 0, 1, 2)
    execute(url, "DELETE FROM measure_records WHERE id = 2")
    assert "says 2 trials" in checks.inconsistent(checks.Database(url).contents())[0]
    execute(url, "DELETE FROM tuning_rounds")
    assert "not there" in checks.inconsistent(checks.Database(url).contents())[0]


def test_a_trial_of_another_run_must_not_be_measured_again(store: Store, url: str) -> None:
    add_round(store, "a", 0, 1, 2)
    add_round(store, "b", 0, 2, 3)
    found = checks.inconsistent(checks.Database(url).contents())
    assert len(found) == 1 and "measured 2 times" in found[0]


def test_selection_may_time_a_workload_once_for_each_network(store: Store, url: str) -> None:
    add_round(store, "a", 0, 1)
    inside = replace(trial(1), scope=replace(SCOPE, timing_mode=TimingMode.IN_NETWORK))
    for index in (1, 2, 3):
        assert checks.inconsistent(checks.Database(url).contents()) == []
        info = RoundInfo("a", index, "conv-a", {}, (), trials=0, valid=1)
        store.commit_round(info, [inside])
    assert "measured 3 times" in checks.inconsistent(checks.Database(url).contents())[0]


def test_what_a_run_said_it_stored() -> None:
    lines = [
        "Loaded first",
        "round 0: ID 1 - -> 0.011 ms, 5 trials; total 0.1 ms, 5 trials, 4.1/s, 1s used",
        "round 1: ID 0 0.010 ms, 5 trials, 1 failed (crash); total 0.1 ms, 10 trials, 4.0/s, 2s",
    ]
    assert (checks.told(lines[:1]), checks.told(lines)) == (0, 10)


def test_left_over_files_and_held_locks(tmp_path: Path) -> None:
    lock = tmp_path / "noctune-night.lock"
    lock.write_text("process 7\n")
    assert checks.left_behind(tmp_path, 0.0) == checks.held_locks(tmp_path) == []
    (tmp_path / "noctune-measure-1").mkdir()
    assert checks.left_behind(tmp_path, 0.0) == ["temporary file left: noctune-measure-1"]
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "process 7" in checks.held_locks(tmp_path)[0]


def test_published_networks(tmp_path: Path) -> None:
    model = write_network(tmp_path / "first.onnx", (8,))
    net, folder = tmp_path / "first.net", tmp_path / "published"
    built = compile_model(str(model), str(net), db="memory:", threads=1, check=False)
    assert checks.unpublished(folder, ["first"]) and checks.half_published(folder) == []
    done = publish(folder, "first", net, {"file_hash": built.file_hash})
    assert checks.damaged_networks(folder) == checks.half_published(folder) == []
    assert checks.unpublished(folder, ["first"]) == []

    (folder / "first" / "versions" / ".0002-half").mkdir()
    assert checks.half_published(folder) == ["half-written file left: first/versions/.0002-half"]
    data = done.file.read_bytes()
    done.file.write_bytes(data[:-1])
    assert "not the one" in checks.damaged_networks(folder)[0]
    report = {"file_hash": "0"}
    (done.folder / "report.json").write_text(json.dumps(report))
    done.file.unlink()
    assert "FileNotFoundError" in checks.damaged_networks(folder)[0]
