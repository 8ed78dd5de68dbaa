"""Running a flow from the command line: quiet Prefect, a server that outlives Ctrl-C, progress.

In: a command's arguments and the function that calls its flow.  Out: that function's exit code.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable

from flows.environment import prepare_prefect
from flows.interrupts import stoppable
from flows.progress import terminal_progress, watching


def run_flow(args: argparse.Namespace, command: Callable[[argparse.Namespace], int]) -> int:
    """Call `command(args)` with Prefect ready, Ctrl-C caught and progress on the terminal."""
    prepare_prefect(getattr(args, "verbose", False))
    progress = terminal_progress(json=getattr(args, "json", False))
    with stoppable(progress.say), watching(progress):
        from flows.environment import start_server

        try:
            start_server()
        except RuntimeError as error:
            from engine.errors import NoctuneError

            raise NoctuneError(
                "Prefect's temporary server does not start",
                why=" ".join(str(error).split())[:300],
                fix="Run again, or set PREFECT_API_URL to a running server.",
            ) from error
        logging.getLogger("noctune").addHandler(logging.StreamHandler(sys.stderr))
        return command(args)
