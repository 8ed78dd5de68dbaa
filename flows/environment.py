"""Prefect's settings for the command line, and its in-process server.

Must run before Prefect is imported.  Whatever the user has set stays as it is.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

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


def start_server() -> None:
    """Start Prefect's temporary server if no other is configured.

    The server is a child process of the terminal's group, so that Ctrl-C would end it before the
    flow has reported how it ended: it is started with the signal blocked.
    """
    from prefect.settings import get_current_settings

    if get_current_settings().api.url:
        return
    from prefect.server.api.server import SubprocessASGIServer

    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        SubprocessASGIServer().start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def kill_server() -> None:
    """End the temporary server at once; only for a second Ctrl-C."""
    import sys

    module = sys.modules.get("prefect.server.api.server")
    for server in list(getattr(getattr(module, "SubprocessASGIServer", None), "_instances", {}).values()):
        if server.server_process is not None:
            server.server_process.kill()
