"""Connections: from a URL to a SQLAlchemy engine, and from its errors to ours.

In: a path or URL.  Out: `connect(url)` gives a `sql_engine` (never called just "engine", which is
our compiler).  Transactions on SQLite begin with BEGIN IMMEDIATE unless they are marked as reading:
a transaction that reads first and then writes would otherwise fail under contention whatever the
time-out.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from db.values import to_json
from engine.errors import StoreError

BUSY_SECONDS = 60.0
"""How long a writer waits for the others on SQLite."""

POOL_SIZE, POOL_OVERFLOW = 2, 3
"""Connections to PostgreSQL that one store keeps, and opens beyond that for a short while."""

READING = "noctune_reading"
"""Execution option of a `sql_engine` whose transactions only read."""

FORMS = "Use a path, sqlite:///path, postgresql://user@host/database or memory:."


def is_memory(url: str) -> bool:
    """Whether the URL names a store in memory."""
    return url in ("memory:", "memory://", ":memory:", "sqlite://", "sqlite:///:memory:")


def parse_url(url: str) -> URL:
    """The URL with its driver; a plain path becomes a SQLite URL.  Raises StoreError."""
    if not url or not url.strip():
        raise StoreError("the database URL is empty", fix=FORMS)
    if "://" not in url:
        return URL.create("sqlite+pysqlite", database=str(Path(url).expanduser().resolve()))
    try:
        parsed = make_url(url)
        name = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise StoreError("not a database URL", where=url, fix=FORMS) from None
    if name == "sqlite":
        if parsed.query or parsed.host:
            raise StoreError(
                "a SQLite URL holds a path and nothing else",
                where=url,
                fix="Write sqlite:///path, or the path alone.",
            )
        path = Path(parsed.database or "").expanduser().resolve()
        return parsed.set(drivername="sqlite+pysqlite", database=str(path))
    if name in ("postgresql", "postgres"):
        try:
            (parsed.host or "").encode("idna")
        except UnicodeError:
            raise StoreError(
                "not the name of a server", where=show_url(parsed), fix=FORMS
            ) from None
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreError(f"no such kind of database: {name}", where=show_url(parsed), fix=FORMS)


def show_url(url: URL) -> str:
    """The URL for people: a bare path for SQLite, no password."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    if url.get_backend_name() in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql")
    return url.render_as_string(hide_password=True)


