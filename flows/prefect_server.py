"""The Prefect server of one command: the configured one, or a temporary one.

In: what is to be done while a server starts.  Out: a context in which flows can be called.  The
temporary server is started before Prefect is imported here, because both take seconds.  It has a
session of its own, so that Ctrl-C does not reach it, and the kernel ends it with us.
"""

from __future__ import annotations

import atexit
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from engine.errors import NoctuneError
from engine.measure.confine import die_with
from flows.environment import server_is_configured, server_seems_named

_APP = "prefect.server.api.server:create_app"
_PLAIN = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
}
"""What nobody needs of a server that lives for one command is left out: pages, services, blocks."""
_PATIENCE_S = 600.0
"""A server that will never start ends by itself; a slow one on a busy machine is waited for."""
_STARTS = 3
_FIX = "Run again, or set PREFECT_API_URL to a running server."


@contextmanager
def prefect_server(meanwhile: Callable[[], object]) -> Iterator[None]:
    """Flows that are called inside run against a server; `meanwhile` is called while it starts.

    Raises NoctuneError if it does not start or answer; an error of `meanwhile` ends it at once.
    """
    server = None if server_seems_named() else TemporaryServer()
    try:
        meanwhile()
        configured = server_is_configured()
        if server is None and not configured:
            server = TemporaryServer()
        url = None if configured or server is None else server.wait()
    except BaseException:
        if server is not None:
            server.stop()
        raise
    if server is None or url is None:
        if server is not None:
            server.stop()
        _check_answer()
        yield
        return
    from prefect.settings import PREFECT_API_URL, temporary_settings

    atexit.register(server.stop)  # after Prefect has sent its last lines
    with temporary_settings({PREFECT_API_URL: url}):
        yield


def _check_answer() -> None:
    """Raises NoctuneError unless the configured server answers."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error is not None:
        raise NoctuneError(
            "the Prefect server does not answer", where=str(client.api_url),
            why=" ".join(str(error).split())[:300] or type(error).__name__,
            fix="Start it, or unset PREFECT_API_URL: a temporary one is then used.",
        ) from error  # fmt: skip


class TemporaryServer:
    """A server process on a free port of this machine."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the server
        self._stopping = threading.Lock()
        self._stopped = False
        self._start()

    def _start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._launch()

    def _launch(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--factory", _APP, "--host", "127.0.0.1",
             "--port", str(self.port), "--log-level", "error", "--lifespan", "on"],
            env={**os.environ, **_PLAIN}, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, start_new_session=True, preexec_fn=partial(die_with, os.getpid()),
        )  # fmt: skip

    def wait(self) -> str:
        """The URL of its API once it answers.  Raises NoctuneError if it never does."""
        began, starts = time.monotonic(), 1
        while not self._answers():
            ended = self._process.poll() is not None
            if ended and starts < _STARTS:  # another program may have taken the port
                starts += 1
                self._start()
            elif ended or time.monotonic() - began > _PATIENCE_S:
                raise NoctuneError(
                    "Prefect's temporary server does not start", why=self._last_words(), fix=_FIX
                )
            time.sleep(0.05)
        threading.Thread(target=self._keep, daemon=True).start()
        return f"http://127.0.0.1:{self.port}/api"

    def _keep(self) -> None:
        """Start it again on its port when it ends by itself; what it knows is in its database."""
        for _ in range(_STARTS):
            self._process.wait()
            with self._stopping:
                if self._stopped:
                    return
                self._launch()
        self._process.wait()  # it would end with the thread that started it

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/api/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no answer")

    def stop(self) -> None:
        """End it; harmless if repeated."""
        with self._stopping:
            self._stopped = True
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
