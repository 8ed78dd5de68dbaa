"""Stores of every kind for the tests, and records to put into them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import Server

from db.models import Base
from db.store import Store, open_store


@pytest.fixture(scope="session")
def postgres_shared(postgres: Server) -> str:
    """The URL of a database that tests use one after the other, emptied in between."""
    url = postgres.new_database()
    open_store(url).close()
    return url


def empty_tables(url: str) -> None:
    names = ", ".join(Base.metadata.tables)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE".encode())


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "records.db"
    open_store(str(path)).close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that is still empty."""
    if request.param == "sqlite":
        return str(tmp_path / "records.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def sql_store(sql_url: str) -> Iterator[Store]:
    with open_store(sql_url) as store:
        yield store


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of every kind."""
    if request.param == "memory":
        url = "memory:"
    elif request.param == "sqlite":
        url = str(tmp_path / "records.db")
        shutil.copy(request.getfixturevalue("sqlite_template"), url)
    else:
        url = request.getfixturevalue("postgres_shared")
        empty_tables(url)
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Makes further SQLite stores in the test's folder."""
    made: list[Store] = []

    def make() -> Store:
        made.append(open_store(str(tmp_path / f"other_{len(made)}.db")))
        request.addfinalizer(made[-1].close)
        return made[-1]

    return make
