"""Schema versions: made, upgraded with a backup, refused when newer or foreign."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from store_samples import SCOPE, record

from db.connect import connect
from db.migrate import SCHEMA, VERSION_TABLE
from db.models import Base
from db.sql_store import SqlStore
from db.store import open_store
from db.values import unpack_features
from engine.errors import StoreError

DATA = Path(__file__).with_name("data")
OLD_FILES = sorted(DATA.glob("schema_*.db"))
SEEN = (11.9252, 12.247, 1.0, 0.25, 0.375, 0.0, 1.25, 3.70044)
FEATURES = {"schema_0002": [tuple(x + i for x in SEEN) for i in (1, 2)]}
"""What the first records of a file hold as features."""


def run_sql(url: str, *statements: str) -> None:
    sql_engine = connect(url)
    with sql_engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    sql_engine.dispose()


def migrations_to(connection: Any, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    import db.migrations

    config = Config()
    config.set_main_option("script_location", str(Path(db.migrations.__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def test_schema_is_the_head_of_the_migrations() -> None:
    from alembic.script import ScriptDirectory

    import db.migrations

    script = ScriptDirectory(str(Path(db.migrations.__file__).parent))
    assert script.get_current_head() == SCHEMA
    revisions = [revision.revision for revision in script.walk_revisions()]
    assert sorted(revisions) == [f"{i + 1:04d}" for i in range(len(revisions))]


def test_every_old_schema_has_a_database_file() -> None:
    old = [f"{i:04d}" for i in range(1, int(SCHEMA))]
    assert [path.stem.removeprefix("schema_") for path in OLD_FILES] == old


def test_migrations_arrive_at_the_models(sql_store: SqlStore) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    options = {"version_table": VERSION_TABLE, "compare_server_default": True}
    with sql_store._reader.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize("old", OLD_FILES, ids=lambda path: path.stem)
def test_old_file_is_upgraded_in_place_with_a_backup(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    shutil.copy(old, path)
    with open_store(str(path)) as store:
        stats = store.stats()
        assert (stats.records, stats.valid, stats.rounds, stats.schema) == (18, 15, 3, SCHEMA)
        assert store.best(["conv-a", "conv-b"], SCOPE)["conv-a"].latency == 1e-3 / 7
        assert [e.median for e in store.evaluations("net")] == [0.0085]
        assert store.compiled_networks()[0].details == {}
        packed = store.model_rows(SCOPE).features
        assert [unpack_features(f) for f in packed if f] == FEATURES.get(old.stem, [])
        assert store.add_records([record(77)]) == 1
    version = old.stem.removeprefix("schema_")
    backup = tmp_path / f"records.db.schema-{version}.bak"
    with closing(sqlite3.connect(backup)) as saved, closing(sqlite3.connect(old)) as original:
        for table in ("measure_records", "tuning_rounds", VERSION_TABLE):
            query = f"SELECT * FROM {table} ORDER BY 1, 2"[: 25 + len(table)]
            assert saved.execute(query).fetchall() == original.execute(query).fetchall()
    assert {file.name for file in tmp_path.iterdir()} == {path.name, backup.name}


def test_old_schema_is_upgraded_on_both_databases(sql_url: str) -> None:
    sql_engine = connect(sql_url)
    with sql_engine.begin() as connection:
        migrations_to(connection, "0001")
    sql_engine.dispose()
    with open_store(sql_url) as store:
        store.register_network("net", "h", {"conv-a": 1})
        store.add_compiled_network("net", SCOPE, "p", "h", details={"defaults": ["conv-a"]})
        assert store.compiled_networks()[0].details == {"defaults": ["conv-a"]}


def test_features_move_into_their_column(sql_url: str) -> None:
    """As JSON in `extra`, they were what took longest to read."""
    with open_store(sql_url) as store:
        given = [record(i, extra={"a": 1, "features": [0.5 + i, 1e-7]}) for i in range(2)]
        store.add_records([*given, record(2), record(3, extra={"features": "none"})])
        before = list(store.iter_records())
    run_sql(
        sql_url,
        "UPDATE measure_records SET features = NULL,"
        """ extra = '{"a": 1, "features": [0.5, 1e-7]}' WHERE id = 1""",
        "UPDATE measure_records SET features = NULL,"
        """ extra = '{"a": 1, "features": [1.5, 1e-7]}' WHERE id = 2""",
        "ALTER TABLE measure_records DROP COLUMN features",
        f"UPDATE {VERSION_TABLE} SET version_num = '0002'",
    )
    with open_store(sql_url) as store:
        assert list(store.iter_records()) == before
        assert [f and unpack_features(f) for f in store.model_rows(SCOPE).features] == [
            (0.5, 1e-7), (1.5, 1e-7), None, None
        ]  # fmt: skip


def test_a_failed_upgrade_leaves_the_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    shutil.copy(OLD_FILES[0], path)
    before = dump(path)

    def broken(connection: Any) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr("db.migrate.create_views", broken)
    with pytest.raises(RuntimeError, match="in the middle"):
        open_store(str(path))
    assert dump(path) == before


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_newer_schema_is_refused(sql_url: str) -> None:
    open_store(sql_url).close()
    run_sql(sql_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"newer noctune.*schema is 9999.*Upgrade noctune"):
        open_store(sql_url)


def test_foreign_database_is_refused_and_left_alone(sql_url: str) -> None:
    run_sql(sql_url, "CREATE TABLE flow_run (id INTEGER)", "CREATE TABLE alembic_version (v TEXT)")
    with pytest.raises(StoreError, match=r"belongs to something else.*alembic_version, flow_run"):
        open_store(sql_url)
    sql_engine = connect(sql_url)
    with sql_engine.begin() as connection:
        tables = sql_engine.dialect.get_table_names(connection)
    sql_engine.dispose()
    assert sorted(tables) == ["alembic_version", "flow_run"]


@pytest.mark.parametrize("kind", ["foreign", "newer"])
def test_a_refused_file_keeps_every_byte(tmp_path: Path, kind: str) -> None:
    """Its journal mode, too."""
    path = tmp_path / "records.db"
    table = {"foreign": "flow_run", "newer": VERSION_TABLE}[kind]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"CREATE TABLE {table} (version_num TEXT); INSERT INTO {table} VALUES ('9999');"
        )
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"something else|newer noctune"):
        open_store(str(path))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_opening_again_changes_nothing(sql_url: str) -> None:
    with open_store(sql_url) as store:
        store.add_records([record(0)])
    with open_store(sql_url) as store:
        assert store.stats().records == 1
