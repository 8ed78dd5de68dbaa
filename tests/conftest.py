"""Options of the whole test run, and the servers that tests of several folders share."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flows.environment import prepare_prefect

if TYPE_CHECKING:
    from tests.db.postgres_server import Server

HOME = tempfile.mkdtemp(prefix="noctune-tests-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ["PREFECT_HOME"] = HOME
for name in ("PREFECT_API_URL", "PREFECT_PROFILE"):
    os.environ.pop(name, None)
prepare_prefect()  # before anything imports Prefect


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew instead of comparing"
    )


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """Flows that are called run against a temporary server, and so do commands."""
    from prefect.settings import get_current_settings
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=900), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_API_URL", str(get_current_settings().api.url))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL, thrown away at the end."""
    from tests.db.postgres_server import running_server

    with running_server() as server:
        yield server
