"""Bring a database to the present schema, from code, whenever a store is opened.

In: a `sql_engine` of any state.  Out: the tables and views of `SCHEMA`, or a StoreError and the
database as it was.  Any number of processes may do this at once on an empty database: one makes the
tables while the others wait for its transaction.  A SQLite file is copied before an old schema is
upgraded.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from db.connect import show_url
from db.views import create_views, drop_views
from engine.errors import StoreError

SCHEMA = "0003"
"""The schema version of this code: the head of `db/migrations`."""

VERSION_TABLE = "noctune_schema"
"""One row with the schema version; not Alembic's usual name, which other programs use."""

_LOCK = 0x6E6F6374756E65
"""Key of PostgreSQL's advisory lock around migrations."""


def schema_version(connection: Connection) -> str | None:
    """The database's schema version; None if it is empty.  Raises StoreError if it is foreign."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        row = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).first()
        return str(row[0]) if row else None
    if tables:
        names = ", ".join(sorted(tables)[:3])
        raise StoreError(
            "this database belongs to something else",
            where=show_url(connection.engine.url),
            why=f"it holds the tables {names}, and none of noctune's",
            fix="Give noctune a database of its own.",
        )
    return None


def migrate(reader: Engine, writer: Engine) -> None:
    """Make or upgrade the tables where needed; raises StoreError for a newer or foreign schema."""
    with reader.begin() as connection:
        if _is_present(connection):
            return
    with writer.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if _is_present(connection):
            return
        version = schema_version(connection)
        if version is not None and connection.dialect.name == "sqlite":
            _back_up(Path(connection.engine.url.database or ""), version)
        _upgrade(connection)


def _is_present(connection: Connection) -> bool:
    version = schema_version(connection)
    if version is not None and version > SCHEMA:
        raise StoreError(
            "this database was written by a newer noctune",
            where=show_url(connection.engine.url),
            why=f"its schema is {version}, this version knows {SCHEMA}",
            fix="Upgrade noctune.",
        )
    return version == SCHEMA


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    drop_views(connection)
    command.upgrade(config, "head")
    create_views(connection)


def _back_up(path: Path, version: str) -> None:
    """Copy the file beside itself; the caller holds the write lock, so nobody changes it."""
    final = path.with_name(f"{path.name}.schema-{version}.bak")
    part = path.with_name(f"{final.name}.part")
    part.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as copy:
        source.backup(copy)
    os.replace(part, final)
