"""URLs, and one clear error for everything that can be wrong with a database."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from postgres_server import Server, free_port
from sqlalchemy import event
from store_samples import SCOPE, record

from db.connect import parse_url, show_url
from db.memory_store import MemoryStore
from db.sql_store import SqlStore
from db.store import open_store
from engine.errors import StoreError


class TestUrls:
    @pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}"])
    def test_paths_and_sqlite_urls(self, tmp_path: Path, form: str) -> None:
        path = tmp_path / "a b.db"
        with open_store(form.format(path)) as store:
            store.add_records([record(0)])
        assert path.stat().st_size > 0

    def test_relative_path_does_not_follow_later_changes_of_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with open_store("records.db") as store:
            monkeypatch.chdir("/")
            store.add_records([record(0)])
        assert (tmp_path / "records.db").exists()

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
    def test_postgresql_goes_to_psycopg_3(self, scheme: str) -> None:
        url = parse_url(f"{scheme}://u:secret@host:5/db")
        assert url.drivername == "postgresql+psycopg"
        assert show_url(url) == "postgresql://u:***@host:5/db"

    @pytest.mark.parametrize("url", ["memory:", ":memory:", "sqlite://", "memory://"])
    def test_memory(self, url: str) -> None:
        assert isinstance(open_store(url), MemoryStore)

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("", "URL is empty"),
            ("mysql://u:pw@host/db", r"mysql://u:\*\*\*@host/db: no such kind of database: mysql"),
            ("postgresql://host:port/db", "not a database URL"),
            ("postgresql://u@a..b/db", "not the name of a server"),
            ("postgresql://u@nosuch.invalid/db", r"server's name .*Check the host in the URL"),
            ("http://x", "no such kind of database: http"),
            ("/no/such/folder/x.db", "folder does not exist"),
            ("/tmp", "this is a folder"),
            ("/dev/null", "no regular file"),
            ("sqlite:////dev/null", "no regular file"),
            ("sqlite:///x.db?mode=ro", r"mode=ro: a SQLite URL holds a path and nothing else"),
            ("sqlite://x.db", "Write sqlite:///path"),
        ],
    )
    def test_wrong_urls(self, url: str, message: str) -> None:
        with pytest.raises(StoreError, match=message):
            open_store(url)

    def test_password_is_never_shown(self) -> None:
        url = f"postgresql://u:hunter2@127.0.0.1:{free_port()}/db"
        with pytest.raises(StoreError) as caught:
            open_store(url)
        assert "hunter2" not in str(caught.value)
        assert "server cannot be reached" in str(caught.value)


class TestPostgresql:
    def test_missing_database(self, postgres: Server) -> None:
        with pytest.raises(StoreError, match=r'does not exist.*"absent".*createdb'):
            open_store(postgres.url("absent"))

    def test_missing_psycopg(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(StoreError, match=r"needs the package psycopg.*noctune\[postgres\]"):
            open_store("postgresql://host/db")

    def test_read_only(self, postgres: Server) -> None:
        url = postgres.new_database()
        with open_store(url) as store:
            store.add_records([record(0)])
        options = "?options=-cdefault_transaction_read_only%3Don"
        with open_store(url + options) as store:
            assert store.stats().records == 1
            with pytest.raises(StoreError, match="the database is read-only"):
                store.add_records([record(1)])
            assert store.stats().records == 1


@contextmanager
def plain_user() -> Iterator[None]:
    """Root may write anywhere: be someone else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestSqliteFiles:
    def make(self, path: Path) -> None:
        with open_store(str(path)) as store:
            store.add_records([record(i) for i in range(200)])

    def test_not_a_database(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(b"\x08\x07 this is a model" * 400)
        before = path.read_bytes()
        with pytest.raises(StoreError, match="not a SQLite database"):
            open_store(str(path))
        assert path.read_bytes() == before

    def test_empty_file_is_an_empty_database(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        path.touch()
        with open_store(str(path)) as store:
            assert store.stats().records == 0

    def test_damaged_file(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        self.make(path)
        damage(path)
        with pytest.raises(StoreError, match=r"damaged.*backup"), open_store(str(path)) as store:
            list(store.iter_records())

    def test_file_cut_short(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        self.make(path)
        os.truncate(path, 5000)
        with pytest.raises(StoreError, match="damaged"), open_store(str(path)) as store:
            list(store.iter_records())

    def test_read_only_file(self, tmp_path: Path) -> None:
        folder = tmp_path / "readonly"
        folder.mkdir()
        path = folder / "records.db"
        self.make(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        for parent in (tmp_path, *tmp_path.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o055)
        path.chmod(0o444)
        folder.chmod(0o555)
        before = path.read_bytes()
        with plain_user(), pytest.raises(StoreError, match="read-only"):
            open_store(str(path))
        folder.chmod(0o755)
        assert path.read_bytes() == before

    def test_full_disk_loses_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        self.make(path)
        store = SqlStore(str(path))

        @event.listens_for(store._writer, "begin")
        def limit(connection: object) -> None:
            connection.exec_driver_sql("PRAGMA max_page_count=1")  # type: ignore[attr-defined]

        with store:
            big = {"note": "x" * 5000}
            with pytest.raises(StoreError, match=r"disk is full.*nothing stored is lost"):
                store.add_records([record(i, run_id="more", extra=big) for i in range(2000)])
            assert store.stats().records == 200
        with open_store(str(path)) as again:
            assert again.stats().records == 200
            assert len(again.history(["conv-a"], SCOPE)["conv-a"]) == 200


def damage(path: Path) -> None:
    """Overwrite the middle of the file with noise, keeping its head."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (size - 8192))
