"""Running a flow from the command line: quiet Prefect, a server, Ctrl-C, progress.

In: a command's arguments and the function that calls its flow.  Out: that function's exit code.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

from engine.errors import NoctuneError
from flows.environment import prepare_prefect, server_seems_named
from flows.interrupts import ENDED, ending, stoppable
from flows.json_lines import JsonLines, json_line, show_warning, tell
from flows.prefect_server import prefect_server
from flows.progress import terminal_progress, watching

_PREFECT = {"prefect", "httpx", "httpcore", "websockets"}
"""Packages whose errors are the server's, or of the way to it."""


def run_flow(
    args: argparse.Namespace,
    command: Callable[[argparse.Namespace], int],
    *,
    flow: str,
    check: Callable[[argparse.Namespace], object] | None = None,
    stops: bool = False,
) -> int:
    """Call `command(args)` with Prefect ready and progress on the terminal.

    While a temporary server starts the module of the `flow` is imported and `check(args)` is
    called: what it raises ends the command at once, and so does Ctrl-C.  With `stops` the first
    Ctrl-C after that only asks the flow to stop.
    """

    def meanwhile() -> None:
        if check is not None:
            check(args)
        import_module(f"flows.{flow}")

    log_json = getattr(args, "log_json", False)
    prepare_prefect(getattr(args, "verbose", False), log_json)
    if sys.stderr.isatty() and not server_seems_named():
        tell(args, "Starting Prefect's temporary server ...")
    progress = terminal_progress(json=getattr(args, "json", False), log_json=log_json)
    with ExitStack() as stack:
        if stops:
            stack.enter_context(ending())
        stack.enter_context(watching(progress))
        stack.enter_context(_warnings(log_json))
        stack.enter_context(prefect_server(meanwhile))
        if stops:
            last_words = json_line(ENDED.strip()) if log_json else ENDED
            stack.enter_context(stoppable(progress.say, last_words))
        try:
            return command(args)
        except Exception as error:
            known = _known(error)
            if known is None:
                raise
            raise known from error


def _known(error: Exception) -> NoctuneError | None:
    """What a user can do about an error of parameters or of the server, None for others."""
    from flows.parameters import refusal

    if type(error).__module__.partition(".")[0] in _PREFECT:
        return NoctuneError(
            "the Prefect server failed",
            why=" ".join(str(error).split())[:300] or type(error).__name__,
            fix="All finished rounds are stored; run the same command again.",
        )
    return refusal(error)


@contextmanager
def _warnings(log_json: bool) -> Iterator[None]:
    """Our own warnings go to standard error; in JSON, so do Python's."""
    log, handler = logging.getLogger("noctune"), logging.StreamHandler(sys.stderr)
    with warnings.catch_warnings():
        if log_json:
            handler.setFormatter(JsonLines())
            warnings.showwarning = show_warning
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)
