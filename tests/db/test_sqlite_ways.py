"""How SQLite is opened: write-ahead log, writers that wait, writes that the system refuses."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

from store_samples import SCOPE, record

from db.sql_store import SqlStore
from db.store import open_store

ROOT = Path(__file__).parents[2]


def test_write_ahead_log_and_waiting(tmp_path: Path) -> None:
    with SqlStore(str(tmp_path / "records.db")) as store, store._reader.begin() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "busy_timeout", "synchronous", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "busy_timeout": 60_000, "synchronous": 2,
                     "foreign_keys": 1}  # fmt: skip


def test_a_writer_has_the_lock_before_it_reads(tmp_path: Path) -> None:
    """BEGIN IMMEDIATE: a transaction that reads first would otherwise fail under contention."""
    path = tmp_path / "records.db"
    with SqlStore(str(path)) as store, closing(sqlite3.connect(path, timeout=0)) as other:
        with store._writer.begin():
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                assert "locked" in str(error)
            else:
                raise AssertionError("two writers at once")
        with store._reader.begin() as reader:
            reader.exec_driver_sql("SELECT count(*) FROM measure_records")
            other.execute("BEGIN IMMEDIATE")
            other.rollback()


def test_a_writer_waits_for_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with SqlStore(str(path)) as store:
        with closing(sqlite3.connect(path, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            threading.Timer(0.3, other.rollback).start()
            assert store.add_records([record(0)]) == 1
        assert store.stats().records == 1


FULL = """
import resource, signal, sys
from db.store import open_store
from engine.errors import StoreError
from store_samples import record

with open_store(sys.argv[1]) as store:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        store.add_records([record(i, run_id="more", message="x" * 3000) for i in range(3000)])
    except StoreError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert store.stats().records == 200
    assert store.add_records([record(0, run_id="after")]) == 1
"""


def test_a_disk_that_takes_no_more_loses_nothing(tmp_path: Path) -> None:
    """The system itself refuses to write; the same store goes on when there is room again."""
    path = tmp_path / "records.db"
    with open_store(str(path)) as store:
        store.add_records([record(i) for i in range(200)])
    paths = [str(ROOT), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(path.stat().st_size + 500_000)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "nothing stored is lost" in done.stdout and "Traceback" not in done.stderr
    with open_store(str(path)) as again:
        assert len(again.history(["conv-a"], SCOPE)["conv-a"]) == 201