def connect(url: str) -> Engine:
    """A `sql_engine` for the URL; nothing is opened yet.  Raises StoreError."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _connect_sqlite(parsed)
    return _connect_postgresql(parsed)


def _connect_sqlite(url: URL) -> Engine:
    path = Path(url.database or "")
    if path.is_dir():
        raise StoreError("this is a folder, not a database file", where=str(path), fix=FORMS)
    if path.exists() and not path.is_file():
        raise StoreError("this is no regular file", where=str(path), fix=FORMS)
    if not path.parent.is_dir():
        raise StoreError(
            "the database cannot be made here",
            where=str(path),
            why="the folder does not exist",
            fix=f"Make it first: mkdir -p {path.parent}",
        )
    sql_engine = create_engine(
        url, connect_args={"timeout": BUSY_SECONDS}, json_serializer=to_json, pool_timeout=120
    )
    event.listen(sql_engine, "connect", _prepare_sqlite)
    event.listen(sql_engine, "begin", _begin_sqlite)
    return sql_engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA cache_size=-65536")
    finally:
        cursor.close()


def use_wal(sql_engine: Engine) -> None:
    """Connections of SQLite use write-ahead logging from now on.

    The switch is kept in the file: it is for databases that are known to be ours.
    """
    if sql_engine.dialect.name == "sqlite":
        event.listen(sql_engine, "connect", _switch_to_wal)
        sql_engine.dispose()
        sql_engine.connect().close()


def _switch_to_wal(connection: sqlite3.Connection, _record: object) -> None:
    """Done once; the switch itself does not heed the busy time-out."""
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    reading = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _binary_cursor() -> type:
    """A cursor whose results are not spelled out as text: reading features takes a third less."""
    from psycopg import Cursor

    class BinaryCursor(Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> BinaryCursor:
            # SQLAlchemy expects the vectors of the catalogue as text
            binary = "pg_catalog" not in str(query)
            return super().execute(query, params, **{"binary": binary, **options})

    return BinaryCursor


def _connect_postgresql(url: URL) -> Engine:
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            pool_size=POOL_SIZE,
            max_overflow=POOL_OVERFLOW,
            pool_timeout=120,
            pool_recycle=1800,
            connect_args={
                "connect_timeout": 10,
                "application_name": "noctune",
                "cursor_factory": _binary_cursor(),
            },
            json_serializer=to_json,
        )
    except (ImportError, NoSuchModuleError):
        raise StoreError(
            "PostgreSQL needs the package psycopg",
            where=show_url(url),
            why="it is not installed",
            fix='Install it: pip install "noctune[postgres]"',
        ) from None


# -- errors ---------------------------------------------------------------------------------------

_CAUSES = (
    # part of the database's message, what to say, what to do
    ("readonly database", "the database is read-only", "Make the file and its folder writable."),
    ("read-only transaction", "the database is read-only", "Use a server that takes writes."),
    ("permission denied", "the database refuses access", "Grant this user rights on the schema."),
    ("not a database", "this file is not a SQLite database", "Give another path, or a new one."),
    ("malformed", "the database file is damaged",
     "Restore a backup, or save what can be read: sqlite3 FILE .recover"),
    ("disk is full", "the disk is full", "Free some space and run again; nothing stored is lost."),
    ("no space left", "the disk is full", "Free some space and run again; nothing stored is lost."),
    ("disk i/o error", "the disk cannot be written",
     "Check its free space and quota, then run again; nothing stored is lost."),
    ("database is locked", "the database stays locked by another process",
     "Wait for it or end it, then run again."),
    ("unable to open database file", "the database file cannot be opened",
     "Check that its folder exists and may be written to."),
    ("password", "the server refuses the password", "Check user and password in the URL."),
    ("authentication failed", "the server refuses this user",
     "Check user and password in the URL."),
    ("too many", "the server has no connection left", "Raise max_connections, or run fewer jobs."),
    ("connection slots", "the server has no connection left",
     "Raise max_connections, or run fewer jobs."),
    ("resolve host", "the server's name is not known", "Check the host in the URL."),
    ("name or service not known", "the server's name is not known", "Check the host in the URL."),
    ("name resolution", "the server's name cannot be looked up",
     "Check the host in the URL, and this machine's network."),
    ("does not exist", "the database does not exist as asked for",
     "Check the URL; make the database with createdb."),
)  # fmt: skip

_PASSING = ("database is locked", "too many", "connection slots", "starting up", "shutting down",
            "deadlock detected", "could not serialize")  # fmt: skip


def _text(error: SQLAlchemyError) -> str:
    origin: Any = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())


def is_passing(error: SQLAlchemyError, *, was_open: bool) -> bool:
    """Whether trying again may help; a lost connection counts only if there was one before."""
    if not isinstance(error, DBAPIError):
        return False
    message = _text(error).lower()
    if any(part in message for part in _PASSING):
        return True
    if not was_open or isinstance(error.orig, sqlite3.Error):
        return False
    lost = ("connection", "terminat", "server closed", "refused")
    return error.connection_invalidated or any(part in message for part in lost)


def store_error(error: SQLAlchemyError, url: URL) -> StoreError:
    """The database's error in our words."""
    message = _text(error)
    where = show_url(url)
    if isinstance(error, PoolTimeoutError):
        return StoreError("no database connection became free", where=where, why=message)
    lowered = message.lower()
    for part, what, fix in _CAUSES:
        if part in lowered:
            return StoreError(what, where=where, why=message, fix=fix)
    if url.get_backend_name() == "postgresql" and "connect" in lowered:
        return StoreError(
            "the database server cannot be reached", where=where, why=message,
            fix="Check host and port, and that the server runs.",
        )  # fmt: skip
    return StoreError("the database gave an error", where=where, why=message)
