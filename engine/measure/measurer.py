"""Measuring a round of candidates: build, run, verify and time them in worker processes.

In: a search task and schedules.  Out: one `MeasureRecord` per schedule, in their order, whatever
the candidates do.  Compiling and a first look at each candidate overlap; then the whole batch is
timed in further interleaved passes while nothing compiles, and the best few once more at the end.
How the machine behaves is watched by a probe kernel before and after each pass.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import prod
from types import TracebackType

from engine.errors import NoctuneError, TargetError
from engine.graph.task import SearchTask
from engine.measure.batch import Batch, Memory, Result
from engine.measure.fleet import Fleet
from engine.measure.folders import Scratch
from engine.measure.lock import machine_lock, never
from engine.measure.options import MeasureOptions
from engine.measure.protocol import Setup
from engine.records import MeasureRecord, Schedule, TimingMode
from engine.target import Target, missing_features

_log = logging.getLogger(__name__)
_DEFAULT_MEMORY = 8 << 30
_MEMORY_SHARE = 0.6
_MAX_COMPILERS = 16
_LEAST_SCALE = 0.8
"""If the anchor is slower than that, the machine was disturbed rather than slow: some candidates
had undisturbed moments, and would look faster than they are."""


def _nothing() -> None:
    """Done beside building by default."""


class Measurer:
    """The worker processes of one tuner; use as a context manager.

    `threads` is the number of threads that kernels run on.  `notify` gets lines for people (waiting
    for the lock, progress); by default they are logged.  Nobody waits for the lock once `give_up`
    says so.  Raises TargetError if this machine cannot run code for the target, NoctuneError if it
    cannot run workers.
    """

    def __init__(
        self,
        target: Target,
        threads: int = 1,
        timing_mode: TimingMode = TimingMode.COLD_WEIGHTS,
        options: MeasureOptions | None = None,
        notify: Callable[[str], None] | None = None,
        give_up: Callable[[], bool] = never,
    ) -> None:
        self.target, self.threads, self.timing_mode = target, threads, timing_mode
        self.options = options or MeasureOptions()
        self._notify, self._give_up = notify or _log.info, give_up
        self._busy = threading.Lock()
        self._fleet: Fleet | None = None
        self._memory = Memory()

    def __enter__(self) -> Measurer:
        _check(self.target, self.threads)
        self._scratch = Scratch(self.options.scratch)
        try:
            self._fleet = Fleet(self._setups(), self._scratch, self.options.start_timeout_s)
            self._fleet.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and remove their folders; harmless if repeated."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.close()
        self._scratch.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process numbers of the workers."""
        workers = self._fleet.workers if self._fleet else []
        return tuple(w.pid for w in workers if w.pid is not None)

    def measure(
        self,
        task: SearchTask,
        schedules: Sequence[Schedule],
        *,
        run_id: str = "",
        round_index: int = 0,
        predicted: Sequence[float | None] | None = None,
        anchor: MeasureRecord | None = None,
        meanwhile: Callable[[], object] = _nothing,
    ) -> tuple[MeasureRecord, ...]:
        """A record per schedule, in order; failures are records too.

        `anchor` is an old candidate of the task: it is timed again among these, and all times are
        scaled so that it takes as long as on record.  So latencies from different minutes of a
        shared machine compare, as long as all rounds have the same anchor.

        `meanwhile` is called in a thread of its own while candidates are built; timing begins when
        both are done.  What it raises goes to the debug log alone: no measurement is lost by it.

        Threads and timing mode are this measurer's, whatever the task says.  Holds the machine's
        measuring lock meanwhile.  Raises BusyError if `give_up` ended the wait for it, NoctuneError
        if the workers cannot be started at all.
        """
        if self._fleet is None:
            raise NoctuneError("the measurer is closed", fix="Use it in a with block.")
        predicted = [None] * len(schedules) if predicted is None else predicted
        task = replace(task, threads=self.threads, timing_mode=self.timing_mode)
        with self._busy, machine_lock(self.options.lock_path, self._notify, self._give_up):
            batch = Batch(self._fleet, self._memory, task, self.options, self._notify)
            self._fleet.rest()
            known = [anchor.schedule] if anchor and schedules else []
            try:
                with _beside(meanwhile) as join:
                    results = batch.run([*known, *schedules], always=len(known), built=join)
            except BaseException:
                self._fleet.cancel()
                raise
        created, scale = time.time(), 1.0
        if anchor and schedules:
            scale = _scale(anchor, results.pop(0))
        return tuple(
            result.record(task, schedule, run_id, round_index, guess, created, scale)
            for result, schedule, guess in zip(results, schedules, predicted, strict=True)
        )

    def fitting(self, task: SearchTask, size: int) -> int:
        """At most `size`: candidates (two at least) whose packed constants the measuring worker can
        hold at once beside the anchor's; with more, every pass would pack them anew."""
        constants = (p.shape for p in task.workload.dag.placeholders if p.constant)
        held = max(1, sum(4 * prod(shape) for shape in constants))
        return min(size, max(2, self.options.resident_bytes // held - 1))

    def preflight(
        self, task: SearchTask, schedules: Sequence[Schedule]
    ) -> tuple[MeasureRecord, ...]:
        """Measure schedules that ought to work; NoctuneError with the first error if none does."""
        records = self.measure(task, schedules)
        if not any(record.valid for record in records):
            first = records[0]
            raise NoctuneError(
                "no candidate of the first search task can be measured on this machine",
                where=task.workload.anchor, why=f"{first.error.value}: {first.message}",
            )  # fmt: skip
        return records

    def _setups(self) -> list[Setup]:
        """The measuring worker first, then the compile workers."""
        allowed = tuple(sorted(os.sched_getaffinity(0)))
        mine = allowed[-self.threads :]
        count = self.options.compile_workers or min(self.target.cores, _MAX_COMPILERS)
        limit = self.options.memory_limit or _memory_limit()
        pause, options = self.options.longest_pause_s, asdict(self.options)
        setups = [Setup("measure", self.options.runner, self._scratch.folder("measure"), mine,
                        limit, pause, options)]  # fmt: skip
        setups += [
            Setup("compile", self.options.builder, self._scratch.folder(f"compile{i}"), allowed,
                  limit, pause, options)
            for i in range(count)
        ]  # fmt: skip
        return setups


@contextmanager
def _beside(work: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Does `work` in a thread of its own; gives a function that waits for its end, as leaving the
    context does."""

    def run() -> None:
        try:
            work()
        except Exception:
            _log.debug("what was to be done beside building failed", exc_info=True)

    thread = threading.Thread(target=run, name="noctune-beside", daemon=True)
    thread.start()
    try:
        yield thread.join
    finally:
        thread.join()


def _scale(anchor: MeasureRecord, now: Result) -> float:
    """What brings this batch's times to those of the anchor's record; 1 if it failed now."""
    if not anchor.valid or now.failed is not None:
        return 1.0
    return max(anchor.latency / min(now.kept), _LEAST_SCALE)


def _check(target: Target, threads: int) -> None:
    missing = missing_features(target)
    if missing:
        raise TargetError(
            f"this machine cannot run code for target '{target.name}'",
            why=f"it lacks {', '.join(missing)}", fix="Choose target host.",
        )  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    if not 1 <= threads <= cores:
        raise TargetError(
            f"cannot measure on {threads} threads", why=f"this process may use {cores} cores"
        )


def _memory_limit() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_DEFAULT_MEMORY, int(total * _MEMORY_SHARE))
