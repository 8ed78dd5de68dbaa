"""The servers that the campaign kills: Prefect's and PostgreSQL, each in a folder of its own.

In: a folder.  Out: servers that can be killed and started again.  PostgreSQL runs with the settings
that make a commit durable, unlike the one of the tests.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.kills.processes import wait_for
from flows.environment import QUIET
from tests.db.postgres_server import Server, _plain_user, find_programs, free_port

_START_S = 600.0


class PrefectServer:
    """`prefect server start`, named by PREFECT_API_URL."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self._home = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def start(self, *, fresh: bool = False) -> None:
        """Start it and wait until it answers; `fresh` with an empty database of its own."""
        self._home += fresh or not self._home
        home = self._folder / f"prefect-{self._home}"
        home.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, **QUIET, "PREFECT_HOME": str(home),
               "PREFECT_SERVER_API_PORT": str(self.port)}  # fmt: skip
        env.pop("PREFECT_API_URL", None)
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1",
                   "--port", str(self.port), "--no-services"]  # fmt: skip
        with open(self._folder / "prefect.log", "ab") as log:
            self._process = subprocess.Popen(
                command, env=env, cwd=self._folder, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        if not wait_for(self.answers, _START_S):
            raise RuntimeError(f"Prefect's server does not start: {self._folder / 'prefect.log'}")

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """SIGKILL for all of its processes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class DurableServer(Server):
    """PostgreSQL that has a commit on disk before it says so."""

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
            "-c max_connections=60"
        )
        log = str(self.folder / "server.log")
        data = str(self.folder / "data")
        self._run("pg_ctl", "-D", data, "-l", log, "-w", "-t", "120", "-o", options, "start")

    def drop_connections(self) -> int:
        """End every connection of noctune; returns how many there were."""
        with self.admin() as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'noctune' AND pid <> pg_backend_pid()"
            ).fetchall()
        return len(found)


@contextlib.contextmanager
def postgresql() -> Iterator[DurableServer]:
    """A running server, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="noctune-kills-pg-"))
    user = _plain_user() if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    server = DurableServer(find_programs(), folder, free_port(), user)
    try:
        server.create()
        server.start()
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of Prefect or noctune, and `extra`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "NOCTUNE_"))}
    return {**kept, **QUIET, "PYTHONUNBUFFERED": "1", **extra}
