"""The flows with their records in a real PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tasks.machine
from db.store import open_store
from db.values import RunStatus
from engine.records import TimingMode
from engine.runtime.network import load
from flows.compile import compile_network
from flows.distill import distill
from flows.evaluate import evaluate
from flows.nightly import nightly
from flows.parameters import (
    CompileParameters,
    DistillParameters,
    EvaluateParameters,
    NightlyParameters,
    TuneParameters,
)
from flows.tune import tune
from tasks.night import Outcome

if TYPE_CHECKING:
    from tests.db.postgres_server import Server

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night on this machine must not keep the tests from running."""
    monkeypatch.setattr(tasks.machine, "lock_folder", lambda: tmp_path)


@pytest.fixture
def url(postgres: Server) -> str:
    """An empty database."""
    return postgres.new_database()


def test_tune_compile_evaluate_distill(url: str, tmp_path: Path) -> None:
    first = tune(TuneParameters(models=["mlp"], trials=12, db=url, threads=1))
    again = tune(TuneParameters(models=["mlp"], trials=6, db=url, threads=1))
    assert (first.trials, again.trials) == (12, 6)
    assert again.estimates["mlp"] and sum(row["trials"] for row in again.table) == 18
    with open_store(url) as store:
        records = [
            r for r in store.iter_records() if r.scope.timing_mode is not TimingMode.IN_NETWORK
        ]
        assert len(records) == 18 == len({(r.workload_key, r.schedule.key) for r in records})
        assert [r.status for r in store.runs()] == [RunStatus.FINISHED] * 2

    net = str(tmp_path / "mlp.net")
    job = CompileParameters(model="mlp", output=net, db=url, threads=1)
    built = compile_network(job)
    assert built.tuned == 3 and built.verification["ok"]
    found = evaluate(
        EvaluateParameters(
            path=net, model="mlp", db=url, threads=1, repeat=1, min_repeat_ms=2, against=[]
        )
    )
    assert found.verification["ok"]
    with open_store(url) as store:
        assert [e.network for e in store.evaluations()] == ["mlp"]

    before = Path(net).read_bytes()
    archive = str(tmp_path / "rest.jsonl")
    report = distill(DistillParameters(db=url, keep=1, spread=0, archive=archive))
    assert report.removed > 0 and report.archive == archive and Path(archive).is_file()
    compile_network(job)
    assert Path(net).read_bytes() == before, "distilling changes no network"


def test_a_night(url: str, tmp_path: Path) -> None:
    job = NightlyParameters(
        models=["mlp"], trials=12, db=url, threads=1, folder=str(tmp_path / "out"), repeat=1,
        min_repeat_ms=2, against=[],
    )  # fmt: skip
    report = nightly(job)
    (result,) = report.results
    assert result.outcome is Outcome.PUBLISHED and report.trials == 12
    load(result.file)
    with open_store(url) as store:
        assert [c.published is not None for c in store.compiled_networks("mlp")] == [True]
        modes = [r.scope.timing_mode for r in store.iter_records()]
        assert sum(mode is not TimingMode.IN_NETWORK for mode in modes) == 12


def test_two_machines_at_once(url: str, tmp_path: Path) -> None:
    """Each has a measuring lock of its own; their records meet in one database."""
    command = [sys.executable, "-m", "flows.cli", "tune", "mlp", "--trials", "12"]
    commands = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        started = subprocess.Popen(
            [*command, "--db", url, "--threads", "1", "--json"], cwd=ROOT, text=True,
            env={**os.environ, "TMPDIR": str(tmp_path / name)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        commands.append(started)
    ends = [command.communicate(timeout=300) for command in commands]
    assert [c.returncode for c in commands] == [0, 0], ends
    with open_store(url) as store:
        runs = store.runs()
        assert [r.status for r in runs] == [RunStatus.FINISHED] * 2
        records = [
            r for r in store.iter_records() if r.scope.timing_mode is not TimingMode.IN_NETWORK
        ]
        assert Counter(r.run_id for r in records) == {r.run_id: 12 for r in runs}
        assert len({r.scope for r in records}) == 1
    again = tune(TuneParameters(models=["mlp"], trials=6, db=url, threads=1))
    assert sum(row["trials"] for row in again.table) == 30, "the next run knows both"
