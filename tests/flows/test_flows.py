"""The flows end to end on tiny networks, with Prefect's server, real candidates and SQLite."""

from __future__ import annotations

import io
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import engine.measure.lock
import flows.nightly
import tasks.machine
from db.store import Store, open_store
from db.values import RunStatus
from engine.errors import ModelError, NoctuneError
from engine.measure.lock import machine_lock
from engine.records import MeasureRecord, TimingMode
from engine.runtime.network import load
from flows.budget import Window
from flows.compile import compile_network
from flows.distill import distill
from flows.evaluate import evaluate
from flows.interrupts import stoppable
from flows.nightly import nightly
from flows.parameters import (
    CompileParameters,
    DistillParameters,
    EvaluateParameters,
    NightlyParameters,
    TuneParameters,
)
from flows.progress import LineProgress, Snapshot, watching
from flows.tune import tune
from tasks.machine import night_lock
from tasks.night import NightResult, Outcome
from tasks.publishing import versions
from tasks.session import SessionOptions, TuningSession
from tests.flows.conftest import write_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model") / "Tiny_Net v1.onnx"))


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night on this machine must not keep the tests from running."""
    monkeypatch.setattr(tasks.machine, "lock_folder", lambda: tmp_path)


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "noctune.sqlite")


def test_tune_compile_evaluate_distill(model: str, db: str, tmp_path: Path) -> None:
    first = tune(TuneParameters(models=[model], trials=12, db=db, threads=1))
    assert first.trials == 12 and not first.interrupted
    assert [row["trials"] for row in first.table] and sum(r["trials"] for r in first.table) == 12
    assert first.estimates["Tiny_Net v1"]
    assert first.outlook is not None and 0 < first.outlook.gain < 1 and first.outlook.trials > 0

    again = tune(TuneParameters(models=[model], trials=4, db=db, threads=1))
    assert again.trials == 4 and sum(r["trials"] for r in again.table) == 16
    with open_store(db) as store:
        records = trials(store)
        assert len(records) == 16 == len({(r.workload_key, r.schedule.key) for r in records})
        assert all(r.extra["features"] and r.extra["origin"] for r in records)
        assert [r.status for r in store.runs()] == [RunStatus.FINISHED] * 2

    net = str(tmp_path / "tiny.net")
    built = compile_network(CompileParameters(model=model, output=net, db=db, threads=1))
    assert built.tuned == 2 and not built.untuned and built.verification["ok"]
    assert load(net)(np.zeros((1, 3, 12, 12), np.float32)).shape == (1, 8, 12, 12)

    job = EvaluateParameters(
        path=net, model=model, db=db, threads=1, repeat=2, min_repeat_ms=2, against=[]
    )
    found = evaluate(job)
    assert found.verification["ok"] and found.timing["noctune"]["median_ms"] > 0
    with open_store(db) as store:
        assert [e.network for e in store.evaluations()] == ["Tiny_Net v1"]

    before = Path(net).read_bytes()
    report = distill(DistillParameters(db=db, keep=1, spread=0))
    assert report.removed >= 14 and Path(report.archive).is_file()
    with open_store(db) as store:
        assert len(trials(store)) == 2
    compile_network(CompileParameters(model=model, output=net, db=db, threads=1))
    assert Path(net).read_bytes() == before, "distilling changes no network"


def trials(store: Store) -> list[MeasureRecord]:
    """What the rounds measured, without the selection inside the network."""
    return [r for r in store.iter_records() if r.scope.timing_mode is TimingMode.COLD_WEIGHTS]


class StopAfter(LineProgress):
    """Sets the event when so many rounds are done, as Ctrl-C would."""

    def __init__(self, event: object, rounds: int) -> None:
        super().__init__()
        self.event, self.rounds = event, rounds

    def update(self, now: Snapshot) -> None:
        if now.last is not None and now.last.round_index + 1 >= self.rounds:
            self.event.set()  # type: ignore[attr-defined]


def test_a_stop_keeps_all_records(model: str, db: str) -> None:
    said: list[str] = []
    with stoppable(said.append) as event, watching(StopAfter(event, 2)):
        found = tune(TuneParameters(models=[model], trials=1000, db=db, threads=1))
    assert found.interrupted and 0 < found.trials < 1000
    with open_store(db) as store:
        assert len(trials(store)) == found.trials
        assert store.runs()[0].status is RunStatus.CANCELLED


def test_a_retried_round_adds_no_rows(model: str, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G4-06: the third round fails once after measuring; nothing is measured or stored twice."""
    measured, commit = [], TuningSession._commit
    measure = TuningSession._measure

    def counted(self: TuningSession, *args: object) -> object:
        measured.append(self.round_index)
        return measure(self, *args)  # type: ignore[arg-type]

    def fail_once(self: TuningSession, *args: object) -> None:
        if self.round_index == 2 and measured.count(2) == 1 and "failed" not in failed:
            failed.append("failed")
            raise OSError("the disk blinked")
        commit(self, *args)  # type: ignore[arg-type]

    failed: list[str] = []
    monkeypatch.setattr(TuningSession, "_measure", counted)
    monkeypatch.setattr(TuningSession, "_commit", fail_once)
    found = tune(TuneParameters(models=[model], trials=32, db=db, threads=1))
    assert failed == ["failed"]
    assert measured == sorted(set(measured)), "each round was measured once"
    with open_store(db) as store:
        assert len(trials(store)) == found.trials == 32
        assert [r.index for r in store.rounds(found.run_id) if r.task_table] == measured


