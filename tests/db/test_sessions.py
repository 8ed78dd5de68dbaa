"""Tuning goes on when PostgreSQL's connections end, or the server itself, while it measures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from postgres_server import Server

from db.store import open_store
from tasks.session import SessionOptions, TuningSession


def end_connections(postgres: Server, url: str) -> None:
    with postgres.admin() as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            (url.rpartition("/")[2],),
        )


def restart(postgres: Server, _url: str) -> None:
    """Down at once, and up again while the session asks for it."""
    postgres.stop("immediate")
    threading.Timer(1.0, postgres.start).start()


@pytest.mark.slow
@pytest.mark.parametrize("strike", [end_connections, restart])
def test_a_round_is_stored_whatever_happens_while_it_is_measured(
    postgres: Server, strike: Callable[[Server, str], None]
) -> None:
    url = postgres.new_database()
    with TuningSession(SessionOptions(url, threads=1, run_id="night")) as session:
        session.load("mlp")
        session.prepare()
        measured = []
        for _ in range(2):
            choice = session.choose()
            assert choice is not None
            task = session.search_tasks[choice.index]
            records = session._measure(task, 4)
            session._pending = (session.round_index, records, 0.0)
            strike(postgres, url)
            measured.append(session.run_round(choice, 4).trials)
        assert min(measured) > 0
    with open_store(url) as store:
        assert [r.trials for r in store.rounds("night")] == measured
        assert store.stats().records == sum(measured)
