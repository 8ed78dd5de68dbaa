"""Signals: the first Ctrl-C asks the flow to stop after what it is doing, the second ends at once,
and so does one before the flow begins; SIGTERM ends a flow by an exception that Prefect raises.

In: nothing.  Out: an event that flows look at between steps.  Records are committed round by round,
so that even the second Ctrl-C loses no more than the round in progress.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""

ENDED = "\nnoctune: ended; all finished rounds are stored"

_AGAIN_S = 0.05

_event: ContextVar[threading.Event | None] = ContextVar("noctune_stop", default=None)


def stop_event() -> threading.Event:
    """The event of the command that runs, or one that nobody ever sets."""
    return _event.get() or threading.Event()


@contextmanager
def ending() -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt, also in a job that a shell put into the background
    (there it is ignored at first)."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


@contextmanager
def stoppable(say: Callable[[str], None], last_words: str = ENDED) -> Iterator[threading.Event]:
    """Inside, the first Ctrl-C sets the event and says so, the second exits with code 130."""
    event = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if event.is_set():
            end_at_once(last_words)
        event.set()
        say("Stopping after what is being measured (press Ctrl-C again to end at once) ...")

    old = signal.signal(signal.SIGINT, handle)
    token = _event.set(event)
    try:
        yield event
    finally:
        _event.reset(token)
        signal.signal(signal.SIGINT, old)


@contextmanager
def insisting_on_termination() -> Iterator[None]:
    """Inside, SIGTERM is sent again where its exception was lost.

    Python ignores exceptions in finalizers and callbacks.  If the signal comes just then the flow
    would go on as if nobody had asked it to end.
    """
    from prefect.exceptions import TerminationSignal

    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is TerminationSignal:
            again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM))
            again.daemon = True
            again.start()
        else:
            before(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def end_at_once(last_words: str) -> None:
    """Leave without unwinding; workers and the temporary server die with their parent."""
    if sys.stdout.isatty():
        os.write(1, b"\x1b[?25h")  # a live table hides the cursor
    os.write(2, f"{last_words}\n".encode())
    os._exit(INTERRUPTED)