def test_a_run_that_is_taken_up_again_counts_what_it_has(model: str, db: str) -> None:
    """G4-06, as `prefect flow-run retry` does it: the same run id, the same budget."""
    job = TuneParameters(models=[model], trials=8, db=db, threads=1, run_id="night-1")
    assert tune(job).trials == 8
    longer = job.model_copy(update={"trials": 12})
    assert tune(longer).trials == 12
    with open_store(db) as store:
        assert len(trials(store)) == 12 and len(store.runs()) == 1


def test_bad_input_fails_the_flow_with_our_error(db: str, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"junk")
    with pytest.raises(ModelError):
        tune(TuneParameters(models=[str(tmp_path / "broken.onnx")], trials=4, db=db))
    with pytest.raises(NoctuneError, match="nosuch"):
        tune(TuneParameters(models=["mlp"], trials=4, db="postgresql://127.0.0.1:1/nosuch"))


def test_two_nights(model: str, db: str, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "good.onnx").write_bytes(Path(model).read_bytes())
    (models / "broken.onnx").write_bytes(b"junk")
    write_model(models / "wide.onnx", 16)
    job = NightlyParameters(
        models=[str(models)], trials=32, db=db, threads=1, folder=str(tmp_path / "out"),
        repeat=1, min_repeat_ms=2, against=[], keep_versions=2,
    )  # fmt: skip
    first = nightly(job)
    outcomes = {r.network: r.outcome for r in first.results}
    assert outcomes == {
        "broken": Outcome.FAILED, "good": Outcome.PUBLISHED, "wide": Outcome.PUBLISHED,
    }  # fmt: skip
    assert "broken" in first.failed[0].model and first.failed[0].next_step
    page = Path(first.report).read_text(encoding="utf-8")
    assert "wide" in page and "broken.onnx" in page and "<svg" in page

    second = nightly(job)
    for found in second.results:
        assert found.outcome in (
            Outcome.FAILED, Outcome.PUBLISHED, Outcome.KEPT, Outcome.UNCHANGED,
        )  # fmt: skip
    for name in ("good", "wide"):
        published = versions(tmp_path / "out", name)
        assert 1 <= len(published) <= 2 and published[-1].is_current
        load(published[-1].file)
    with open_store(db) as store:
        assert len(trials(store)) == 64
        assert any(c.published for c in store.compiled_networks("good"))


