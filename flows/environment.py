"""Prefect's settings for the command line.

Must run before Prefect is imported.  Whatever the user has set stays as it is.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
}
"""Nothing is sent anywhere."""

RETRIES = {"PREFECT_CLIENT_MAX_RETRIES": "3"}
"""Each call waits about 20 s in all for a server that is started again, and no minutes for one that
is gone for good: a flow makes several calls before it ends."""

IN_JSON = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json",
    "PREFECT_LOGGING_HANDLERS_DEBUG_FORMATTER": "json",
    "PREFECT_LOGGING_COLORS": "false",
}
"""Each line of Prefect's is one JSON object."""

CONSOLE = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"
INTERNAL = "PREFECT_LOGGING_INTERNAL_LEVEL"


def prepare_prefect(verbose: bool = False, log_json: bool = False) -> None:
    """Set the defaults; Prefect's own log lines reach the terminal only if `verbose`."""
    if log_json:
        os.environ.update(IN_JSON)
    for name, value in (QUIET | RETRIES).items():
        os.environ.setdefault(name, value)
    if not verbose:
        os.environ.setdefault(CONSOLE, "CRITICAL")
        os.environ.setdefault(INTERNAL, "CRITICAL")
    os.environ.setdefault("PREFECT_HOME", str(_home()))


def _home() -> Path:
    """~/.prefect, or a folder of this user for temporary files where the home cannot be written."""
    home = Path.home() / ".prefect"
    parent = home if home.exists() else home.parent
    if os.access(parent, os.W_OK):
        return home
    return Path(tempfile.gettempdir()) / f"noctune-prefect-{os.getuid()}"


def server_seems_named() -> bool:
    """Whether environment or profile name a server, as far as one can tell without Prefect.

    Prefect reads further places; `server_is_configured` knows for certain, and takes seconds.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    path = Path(os.environ.get("PREFECT_HOME") or _home()) / "profiles.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    profile = os.environ.get("PREFECT_PROFILE") or found.get("active")
    return bool(found.get("profiles", {}).get(profile, {}).get("PREFECT_API_URL"))


def server_is_configured() -> bool:
    """Whether Prefect's settings name a server."""
    from prefect.settings import get_current_settings

    return bool(get_current_settings().api.url)
