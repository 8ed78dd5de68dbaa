"""The selection inside the network: within its time, stored once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import engine.measure.lock
import tasks.selection
from db.values import RoundInfo
from engine.measure.lock import machine_lock
from engine.records import MeasureRecord, Schedule, TimingMode
from tasks.selection import best_schedules, select_in_network, selection_seconds
from tasks.session import SessionOptions, TuningSession


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tests wait for no other tuner."""
    path = str(tmp_path / "measure.lock")
    monkeypatch.setattr(engine.measure.lock, "default_path", lambda: path)
    return path


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def session(tmp_path: Path, said: list[str]) -> Iterator[TuningSession]:
    """A session on `mlp` with the two fastest schedules that its first sketch gave each task."""
    with TuningSession(SessionOptions(str(tmp_path / "db"), threads=1), said.append) as opened:
        opened.load("mlp")
        opened.prepare()
        for index, task in enumerate(opened.search_tasks):
            proposals = opened._search.propose(task, [], 4, index)
            records = [
                MeasureRecord(task.key, opened.scope, p.schedule, (1e-3 * (i + 1),),
                              run_id=opened.run_id, round_index=index, build_seconds=0.25)
                for i, p in enumerate(proposals)
            ]  # fmt: skip
            opened._commit(task, records, 0.0)
        yield opened


def in_network(session: TuningSession) -> list[MeasureRecord]:
    records = session.store.iter_records()
    return [r for r in records if r.scope.timing_mode is TimingMode.IN_NETWORK]


def test_candidates_are_timed_and_stored(session: TuningSession) -> None:
    trials = session.new_trials
    found = select_in_network(session, 2)
    assert found["mlp"] > 0
    assert len(in_network(session)) == 2 * len(session.search_tasks)
    assert session.new_trials == trials, "these are no trials of the search"


def test_the_last_selection_decides_whatever_an_older_one_saw(session: TuningSession) -> None:
    keys = [task.key for task in session.search_tasks]
    select_in_network(session, 2)
    key = keys[0]
    slow, fast = (r.schedule for r in session.store.top(key, session.scope, 2))
    pairs = {0.5e-9: [(slow, 0.5e-9), (fast, 0.7e-9)], 1e-9: [(fast, 1e-9), (slow, 2e-9)]}
    for best, timed in pairs.items():
        tasks.selection._commit(session, [(key, timed)])
        chosen = best_schedules(session.store, keys, session.scope, "default")
        assert chosen[key].latency == best and chosen[key].schedule == timed[0][0]
        assert set(chosen) == set(keys)


def test_what_was_chosen_before_is_tried_again(
    session: TuningSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = session.search_tasks[0].key
    first = session.store.top(key, session.scope, 3)
    tasks.selection._commit(session, [(key, [(first[2].schedule, 1e-3), (first[0].schedule, 1.0)])])
    tried: dict[str, list[str]] = {}

    def spy(lowered: object, best: dict[str, list[Schedule]], *rest: Any, **more: Any) -> object:
        tried.update({k: [s.key for s in found] for k, found in best.items()})
        return {}

    monkeypatch.setattr(tasks.selection, "time_in_network", spy)
    select_in_network(session, 2)
    assert tried[key] == [first[0].schedule.key, first[2].schedule.key]


def test_without_time_nothing_is_timed(session: TuningSession) -> None:
    session.too_long = lambda seconds: True
    assert select_in_network(session, 2) == {} and in_network(session) == []


def test_time_that_ends_in_the_middle_leaves_fewer_candidates(session: TuningSession) -> None:
    asked: list[float] = []
    session.too_long = lambda seconds: asked.append(seconds) or len(asked) > 2  # type: ignore[func-returns-value]
    assert select_in_network(session, 2)["mlp"] > 0
    assert len(in_network(session)) == len(session.search_tasks)


def test_another_tuner_is_waited_for_only_while_there_is_time(
    session: TuningSession, lock: str, said: list[str]
) -> None:
    asked: list[float] = []
    session.too_long = lambda seconds: asked.append(seconds) or len(asked) > 3  # type: ignore[func-returns-value]
    with machine_lock(lock, said.append):
        assert select_in_network(session, 2) == {}
    assert len(asked) == 4
    assert any("another tuner has the machine" in line for line in said)


def test_a_retry_measures_and_stores_nothing_twice(
    session: TuningSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    timed = tasks.selection.time_in_network
    commit = session.store.commit_round

    def counted(*args: object, **more: object) -> object:
        measured.append("mlp")
        return timed(*args, **more)  # type: ignore[arg-type]

    def fail_second(round_: RoundInfo, records: object) -> int:
        if session.round_index == 4:
            raise OSError("the disk blinked")
        return commit(round_, records)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks.selection, "time_in_network", counted)
    monkeypatch.setattr(session.store, "commit_round", fail_second)
    with pytest.raises(OSError, match="blinked"):
        select_in_network(session, 2)
    assert len(in_network(session)) == 2
    monkeypatch.setattr(session.store, "commit_round", commit)
    select_in_network(session, 2)
    found = [(r.workload_key, r.schedule.key) for r in in_network(session)]
    assert measured == ["mlp"]
    assert len(found) == len(set(found)) == 2 * len(session.search_tasks)


def test_the_time_it_takes_follows_from_what_is_known(session: TuningSession) -> None:
    few, many = selection_seconds(session, 1), selection_seconds(session, 3)
    assert 0 < few < many
    builds = 0.25 * len(session.search_tasks)
    assert many - few >= 2 * (builds + 25 * 1e-3 * 3), "two more compilations and their runs"
    assert many < 3 * few, "the winners are timed again, however many candidates there are"
    session.history = {key: [] for key in session.history}
    assert selection_seconds(session, 3) > 0, "before anything is measured it is guessed"
