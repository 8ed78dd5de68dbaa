"""Running a flow from the command line: quiet Prefect, a server that outlives Ctrl-C, progress.

In: a command's arguments and the function that calls its flow.  Out: that function's exit code.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable

from flows.environment import prepare_prefect, server_is_configured, server_starting
from flows.interrupts import stoppable
from flows.progress import terminal_progress, watching


def run_flow(args: argparse.Namespace, command: Callable[[argparse.Namespace], int]) -> int:
    """Call `command(args)` with Prefect ready, Ctrl-C caught and progress on the terminal."""
    prepare_prefect(getattr(args, "verbose", False))
    progress = terminal_progress(json=getattr(args, "json", False))
    with stoppable(progress.say), watching(progress):
        if not server_is_configured():
            progress.say("Starting Prefect's temporary server ...")
        with server_starting():
            from flows import tune  # noqa: F401  the heavy imports, while the server starts
        logging.getLogger("noctune").addHandler(logging.StreamHandler(sys.stderr))
        return command(args)
