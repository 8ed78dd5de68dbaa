"""Several processes on one database: races, kills, lost connections, resume."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from postgres_server import Server
from processes import commit
from store_samples import SCOPE, failed, record

from db.migrate import SCHEMA, VERSION_TABLE
from db.sql_store import SqlStore
from db.store import Store, open_store
from db.values import RoundInfo, RunStatus
from engine.errors import StoreError

HELPER = Path(__file__).with_name("processes.py")


class Group:
    """Processes that do the same at the same time; see `processes.py`."""

    def __init__(self, command: str, count: int, *args: str) -> None:
        paths = [str(HELPER.parent), str(HELPER.parents[2]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, str(HELPER), command, str(count), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        assert self._process.stdout is not None
        ready, *pids = self._process.stdout.readline().split() or [""]
        assert ready == "ready", self._process.communicate()[1]
        self.pids = [int(pid) for pid in pids]

    def go(self) -> None:
        out, err = self._process.communicate("go\n", timeout=400)
        assert (self._process.returncode, out) == (0, "done\n"), err

    def kill(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self._process.communicate("go\n", timeout=60)


class TestG309OpeningAtOnce:
    @pytest.mark.slow
    def test_eight_processes_open_an_empty_database(self, sql_url: str) -> None:
        Group("open_and_add", 8, sql_url).go()
        with SqlStore(sql_url) as store:
            assert store.stats().records == 8
            with store._reader.begin() as connection:
                rows = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}")
                assert rows.scalars().all() == [SCHEMA]


class TestG313ManyWriters:
    @pytest.mark.slow
    def test_sixteen_processes_and_a_long_reader(self, tmp_path: Path) -> None:
        url = str(tmp_path / "records.db")
        with SqlStore(url) as store:
            store.add_records([record(0, run_id="first")])
            group = Group("insert", 16, url, "50")
            with store._reader.begin() as reader:
                count = "SELECT count(*) FROM measure_records"
                assert reader.exec_driver_sql(count).scalar() == 1
                group.go()
                assert reader.exec_driver_sql(count).scalar() == 1
            assert store.stats().records == 801


class TestG307KilledInTheMiddle:
    def test_an_unfinished_round_leaves_nothing(self, sql_store: Store) -> None:
        sql_store.register_network("net", "h", {"conv-a": 1})
        run_id = sql_store.start_run(["net"], SCOPE)
        Group("half_a_round", 1, sql_store.url, run_id).kill()
        assert sql_store.rounds(run_id) == ()
        assert sql_store.trial_counts(["conv-a"], SCOPE) == {"conv-a": 0}
        assert commit(sql_store, run_id) == 64
        assert commit(sql_store, run_id) == 0
        assert sql_store.trial_counts(["conv-a"], SCOPE) == {"conv-a": 64}
        assert len(sql_store.rounds(run_id)) == 1
        assert sql_store.runs()[0].status is RunStatus.RUNNING


class TestG306Resume:
    def test_counts_bests_and_totals_come_back(self, sql_url: str) -> None:
        keys = ["t0", "t1", "t2", "t3"]
        with open_store(sql_url) as store:
            store.register_network("net", "h", dict.fromkeys(keys, 1))
            run_id = store.start_run(["net"], SCOPE)
            for index, key in enumerate(keys[:2]):
                trials = [record(i, 1e-3 * (i + 1), key=key) for i in range(4)]
                store.commit_round(RoundInfo(run_id, index, key), [*trials, failed(9, key=key)])
        with open_store(sql_url) as store:
            history = store.history(keys, SCOPE)
            assert [len(history[key]) for key in keys] == [5, 5, 0, 0]
            assert store.trial_counts(keys, SCOPE) == {"t0": 5, "t1": 5, "t2": 0, "t3": 0}
            best = store.best(keys, SCOPE)
            assert [best[key].latency for key in keys[:2]] == [1e-3, 1e-3]
            assert list(best) == ["t0", "t1"]
            assert math.isfinite(sum(found.latency for found in best.values()))
            assert [round_.index for round_ in store.rounds(run_id)] == [0, 1]


class TestG311LostConnections:
    @pytest.fixture
    def store(self, postgres: Server) -> SqlStore:
        return SqlStore(postgres.new_database())

    def kill_connections(self, postgres: Server, store: SqlStore) -> None:
        with postgres.admin() as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                (store._writer.url.database,),
            )

    def test_idle_connection_is_opened_again(self, postgres: Server, store: SqlStore) -> None:
        with store:
            store.add_records([record(0)])
            self.kill_connections(postgres, store)
            assert store.add_records([record(1)]) == 1
            assert store.stats().records == 2

    def test_transaction_is_repeated_when_its_connection_dies(
        self, postgres: Server, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from db import sql_write

        insert_records, calls = sql_write._insert_records, []

        def dying(*args: object) -> int:
            calls.append(1)
            new = insert_records(*args)  # type: ignore[arg-type]
            if len(calls) == 1:
                self.kill_connections(postgres, store)
            return new

        monkeypatch.setattr(sql_write, "_insert_records", dying)
        with store:
            assert store.add_records([record(i) for i in range(3)]) == 3
            assert len(calls) == 2
            assert store.stats().records == 3

    def test_server_stopped_and_started(self, postgres: Server, store: SqlStore) -> None:
        with store:
            store.add_records([record(0)])
            postgres.stop()
            timer = threading.Timer(0.5, postgres.start)
            timer.start()
            assert store.add_records([record(1)]) == 1
            timer.join()
            assert store.stats().records == 2

    def test_fifty_jobs_with_ten_connections(self, postgres: Server) -> None:
        url = postgres.new_database()
        open_store(url).close()
        with postgres.admin() as admin:
            admin.execute("CREATE ROLE worker LOGIN")
            name = url.rpartition("/")[2]
            admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 10".encode())
        with psycopg.connect(url, autocommit=True) as connection:
            for grant in ("ALL ON ALL TABLES", "ALL ON ALL SEQUENCES"):
                connection.execute(f"GRANT {grant} IN SCHEMA public TO worker".encode())
        url = url.replace("noctune@", "worker@")

        def job(number: int) -> int:
            with open_store(url) as store:
                return store.add_records([record(number)])

        with ThreadPoolExecutor(25) as pool:
            assert list(pool.map(job, range(50))) == [1] * 50
        with open_store(url) as store:
            assert store.stats().records == 50

    def test_one_store_keeps_few_connections(self, postgres: Server, store: SqlStore) -> None:
        with store, ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda i: store.add_records([record(i)]), range(60)))
            with postgres.admin() as admin:
                count = admin.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = %s",
                    (store._writer.url.database,),
                ).fetchone()
            assert count is not None and 1 <= count[0] <= 5
            assert store.stats().records == 60


def test_a_store_sent_to_another_process_opens_its_own_connections(sql_store: Store) -> None:
    import pickle

    sql_store.add_records([record(0)])
    with pickle.loads(pickle.dumps(sql_store)) as other:
        assert other.stats().records == 1
    with pytest.raises(StoreError, match="cannot be sent"):
        pickle.dumps(open_store("memory:"))