def test_a_night_does_not_start_twice(model: str, db: str, tmp_path: Path) -> None:
    """G4-03: the second run sees the lock, ends at once and says why."""
    job = NightlyParameters(models=[model], trials=8, db=db, folder=str(tmp_path / "out"))
    with night_lock(), pytest.raises(NoctuneError, match="another nightly run"):
        nightly(job)
    assert not (tmp_path / "out").exists()


def test_a_night_that_is_stopped_before_it_begins(model: str, db: str, tmp_path: Path) -> None:
    """It takes no lock, so that it has nothing to say about who holds it."""
    job = NightlyParameters(models=[model], trials=8, db=db, folder=str(tmp_path / "out"))
    with night_lock(), stoppable(print) as event:
        event.set()
        found = nightly(job)
    assert found.interrupted and not found.results and not (tmp_path / "out").exists()


def test_a_folder_that_nothing_can_be_published_in(model: str, db: str, tmp_path: Path) -> None:
    """Found before any tuning."""
    (tmp_path / "out").write_text("a file")
    job = NightlyParameters(models=[model], trials=8, db=db, folder=str(tmp_path / "out"))
    with pytest.raises(NoctuneError, match="nothing can be published in this folder"):
        nightly(job)
    assert not Path(db).exists()


def test_a_folder_that_becomes_unusable_is_named(
    model: str, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = NightlyParameters(
        models=[model], trials=4, db=db, threads=1, folder=str(tmp_path / "out"), repeat=1,
        min_repeat_ms=2, against=[],
    )  # fmt: skip
    monkeypatch.setattr(flows.nightly, "check_folder", lambda _: (tmp_path / "out").write_text(""))
    (found,) = nightly(job).results
    assert found.outcome is Outcome.FAILED and f"{tmp_path}/out/Tiny_Net v1: " in found.reason
    assert "See that the folder can be written to" in found.next_step


def test_files_of_one_name_and_names_that_are_taken(db: str, tmp_path: Path) -> None:
    for i, name in enumerate(("a/model.onnx", "b/model.onnx", "report.html.onnx")):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        write_model(tmp_path / "in" / name, 8 + 8 * i)
    job = NightlyParameters(
        models=[str(tmp_path / "in")], trials=8, db=db, threads=1, folder=str(tmp_path / "out"),
        repeat=1, min_repeat_ms=2, against=[],
    )  # fmt: skip
    found = nightly(job)
    assert {r.network: r.outcome for r in found.results} == {
        "report.html": Outcome.FAILED, "a-model": Outcome.PUBLISHED, "b-model": Outcome.PUBLISHED,
    }  # fmt: skip
    assert "Rename" in found.failed[0].next_step and (tmp_path / "out/report.html").is_file()
    assert load(tmp_path / "out/b-model/current/b-model.net").outputs[0].shape[1] == 16


def test_a_published_file_of_another_format_is_replaced(
    model: str, db: str, tmp_path: Path
) -> None:
    job = NightlyParameters(
        models=[model], trials=4, db=db, threads=1, folder=str(tmp_path / "out"), repeat=1,
        min_repeat_ms=2, against=[],
    )  # fmt: skip
    (first,) = nightly(job).results
    content = bytearray(Path(first.file).read_bytes())
    content[8:12] = (99).to_bytes(4, "little")
    Path(first.file).write_bytes(content)
    with pytest.raises(ModelError):
        load(first.file)
    (second,) = nightly(job).results
    assert second.outcome is Outcome.PUBLISHED and "cannot run beside it" in second.reason
    load(second.file)


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_night_begins_no_network_that_it_cannot_end(
    model: str, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three networks that take 40 s each two fit into what is left of the window."""
    clock, finished = Clock(), list[str]()

    def finish(_job: object, name: str, *_: object) -> NightResult:
        clock.now += 40
        finished.append(name)
        return NightResult(name, Outcome.UNCHANGED, "nothing better was found")

    monkeypatch.setattr(flows.nightly, "Window", partial(Window, clock=clock))
    monkeypatch.setattr(flows.nightly, "_finish", finish)
    paths = [str(write_model(tmp_path / f"net{i}.onnx", 8)) for i in range(3)]
    job = NightlyParameters(
        models=paths, seconds=100, trials=4, db=db, threads=1, folder=str(tmp_path / "out"),
        against=[],
    )  # fmt: skip
    said = io.StringIO()
    with watching(LineProgress(said)):
        found = nightly(job)
    assert "net2: skipped: no time left" in said.getvalue()
    assert finished == ["net0", "net1"]
    assert [r.outcome for r in found.results] == [Outcome.UNCHANGED] * 2 + [Outcome.SKIPPED]
    assert "no time left" in found.results[2].reason and found.seconds >= 80


def test_a_night_that_is_taken_up_again_has_the_rest_of_its_window(
    model: str, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt began two hours ago: of a window of one hour nothing is left."""
    now = time.time()
    job = NightlyParameters(
        models=[model], seconds=3600, db=db, threads=1, folder=str(tmp_path / "out"), against=[]
    )
    with TuningSession(SessionOptions(db, threads=1, run_id="night-1")) as session:
        session.load(model)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: now - 7200)
            session.prepare()
    monkeypatch.setattr(flows.nightly, "flow_run", SimpleNamespace(id="night-1"))
    found = nightly(job)
    assert found.trials == 0 and [r.outcome for r in found.results] == [Outcome.SKIPPED]


def test_a_run_waits_for_another_tuner_no_longer_than_its_time(
    model: str, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = str(tmp_path / "measure.lock")
    monkeypatch.setattr(engine.measure.lock, "default_path", lambda: lock)
    with machine_lock(lock, print):
        found = tune(TuneParameters(models=[model], seconds=3, db=db, threads=1))
    assert found.trials == 0 and not found.interrupted
    with open_store(db) as store:
        assert [r.status for r in store.runs()] == [RunStatus.FINISHED]
        assert list(store.iter_records()) == []


def test_fifty_rounds_on_the_temporary_server(model: str, db: str) -> None:
    """G4-04: noise in Prefect's own database fails no flow and loses no record."""
    from prefect import flow

    from tasks.session import SessionOptions
    from tasks.stages import load_network_task, prepare_task, tune_round_task

    @flow(name="fifty", persist_result=False)
    def fifty() -> int:
        with TuningSession(SessionOptions(db, threads=1)) as session:
            load_network_task(session, model, {})
            prepare_task(session)
            done = 0
            for _ in range(50):
                choice = session.choose()
                assert choice is not None
                done += tune_round_task(session, choice.index, choice.reason, 1, "round").trials
            return done

    assert fifty() == 50
    with open_store(db) as store:
        assert len(trials(store)) == 50


def test_setting_up_a_server_may_be_repeated() -> None:
    from flows.prefect_setup import set_up

    first = set_up("pool", ["zen4"], 90)
    assert len(first) == 3 and all("made" in line for line in first)
    assert all("there already" in line for line in set_up("pool", ["zen4"], 90))
    *others, automation = set_up("pool", ["zen4"], 300)
    assert all("there already" in line for line in others)
    assert automation.endswith("changed from 90 to 300 seconds")
    assert all("there already" in line for line in set_up("pool", ["zen4"], 300))


def test_a_pool_of_another_type_is_refused() -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    from flows.prefect_setup import set_up

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="docker", type="docker"))
    with pytest.raises(NoctuneError, match="of the type docker"):
        set_up("docker", [], 90)


@pytest.mark.parametrize(("pool", "queues"), [("", []), ("x/y", []), ("pool", [" "]), ("50%", [])])
def test_names_that_prefect_refuses(pool: str, queues: list[str]) -> None:
    from flows.prefect_setup import set_up

    with pytest.raises(NoctuneError, match=r"cannot be the name of a work (pool|queue)"):
        set_up(pool, queues, 90)
