"""Prefect's settings for the command line, and its in-process server.

Must run before Prefect is imported.  Whatever the user has set stays as it is.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from engine.errors import NoctuneError

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
"""Nothing is sent anywhere, and a slow first start is waited for."""

CONSOLE = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"


def prepare_prefect(verbose: bool = False) -> None:
    """Set the defaults; Prefect's own log lines reach the terminal only if `verbose`."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not verbose:
        os.environ.setdefault(CONSOLE, "CRITICAL")
    os.environ.setdefault("PREFECT_HOME", str(_home()))


def _home() -> Path:
    """~/.prefect, or a folder of this user for temporary files where the home cannot be written."""
    home = Path.home() / ".prefect"
    parent = home if home.exists() else home.parent
    if os.access(parent, os.W_OK):
        return home
    return Path(tempfile.gettempdir()) / f"noctune-prefect-{os.getuid()}"


def server_is_named() -> bool:
    """Whether environment or profile name a server; found without importing Prefect."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    try:
        return "PREFECT_API_URL" in (_home() / "profiles.toml").read_text(encoding="utf-8")
    except OSError:
        return False


def server_is_configured() -> bool:
    """Whether the user's settings name a Prefect server."""
    from prefect.settings import get_current_settings

    return bool(get_current_settings().api.url)


@contextmanager
def server_starting() -> Iterator[None]:
    """Start Prefect's temporary server, if no other is configured, while the block runs.

    The server is a child process of the terminal's group, so that Ctrl-C would end it before the
    flow has reported how it ended: it is started with the signal blocked.  Raises NoctuneError if
    it does not start.
    """
    if server_is_configured():
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(_start_server)
        yield
        try:
            done.result()
        except Exception as error:
            raise NoctuneError(
                "Prefect's temporary server does not start",
                why=" ".join(str(error).split())[:300],
                fix="Run again, or set PREFECT_API_URL to a running server.",
            ) from error


def _start_server() -> None:
    from prefect.server.api.server import SubprocessASGIServer

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    SubprocessASGIServer().start()


def kill_server() -> None:
    """End the temporary server at once; only for a second Ctrl-C."""
    module = sys.modules.get("prefect.server.api.server")
    servers = getattr(getattr(module, "SubprocessASGIServer", None), "_instances", {})
    for server in list(servers.values()):
        if server.server_process is not None:
            server.server_process.kill()
