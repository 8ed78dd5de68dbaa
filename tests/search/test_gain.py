"""The estimate of remaining gain, against laws that are known and a run that was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.gain import Check, checks, replay_files, report
from benchmarks.search.replay import Run, replays
from db.store import open_store
from db.values import RoundInfo
from engine.records import ErrorKind, MeasureRecord, Schedule
from engine.search.gain import PaceLaw, paces, predict_total
from tests.search.synthetic import SCOPE

RECORDED = Path(__file__).with_name("recorded_run.json")


def power_law(trials: int, pace: float, best: float = 1e-3) -> np.ndarray:
    """Each trial is the best so far: best * j^-pace after j trials."""
    return best * np.arange(1, trials + 1) ** -pace


def recorded() -> Run:
    """1000 trials of squeezenet_v1.1."""
    data = json.loads(RECORDED.read_text())
    rounds = data["rounds"]
    return Run(
        "squeezenet_v1.1", 1, 2, np.array(data["weights"], float),
        np.concatenate([[task] * len(times) for task, times in rounds]),
        np.array([1e-6 * t if t else np.inf for _, times in rounds for t in times]),
        (0, *np.cumsum([len(times) for _, times in rounds]).tolist()),
    )  # fmt: skip


@pytest.mark.parametrize("pace", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("more", [100, 1000])
def test_a_power_law_is_foreseen_within_a_factor_of_two(pace: float, more: int) -> None:
    """Trials spread over tasks of one law, evenly as all are alike."""
    cost, known = np.ones(8), [power_law(60, pace)] * 8
    came = 8.0 * (1.0 - ((60 + more / 8) / 60) ** -pace)
    assert 0.5 < predict_total(cost, known, more) / came < 2.0


def test_a_recorded_run_is_foreseen_within_a_factor_of_two() -> None:
    found = list(checks(recorded()))
    assert len(found) >= 15 and max(c.more for c in found) > 400
    large = [c for c in found if not c.tiny]
    assert np.mean([c.right for c in large]) >= 0.8
    assert 0.5 < np.median([c.ratio for c in large]) < 2.0


def test_the_pace_is_seen_and_shared() -> None:
    cost = np.array([1.0, 1.0, 1.0])
    known = [power_law(4000, 0.5), np.full(4000, 1e-3), np.full(4, 1e-3)]
    alone = PaceLaw(prior=0.0, pooling=1e-9)
    seen = paces(cost, known, alone)
    assert seen[:2] == pytest.approx([0.5, 0.0], abs=0.01)
    assert seen[2] == pytest.approx(0.25, abs=0.01), "an unknown task goes like the others"
    drawn = paces(cost, known)
    assert drawn[1] < drawn[2] < drawn[0]
    nothing = paces(cost[:1], [np.array([np.inf, 1e-3])])
    assert nothing == pytest.approx([PaceLaw().pace]), "before the second round: other runs' pace"


def test_trials_go_where_they_save_most() -> None:
    """A task that costs nothing takes no trials from one that does."""
    known = [power_law(50, 0.2), power_law(50, 0.2)]
    both = predict_total(np.array([1.0, 1e-6]), known, 100)
    assert both == pytest.approx(predict_total(np.array([1.0]), known[:1], 100), rel=0.01)
    assert predict_total(np.array([1.0, 1.0]), known, 100) < 2 * both


def test_the_total_is_bounded_and_grows_with_the_trials() -> None:
    cost, known = np.array([1.0, 3.0]), [power_law(30, 0.3), np.array([np.inf, 2.0, 1.0])]
    said = [predict_total(cost, known, more) for more in (0, 1, 10, 100, 10**4, 10**8)]
    assert said[0] == 0.0 and said == sorted(said) and said[-1] < cost.sum()
    assert predict_total(np.array([]), [], 10) == 0.0
    assert predict_total(cost * 5, known, 100) == pytest.approx(5 * said[3])


def test_tiny_gains_are_judged_absolutely() -> None:
    check = Check("n", 1, 2, 0, 100, said=0.015, came=0.001)
    assert check.tiny and check.right
    assert not replace(check, said=0.021).right
    assert not replace(check, came=0.04).right and replace(check, came=0.03).right


def records(key: str, seconds: Sequence[float], run: str, round_index: int) -> list[MeasureRecord]:
    return [
        MeasureRecord(
            key, SCOPE, Schedule("s", {"i": i}), (t,) if np.isfinite(t) else (),
            ErrorKind.OK if np.isfinite(t) else ErrorKind.CRASH, run_id=run,
            round_index=round_index, extra={"scale": 0.5} if round_index else {},
        )
        for i, t in enumerate(seconds)
    ]  # fmt: skip


def fill(url: str) -> None:
    """Two runs of a network of two tasks; the second begins with what the first knew of one."""
    with open_store(url) as store:
        store.register_target(SCOPE, {})
        for key in "ab":
            store.register_workload(key, {})
        store.register_network("net", "hash", {"a": 2, "b": 1}, "")
        for run, rounds in (
            ("r1", [("a", [4.0, 3.0])]),
            ("r2", [("b", [np.inf, 9.0]), ("a", [2.0] * 40), ("b", [5.0] * 40)]),
        ):
            store.start_run(["net"], SCOPE, run_id=run)
            for index, (key, seconds) in enumerate(rounds):
                done = RoundInfo(run, index, key, trials=len(seconds))
                store.commit_round(done, records(key, seconds, run, index))


def test_a_run_is_replayed_from_a_database(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    fill(str(path))
    before = path.read_bytes()
    with open_store(str(path)) as store:
        first, second = replays(store, "net")
        (_, measured) = replays(store, "net", scaled=False)
        assert replays(store, "another") == []
    assert first.warm == () and list(checks(first)) == []
    assert second.ends == (2, 4, 44, 84) and second.warm == (4, 44, 84)
    assert second.cost(4).tolist() == [6.0, 9.0] and second.cost(84).tolist() == [4.0, 5.0]
    assert measured.cost(84).tolist() == [6.0, 9.0], "scaled by a half, it only seemed faster"
    found = replay_files([path], "", scaled=True)
    assert [(c.trials, c.more) for c in found] == [(2, 80), (42, 40)]
    assert found[0].came == pytest.approx(1 - 9 / 15)
    assert "| 2 net | 2 | 80 |" in report({"as recorded": found})
    assert path.read_bytes() == before
