"""The race's table and the order of its stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search import race
from tasks.sidebyside import Timing


def test_every_stage_is_held_against_the_peer_and_the_last_stage() -> None:
    timings = {
        "1m": Timing(((20e-3, 20e-3),)),
        "3m": Timing(((10e-3,), (10e-3,))),
        race.PEER: Timing(((15e-3,),)),
    }
    rows = race.table(["1m", "3m"], {"1m": 900, "3m": 2000}, timings)[2:]
    assert rows == [
        "| 1m | 900 | 20.00 | 0.75 | 50.0% |", "| 3m | 2,000 | 10.00 | 1.50 | 100.0% |",
    ]  # fmt: skip


def test_stages_go_on_from_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(race, "noctune", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(race, "trials_on_record", lambda *_: len(calls))
    trials = race.tune_in_stages("mlp", ["1m", "3m"], "db", tmp_path, 2)
    assert [c[:2] + c[3:4] for c in calls if c[0] == "tune"] == [
        ("tune", "mlp", "60s"), ("tune", "mlp", "120s"),
    ]  # fmt: skip
    assert [c[3] for c in calls if c[0] == "compile"] == [
        str(tmp_path / "mlp-1m.net"), str(tmp_path / "mlp-3m.net"),
    ]  # fmt: skip
    assert trials == {"1m": 2, "3m": 4}
