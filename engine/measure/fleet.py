"""All worker processes of a tuner: who is idle, what has come back.

In: jobs for named workers.  Out: an event for each job.  A worker that died is started again at
once, so the caller only sees the failed job.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import NoctuneError
from engine.measure.folders import Scratch
from engine.measure.process import Worker
from engine.measure.protocol import Done, Failed, Setup

_TICK_S = 0.05
"""Longest wait between two looks at deadlines and memory."""
_JUMP_S = 1.0
"""A longer gap between two looks means that this process was stopped."""
_MAX_FAILED_STARTS = 3


@dataclass(frozen=True, slots=True)
class Event:
    """How a job ended; `token` is what it was submitted with."""

    worker: Worker
    token: Any
    outcome: Done | Failed


class Fleet:
    """Starts the workers, hands out jobs, collects outcomes, buries and restarts the dead."""

    def __init__(self, setups: Sequence[Setup], scratch: Scratch, start_timeout_s: float) -> None:
        self._pid = os.getpid()
        self._scratch = scratch
        self.workers = [Worker(setup, start_timeout_s) for setup in setups]
        self._failed_starts = 0
        self._seen = time.monotonic()

    def start(self) -> None:
        """Start what does not run; NoctuneError if the machine cannot."""
        for worker in self.workers:
            if worker.running:
                continue
            self._scratch.renew(worker.setup.folder)
            try:
                worker.start()
            except OSError as error:
                raise NoctuneError(
                    "cannot start a measuring process", why=error.strerror or str(error),
                    fix="Check the limits on processes, open files and memory.",
                ) from error  # fmt: skip

    def poll(self, timeout_s: float = _TICK_S) -> list[Event]:
        """Wait a little and give what has ended meanwhile; restarts dead workers."""
        self._wait(min(timeout_s, _TICK_S))
        events = []
        for worker in self.workers:
            ended = worker.pump()
            if ended is None:
                continue
            token, outcome = ended
            if token is not None:
                events.append(Event(worker, token, outcome))
            else:
                self._note_start(outcome)
        self.start()
        return events

    def _wait(self, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                if worker.running:
                    selector.register(worker.reader, selectors.EVENT_READ)
                if worker.unsent >= 0:
                    selector.register(worker.unsent, selectors.EVENT_WRITE)
            selector.select(timeout_s)
        now = time.monotonic()
        if now - self._seen > _JUMP_S:
            for worker in self.workers:
                worker.postpone(now - self._seen)
        self._seen = now

    def rest(self) -> None:
        """Nobody looked for a while, on purpose."""
        self._seen = time.monotonic()

    def _note_start(self, outcome: Done | Failed) -> None:
        if isinstance(outcome, Done):
            self._failed_starts = 0
            return
        self._failed_starts += 1
        if self._failed_starts >= _MAX_FAILED_STARTS:
            raise NoctuneError("the measuring processes do not start", why=outcome.message)

    def cancel(self) -> None:
        """Kill every worker that still has a job, so that no answer comes late."""
        for worker in self.workers:
            if worker.running and worker.job is not None:
                worker.kill()

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # a forked copy must not end its parent's workers
        for worker in self.workers:
            worker.kill()
