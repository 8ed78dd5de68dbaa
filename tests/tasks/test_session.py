"""Tuning sessions without Prefect: what a kill leaves, what a resumed run does with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from db.store import open_store
from engine.errors import ModelError
from engine.records import TimingMode
from tasks.session import SessionOptions, TuningSession

ROOT = Path(__file__).resolve().parents[2]

TUNER = """
import sys
from tasks.session import SessionOptions, TuningSession
with TuningSession(SessionOptions(sys.argv[1], threads=1)) as session:
    session.load("mlp")
    session.prepare()
    print("PIDS", *session._measurer.pids, flush=True)
    for _ in range(int(sys.argv[2])):
        outcome = session.run_round(session.choose(), 4)
        print("ROUND", outcome.round_index, outcome.trials, flush=True)
"""


def start(db: Path, rounds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TUNER, str(db), str(rounds)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_killed_run_loses_no_round_and_repeats_none(tmp_path: Path) -> None:
    """G4-01: kill -9 in the middle of a round, then the same again."""
    db = tmp_path / "noctune.sqlite"
    tuner = start(db, 1000)
    assert tuner.stdout is not None
    workers: list[int] = []
    done: dict[int, int] = {}
    for line in tuner.stdout:
        words = line.split()
        if words[0] == "PIDS":
            workers = [int(w) for w in words[1:]]
        else:
            done[int(words[1])] = int(words[2])
        if len(done) == 3:
            break
    os.kill(tuner.pid, signal.SIGKILL)
    rest = tuner.stdout.read()
    tuner.wait()
    tuner.stdout.close()
    done |= {int(w[1]): int(w[2]) for w in map(str.split, rest.splitlines())}
    with open_store(str(db)) as store:
        kept = Counter(r.round_index for r in store.iter_records())
        (run,) = store.runs()
        first = {(r.workload_key, r.schedule.key) for r in store.iter_records()}
    assert {i: n for i, n in kept.items() if i in done} == done, "each finished round is whole"
    assert len(kept) - len(done) in (0, 1)
    deadline = time.monotonic() + 30
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workers and not any(map(is_running, workers)), "no worker outlives its tuner"

    again = start(db, 2)
    printed, _ = again.communicate(timeout=300)
    assert again.returncode == 0 and printed.count("ROUND") == 2
    with open_store(str(db)) as store:
        records = list(store.iter_records())
        second = [r for r in records if r.run_id != run.run_id]
    assert len(records) == sum(kept.values()) + len(second)
    assert not first & {(r.workload_key, r.schedule.key) for r in second}


def test_rounds_continue_where_the_run_left_off(tmp_path: Path) -> None:
    """G3-06: a resumed run does not warm up again; totals and counts are restored."""
    db = str(tmp_path / "noctune.sqlite")
    with TuningSession(SessionOptions(db, threads=1, run_id="night")) as session:
        session.load("mlp")
        session.prepare()
        chosen = []
        for _ in range(3):
            choice = session.choose()
            assert choice is not None
            chosen.append(choice.index)
            session.run_round(choice, 2)
        assert sorted(chosen) == [0, 1, 2], "every task has its first round"
        before = session.rows(), session.estimates()
    with TuningSession(SessionOptions(db, threads=1, run_id="night")) as session:
        session.load("mlp")
        session.prepare()
        assert (session.rows(), session.estimates()) == before
        assert session.round_index == 3 and session.new_trials == 6
        choice = session.choose()
        assert choice is not None and "first round" not in choice.reason


def test_equal_seeds_propose_equal_rounds(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        with TuningSession(SessionOptions(str(tmp_path / name), threads=1, seed=7)) as session:
            session.load("mlp")
            session.prepare()
            choice = session.choose()
            assert choice is not None
            task = session.search_tasks[choice.index]
            found.append([p.schedule for p in session._search.propose(task, [], 8, 0)])
    assert found[0] == found[1] and len(found[0]) == 8


def test_records_carry_features_and_origin(tmp_path: Path) -> None:
    db = str(tmp_path / "noctune.sqlite")
    with TuningSession(SessionOptions(db, threads=1)) as session:
        session.load("mlp")
        session.prepare()
        choice = session.choose()
        assert choice is not None
        outcome = session.run_round(choice, 2)
        assert outcome.trials == 2 and outcome.before is None
        records = list(session.store.iter_records())
    assert {r.extra["origin"] for r in records} <= {"default", "model", "random", "similar"}
    assert all(len(r.extra["features"]) > 10 for r in records)
    assert all(r.scope.timing_mode is TimingMode.COLD_WEIGHTS for r in records)


def test_a_given_up_task_is_chosen_no_more(tmp_path: Path) -> None:
    with TuningSession(SessionOptions(str(tmp_path / "db"), threads=1)) as session:
        session.load("mlp")
        session.prepare()
        seen = set()
        while (choice := session.choose()) is not None:
            assert choice.index not in seen
            seen.add(choice.index)
            session.give_up(choice)
        assert seen == {0, 1, 2}


def test_nothing_to_tune(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "relu.onnx"
    onnx.save(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path
    )
    with TuningSession(SessionOptions(str(tmp_path / "db"), threads=1)) as session:
        session.load(str(path))
        with pytest.raises(ModelError, match="nothing to tune"):
            session.prepare()


def test_a_run_that_is_taken_up_again_knows_what_it_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its window is not given a second time."""
    db, now = str(tmp_path / "noctune.sqlite"), time.time()
    with TuningSession(SessionOptions(db, threads=1, run_id="night")) as session:
        session.load("mlp")
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: now - 1000)
            session.prepare()
        assert session.earlier == 0
        choice = session.choose()
        assert choice is not None
        outcome = session.run_round(choice, 2)
    with TuningSession(SessionOptions(db, threads=1, run_id="night")) as session:
        session.load("mlp")
        session.prepare()
        assert session.age >= 1000
        assert session.earlier == pytest.approx(outcome.seconds, abs=1.0)


def test_waiting_for_another_tuner_ends_with_the_time_or_on_request(tmp_path: Path) -> None:
    session = TuningSession(SessionOptions(str(tmp_path / "db"), threads=1))
    assert not session.give_up_waiting()
    session.too_long = lambda seconds: True
    assert session.give_up_waiting()
    session.too_long = lambda seconds: False
    session.stop.set()
    assert session.give_up_waiting()
