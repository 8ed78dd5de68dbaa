"""One round of candidates on its way through the workers.

In: a search task and its schedules.  Out: a `Result` for each.  The steps: compile and first look
(load, verify, try), then, while nothing else runs, interleaved timing passes over all that are
worth it, then passes over the finalists alone.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import NoctuneError
from engine.graph.task import SearchTask
from engine.measure.fleet import Event, Fleet
from engine.measure.options import MeasureOptions
from engine.measure.process import Worker
from engine.measure.protocol import (
    Built,
    Compile,
    Done,
    Failed,
    Prepare,
    Probe,
    Problem,
    Time,
    Timed,
)  # fmt: skip
from engine.records import ErrorKind, MeasureRecord, Schedule

_KEPT_REFERENCES = 4
_KEPT_BUILT = 128
_REPEATED_PASSES = 1
"""Passes made again in a batch; a machine that is busy all night would double every batch."""


@dataclass
class Memory:
    """What a tuner remembers between batches."""

    references: dict[str, Any] = field(default_factory=dict)
    """Reference results by workload, so that a restarted worker need not compute them again."""
    built: dict[tuple[str, str], Built] = field(default_factory=dict)
    """Object code of the best candidates by problem and schedule, as they will be timed again."""
    prepared: tuple[int, str, int] = (0, "", 0)
    """(worker generation, workload, candidates timed) of the measuring worker."""
    best_probe: float = float("inf")
    numbers: int = 0

    def remember(self, key: str, reference: Any) -> None:
        self.references[key] = reference
        _forget(self.references, _KEPT_REFERENCES)

    def keep_built(self, key: tuple[str, str], built: Built) -> None:
        self.built[key] = built
        _forget(self.built, _KEPT_BUILT)


def _forget(held: dict[Any, Any], most: int) -> None:
    """The oldest entries go."""
    while len(held) > most:
        del held[next(iter(held))]


@dataclass
class Result:
    """What is known so far about one candidate."""

    number: int
    built: Built | None = None
    failed: Failed | None = None
    samples: list[tuple[float, bool]] = field(default_factory=list)
    """(seconds of one call, quiet) of each repeat."""
    calls: int = 0
    max_rel_error: float = 0.0

    @property
    def fastest(self) -> float:
        return min((seconds for seconds, _ in self.samples), default=float("inf"))

    @property
    def kept(self) -> list[float]:
        """Seconds of the repeats that were not disturbed, of all if all were."""
        quiet = [seconds for seconds, calm in self.samples if calm]
        return quiet or [seconds for seconds, _ in self.samples]

    def record(
        self,
        task: SearchTask,
        schedule: Schedule,
        run_id: str,
        round_index: int,
        predicted: float | None,
        created: float,
        scale: float = 1.0,
    ) -> MeasureRecord:
        """The row that is stored, its times multiplied by `scale`."""
        failed = self.failed
        quiet = sum(calm for _, calm in self.samples)
        times = tuple(scale * seconds for seconds in self.kept)
        extra: dict[str, Any] = dict(failed.extra) if failed else {
            "calls": self.calls, "max_rel_error": self.max_rel_error,
            "disturbed": len(self.samples) - quiet,
            "spread": max(times) / min(times) - 1.0, "scale": scale,
        }  # fmt: skip
        return MeasureRecord(
            workload_key=task.key,
            scope=task.scope,
            schedule=schedule,
            times=() if failed else times,
            error=failed.kind if failed else ErrorKind.OK,
            message=failed.message if failed else "",
            predicted=predicted,
            run_id=run_id,
            round_index=round_index,
            created=created,
            build_seconds=self.built.seconds if self.built else 0.0,
            noisy=not failed and not quiet,
            extra=extra,
        )


class Batch:
    """Runs one batch on the fleet's workers; `fleet.workers[0]` is the measuring one."""

    def __init__(
        self,
        fleet: Fleet,
        memory: Memory,
        task: SearchTask,
        options: MeasureOptions,
        notify: Callable[[str], None],
    ) -> None:
        self._fleet, self._memory, self._options, self._notify = fleet, memory, options, notify
        self._runner: Worker = fleet.workers[0]
        self._compilers = fleet.workers[1:]
        self._key = f"{task.key}|{task.threads}|{task.timing_mode}"
        problem = Problem(self._key, task.workload, task.target, task.threads, task.timing_mode)
        self._problem = pickle.dumps(problem)
        self._held: set[int] = set()
        self._todo: deque[int] = deque()
        """Candidates that nobody compiles yet."""
        self._patience = _REPEATED_PASSES
        self._pending: list[Event] = []
        self._told = time.monotonic()
        self._name = task.workload.anchor

    def run(
        self, schedules: Sequence[Schedule], always: int, built: Callable[[], object]
    ) -> list[Result]:
        """A result for each; the first `always` of them are timed in every pass.

        `built` is called between building and timing.
        """
        first = self._memory.numbers
        self._always = range(first, first + always)
        self._memory.numbers += len(schedules)
        results = [Result(first + i) for i in range(len(schedules))]
        self._schedules = {r.number: s for r, s in zip(results, schedules, strict=True)}
        self._results = {r.number: r for r in results}
        self._fleet.poll(0.0)  # workers that died between two rounds are started again
        self._first_look()
        built()
        calm = self._calm()
        for _ in range(self._options.passes):
            calm = self._pass(self._worth_it(), self._options.repeat, calm)
        best = self._finalists()
        for _ in range(self._options.final_passes):
            calm = self._pass(self._good(best), self._options.repeat, calm)
        self._keep(self._finalists())
        return results

    def _keep(self, numbers: list[int]) -> None:
        for number in numbers:
            built = self._results[number].built
            assert built is not None
            self._memory.keep_built((self._key, self._schedules[number].key), built)

    # ---- the steps

    def _first_look(self) -> None:
        """Compile all; load, verify and try each as soon as it is compiled."""
        ready = deque[int]()
        for number, result in self._results.items():
            result.built = self._memory.built.get((self._key, self._schedules[number].key))
            (self._todo if result.built is None else ready).append(number)
        open_jobs = len(self._results)
        while open_jobs:
            self._hand_out()
            if ready and self._ready():
                self._submit_time(ready.popleft(), 0)
            for event in self._poll():
                number = event.token
                if event.worker is self._runner:
                    self._note_timed(event)
                    open_jobs -= 1
                elif isinstance(event.outcome, Done):
                    self._results[number].built = event.outcome.value
                    ready.append(number)
                else:
                    self._results[number].failed = event.outcome
                    open_jobs -= 1
            self._progress(open_jobs)

    def _hand_out(self) -> None:
        """A job for every idle compile worker."""
        for worker in self._compilers:
            if self._todo and worker.idle:
                number = self._todo.popleft()
                job = Compile(self._problem, self._schedules[number])
                worker.submit(number, job, self._options.compile_timeout_s)

    def _pass(self, numbers: list[int], repeats: int, calm: bool) -> bool:
        """Time these once more, again if the machine was not calm; gives whether it is now."""
        if not numbers:
            return calm
        marks = self._time_all(numbers, repeats)
        now = self._calm()
        if now and calm:
            return True
        self._mark_disturbed(marks)
        if not self._patience:
            return now
        self._patience -= 1
        marks = self._time_all(self._good(numbers), repeats)
        calm = self._calm()
        if not calm:
            self._mark_disturbed(marks)
        return calm

    def _mark_disturbed(self, marks: dict[int, int]) -> None:
        """The samples taken since then do not count if there are better ones."""
        for number, start in marks.items():
            samples = self._results[number].samples
            samples[start:] = [(seconds, False) for seconds, _ in samples[start:]]

    def _time_all(self, numbers: list[int], repeats: int) -> dict[int, int]:
        """Time these in turn; gives how many samples each had before."""
        marks = {number: len(self._results[number].samples) for number in numbers}
        for number in numbers:
            while not self._ready():
                self._poll()
            self._submit_time(number, repeats)
            while True:
                events = self._poll()
                if events:
                    self._note_timed(events[0])
                    break
            self._progress(0)
        return marks

    # ---- which candidates

    def _good(self, numbers: Iterable[int] | None = None) -> list[int]:
        """Those of `numbers` (by default of all) that have not failed."""
        chosen = self._results if numbers is None else numbers
        return [n for n in chosen if self._results[n].failed is None]

    def _worth_it(self) -> list[int]:
        limit = self._options.prune_factor * self._best()
        found = ((n, self._results[n]) for n in self._good())
        return [
            n for n, r in found
            if r.fastest <= limit or n in self._always or not any(q for _, q in r.samples)
        ]  # fmt: skip

    def _finalists(self) -> list[int]:
        order = sorted(self._good(), key=lambda n: self._results[n].fastest)
        last = order[: self._options.finalists]
        return last + [n for n in order if n in self._always and n not in last]

    def _best(self) -> float:
        return min((self._results[n].fastest for n in self._good()), default=float("inf"))

    # ---- the measuring worker

    def _poll(self) -> list[Event]:
        """What has ended, first what came while something else was waited for."""
        events, self._pending = self._pending, []
        return events or self._fleet.poll()

    def _ready(self) -> bool:
        """Whether the measuring worker is idle and knows the problem; sees to it otherwise."""
        runner, memory = self._runner, self._memory
        if not runner.idle:
            return False
        generation, key, timed = memory.prepared
        if timed >= self._options.recycle_after and generation == runner.generation:
            runner.kill()
            self._fleet.start()
            return False
        if (generation, key) != (runner.generation, self._key):
            self._prepare()
            return False
        return True

    def _prepare(self) -> None:
        """Blocks until the worker has inputs and reference; its own death starts it again."""
        job = Prepare(self._problem, self._memory.references.get(self._key))
        outcome = self._ask(job, self._options.prepare_timeout_s)
        if isinstance(outcome, Failed):  # its death may have been an accident
            outcome = self._ask(job, self._options.prepare_timeout_s)
        if isinstance(outcome, Failed):
            raise NoctuneError(
                "cannot compute the reference result", where=self._name, why=outcome.message
            )
        self._memory.remember(self._key, outcome.value)
        self._memory.prepared = (self._runner.generation, self._key, 0)
        self._held.clear()

    def _ask(self, job: object, seconds: float) -> Done | Failed:
        """One job of the measuring worker that belongs to no candidate."""
        while not self._runner.idle:
            self._pending += self._fleet.poll()
        self._runner.submit(job, job, seconds)
        while True:
            self._hand_out()
            events = self._fleet.poll()
            self._pending += [e for e in events if e.token is not job]
            for event in events:
                if event.token is job:
                    return event.outcome

    def _submit_time(self, number: int, repeats: int) -> None:
        result = self._results[number]
        built = None if number in self._held else result.built
        first = next(iter(self._results))
        job = Time(number, self._schedules[number], built, repeats, result.calls, first)
        self._runner.submit(number, job, self._options.timeout_s)

    def _note_timed(self, event: Event) -> None:
        number = event.token
        result = self._results[number]
        generation, key, timed = self._memory.prepared
        if isinstance(event.outcome, Failed):
            result.failed = event.outcome
            self._held.discard(number)
            if self._runner.generation != generation:
                self._held.clear()
            return
        self._memory.prepared = (generation, key, timed + 1)
        answer: Timed = event.outcome.value
        self._held.add(number)
        self._held.difference_update(answer.dropped)
        result.calls, result.max_rel_error = answer.calls, answer.max_rel_error
        quiet = len(answer.times) - answer.disturbed
        result.samples += [(s, i < quiet) for i, s in enumerate(answer.times)]

    def _calm(self) -> bool:
        """Whether the probe runs about as fast as it ever did."""
        outcome = self._ask(Probe(), self._options.timeout_s)
        if isinstance(outcome, Failed):
            return False
        self._memory.best_probe = min(self._memory.best_probe, outcome.value)
        return bool(outcome.value <= self._memory.best_probe * (1.0 + self._options.noise_limit))

    def _progress(self, left: int) -> None:
        if time.monotonic() - self._told < self._options.progress_s:
            return
        self._told = time.monotonic()
        done = len(self._results) - left
        failed = sum(r.failed is not None for r in self._results.values())
        self._notify(
            f"{self._name}: {done} of {len(self._results)} candidates measured, {failed} failed"
        )
