"""Ctrl-C: once to stop after the round, twice to end at once.  SIGTERM is never lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flows.prefect_run
from flows.interrupts import INTERRUPTED, stop_event, stoppable
from flows.prefect_run import run_flow

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import time
from flows.interrupts import stoppable
with stoppable(lambda text: print(text, flush=True)) as event:
    print("ready", flush=True)
    event.wait(60)
    print("asked to stop", flush=True)
    time.sleep(60)
"""

LOST = """
import os, signal, sys, time
from prefect.exceptions import TerminationSignal
from contextlib import nullcontext
from flows.interrupts import insisting_on_termination

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        print("not reached", flush=True)

def handle(number, frame):
    raise TerminationSignal(number)

signal.signal(signal.SIGTERM, handle)
before = sys.unraisablehook
try:
    with insisting_on_termination() if sys.argv[1] == "insist" else nullcontext():
        Finalized()
        time.sleep(2)
        print("went on", flush=True)
except TerminationSignal:
    print("ended", flush=True)
assert sys.unraisablehook is before
"""


def test_first_sets_the_event_and_says_so() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with stoppable(said.append) as event:
        assert stop_event() is event and not event.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert event.wait(5)
    assert len(said) == 1 and "again to end at once" in said[0]
    assert signal.getsignal(signal.SIGINT) is before
    assert not stop_event().is_set()


def test_before_the_flow_begins_the_first_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing yet that could stop in good order."""

    @contextmanager
    def starting(_meanwhile: object) -> Iterator[None]:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        yield

    monkeypatch.setattr(flows.prefect_run, "prefect_server", starting)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        with pytest.raises(KeyboardInterrupt):
            run_flow(Namespace(), lambda _: pytest.fail("it began"), flow="tune", stops=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_second_ends_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.readline()
        assert "Stopping" in said, process.communicate(timeout=30)
        assert process.stdout.readline() == "asked to stop\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED
    assert "all finished rounds are stored" in errors


@pytest.mark.parametrize(("how", "end"), [("insist", "ended\n"), ("plainly", "went on\n")])
def test_sigterm_in_a_finalizer_is_sent_again(how: str, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST, how], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == end
    assert ("Exception ignored" in done.stderr) is (how == "plainly")
