"""The benchmark of the store fills in what the store itself would have written, and measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.db import fill as filling
from benchmarks.db import world
from benchmarks.db.__main__ import merged, section
from benchmarks.db.figures import FIGURES
from db.store import open_store
from db.values import RoundInfo

ROUNDS = 3


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nights of three rounds for two networks."""
    monkeypatch.setattr(world, "ROUNDS", ROUNDS)
    monkeypatch.setattr(world, "NETWORKS", 2)
    monkeypatch.setattr(filling, "PER_RUN", world.ROUND * ROUNDS)


@pytest.mark.usefixtures("small")
def test_filled_rows_are_those_that_the_store_writes(sql_url: str, tmp_path: Path) -> None:
    count = 2 * world.ROUND * ROUNDS
    assert filling.fill(sql_url, count, print) == 2
    assert filling.fill(sql_url, count - 1, print) == 2
    with open_store(sql_url) as filled, open_store(str(tmp_path / "stored.db")) as stored:
        for number in range(2):
            run = world.run_of(number)
            name = world.network_name(number)
            stored.register_network(name, f"hash-{number}", dict.fromkeys(run.keys, 2))
            stored.start_run([name], run.scope, run_id=run.run_id)
            for r in world.rounds_of(run):
                round_ = RoundInfo(
                    run.run_id, r.index, r.workload_key, {name: 0.01}, world.task_table(run, r),
                    r.started, r.started + 20.0,
                )  # fmt: skip
                stored.commit_round(round_, world.records(r, run.scope))
            assert filled.rounds(run.run_id) == stored.rounds(run.run_id)
        assert list(filled.iter_records()) == list(stored.iter_records())
        assert filled.model_rows(run.scope) == stored.model_rows(run.scope)
        assert filled.groups() == stored.groups()
        assert filled.stats().errors == stored.stats().errors


@pytest.mark.usefixtures("small")
def test_every_figure_is_taken(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.db.figures.STORED", ROUNDS)
    monkeypatch.setattr(world, "TASKS", ROUNDS)
    monkeypatch.setattr(world, "SHARED", 1)
    runs = filling.fill(sql_url, 2 * world.ROUND * ROUNDS, print)
    heading, text = section(sql_url, runs, FIGURES, 1)
    assert heading in ("## SQLite", "## PostgreSQL")
    assert [line.count("|") for line in text.splitlines() if line.startswith("|")] == [5] * 7
    assert "576 records, 9 rounds, 3 runs" in text


def test_a_page_keeps_the_other_database() -> None:
    page = merged(merged("", "## SQLite", "older figures\n"), "## PostgreSQL", "of the other\n")
    again = merged(page, "## SQLite", "newer figures\n")
    assert again.count("\n## ") == 2 and "older figures" not in again
    assert again.index("newer figures") < again.index("of the other")
    assert page.partition("\n## ")[0] == again.partition("\n## ")[0]
