"""A tuning session: everything that one run holds open, and the state that its rounds share.

In: models, a database, a target.  Out: rounds of measured records, committed.  The session is a
plain class on purpose: Prefect searches dataclasses and containers that are passed to a task, and
would walk through whole networks.

All state follows from the database: a session that opens after a crash goes on where the last
committed round left off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self

from db.store import Store, open_store
from db.values import RoundInfo, RunStatus
from engine.errors import ModelError
from engine.graph.task import SearchTask
from engine.measure import MeasureOptions, Measurer
from engine.measure.in_network import Timed
from engine.records import MeasureRecord, RecordScope, TimingMode
from engine.search import Choice, Proposal
from engine.target import Target, missing_features, named
from tasks.elsewhere import in_order, records_nearby, samples_elsewhere
from tasks.machine import machine_info
from tasks.networks import Network, Shapes, distinct_names, load_network, merge_tasks
from tasks.searching import Searching
from tasks.table import TaskRow, anchor_record, best_latency, estimate, expected_gain, task_rows


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a tuning run is asked to do, apart from its budget."""

    db: str
    target: str = "host"
    threads: int | None = None
    seed: int = 0
    run_id: str = ""
    accuracy: str = "default"
    timing_mode: str = TimingMode.COLD_WEIGHTS.value


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What a round brought; latencies in seconds, None while the task has no valid record."""

    round_index: int
    choice: Choice
    trials: int
    valid: int
    before: float | None
    after: float | None
    first_error: str
    seconds: float

    @property
    def improved(self) -> bool:
        return self.after is not None and (self.before is None or self.after < self.before)


class TuningSession:
    """Open with `with`; then `load` networks, `prepare`, and call `choose` and `run_round`."""

    def __init__(
        self, options: SessionOptions, notify: Callable[[str], None] | None = None
    ) -> None:
        self.options, self.notify = options, notify or (lambda _: None)
        self.target = resolve_target(options.target)
        self.threads = options.threads or self.target.cores
        self.scope = RecordScope(self.target.key, self.threads, TimingMode(options.timing_mode))
        self.networks: list[Network] = []
        self.search_tasks: tuple[SearchTask, ...] = ()
        self.weights: dict[str, dict[str, int]] = {}
        self.history: dict[str, list[MeasureRecord]] = {}
        self.exhausted: set[str] = set()
        self.run_id = ""
        self.round_index = 0
        self.new_trials = 0
        self.stop = threading.Event()
        self.too_long: Callable[[float], bool] = lambda _: False
        """Whether there is no time any more for something of so many seconds."""
        self.earlier = 0.0
        """Seconds of the rounds that earlier attempts of the run made."""
        self.age = 0.0
        """Seconds since the run's first attempt began."""
        self.timed: dict[str, list[tuple[str, Timed]]] = {}
        """Network -> what the selection has measured and not stored yet."""
        self._pending: tuple[int, tuple[MeasureRecord, ...], float] | None = None
        self._stack = ExitStack()
        self.store: Store
        self._measurer: Measurer
        self._search: Searching

    def __enter__(self) -> Self:
        self.store = self._stack.enter_context(open_store(self.options.db))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # -- before the first round -------------------------------------------------------------------

    def load(
        self, model: str, shapes: Shapes | None = None, batch: int = 1, name: str = ""
    ) -> Network:
        """Load and lower one network, under another `name` if one is given.  Raises ModelError."""
        network = load_network(model, self.target, shapes, batch)
        network = replace(network, name=name or network.name)
        distinct_names([*self.networks, network])
        self.networks.append(network)
        return network

    def prepare(self) -> None:
        """Cut the networks into search tasks, read their history, open the run."""
        self.search_tasks = merge_tasks(self.networks, self.threads)
        if not self.search_tasks:
            names = ", ".join(n.name for n in self.networks)
            raise ModelError(
                "there is nothing to tune", where=names, why="no operator has a reduction"
            )
        for task in self.search_tasks:
            self.store.register_workload(
                task.key, {"anchor": task.workload.anchor, **task.workload.description}
            )
        for network in self.networks:
            weights = {t.key: t.weight for t in network.search_tasks(self.threads)}
            self.weights[network.name] = weights
            self.store.register_network(network.name, network.content_hash, weights, network.source)
        self._open_run()
        keys = [t.key for t in self.search_tasks]
        found = self.store.outcomes(keys, self.scope)
        self.history = {key: list(found[key]) for key in keys}
        own = in_order(self.history)
        others = samples_elsewhere(self.store, self.scope, keys, len(own))
        self._search = Searching(
            self.search_tasks, self.target, own, self.options.seed, self.options.accuracy,
            others, self._nearby,
        )  # fmt: skip
        self._measurer = self._stack.enter_context(
            Measurer(
                self.target,
                self.threads,
                self.scope.timing_mode,
                MeasureOptions(),
                self.notify,
                self.give_up_waiting,
            )
        )

    def _nearby(self, key: str) -> list[MeasureRecord]:
        """Good records of other networks' workloads that are like this one."""
        others = self.store.workloads().keys() - self.history.keys()
        return records_nearby(key, others, lambda k, n: self.store.top(k, self.scope, n))

    def _open_run(self) -> None:
        machine = machine_info(self.target)
        self.store.register_machine(machine)
        self.store.register_target(self.scope, describe_target(self.target))
        self.run_id = self.store.start_run(
            [n.name for n in self.networks],
            self.scope,
            asdict(self.options),
            run_id=self.options.run_id,
            machine=machine.key,
        )
        done = self.store.rounds(self.run_id)
        self.round_index = max((r.index for r in done), default=-1) + 1
        self.new_trials = sum(r.trials for r in done if r.task_table)
        self.earlier = sum(max(r.finished - r.started, 0.0) for r in done if r.task_table)
        (run,) = (r for r in self.store.runs() if r.run_id == self.run_id)
        self.age = max(time.time() - run.started, 0.0)

    # -- rounds -----------------------------------------------------------------------------------

    def choose(self) -> Choice | None:
        """The search task that shortens the networks most; None when all spaces are exhausted."""
        return self._search.choose(self.exhausted)

    def give_up_waiting(self) -> bool:
        """Whether another tuner's end need not be waited for any more."""
        return self.stop.is_set() or self.too_long(0.0)

    def give_up(self, choice: Choice) -> None:
        """Give the task no further round in this session."""
        self.exhausted.add(self.search_tasks[choice.index].key)
        self._pending = None

    def run_round(self, choice: Choice, size: int) -> RoundOutcome:
        """Propose, measure and commit one round.

        Safe to repeat after an error: what was measured already is only committed.
        """
        task = self.search_tasks[choice.index]
        before = best_latency(self.history[task.key])
        if self._pending is None or self._pending[0] != self.round_index:
            started = time.time()
            self._pending = (self.round_index, self._measure(task, size), started)
        _, records, started = self._pending
        self._commit(task, records, started)
        failed = [r for r in records if not r.valid]
        return RoundOutcome(
            round_index=self.round_index - 1,
            choice=choice,
            trials=len(records),
            valid=len(records) - len(failed),
            before=before,
            after=best_latency(self.history[task.key]),
            first_error=f"{failed[0].error}: {failed[0].message}" if failed else "",
            seconds=time.time() - started,
        )

    def _measure(self, task: SearchTask, size: int) -> tuple[MeasureRecord, ...]:
        size = self._measurer.fitting(task, size)
        proposals = self._search.propose(task, self.history[task.key], size, self.round_index)
        if not proposals:
            self.exhausted.add(task.key)
            return ()
        records = self._measurer.measure(
            task,
            [p.schedule for p in proposals],
            run_id=self.run_id,
            round_index=self.round_index,
            predicted=[p.predicted for p in proposals],
            anchor=anchor_record(self.history[task.key]),
            meanwhile=partial(self._search.refit, task, len(proposals)),
        )
        return with_origin(records, proposals)

    def _commit(self, task: SearchTask, records: Sequence[MeasureRecord], started: float) -> None:
        extended = {**self.history, task.key: [*self.history[task.key], *records]}
        round_ = RoundInfo(
            run_id=self.run_id,
            index=self.round_index,
            workload_key=task.key,
            estimates={
                name: seconds
                for name, (seconds, untuned) in self.estimates(extended).items()
                if seconds is not None and not untuned
            },
            task_table=tuple(row.to_json() for row in task_rows(self.search_tasks, extended)),
            started=started,
            finished=time.time(),
            trials=len(records),
            valid=sum(r.valid for r in records),
        )
        if records:
            self.store.commit_round(round_, records)
        self._search.add(records)
        self.history = extended
        self.new_trials += len(records)
        self.round_index += 1
        self._pending = None

    def finish(self, status: RunStatus, message: str = "") -> None:
        """Close the run in the database."""
        if self.run_id:
            self.store.finish_run(self.run_id, status, message)

    # -- what is known so far ---------------------------------------------------------------------

    def expected_gain(self, more: int) -> float | None:
        """Share of the estimated time that `more` trials would probably save, None if unknown."""
        histories = [self.history[task.key] for task in self.search_tasks]
        return expected_gain(self.search_tasks, histories, more)

    def rows(self) -> tuple[TaskRow, ...]:
        return task_rows(self.search_tasks, self.history)

    def estimates(
        self, history: dict[str, list[MeasureRecord]] | None = None
    ) -> dict[str, tuple[float | None, int]]:
        """Network -> estimated seconds and the number of its tasks without a valid record."""
        records = self.history if history is None else history
        best = {key: best_latency(found) for key, found in records.items()}
        return {name: estimate(weights, best) for name, weights in self.weights.items()}


def with_origin(
    records: Sequence[MeasureRecord], proposals: Sequence[Proposal]
) -> tuple[MeasureRecord, ...]:
    """The records with their features (other networks learn from them) and why they were tried."""
    by_schedule = {p.schedule.key: p for p in proposals}
    found = []
    for record in records:
        proposal = by_schedule[record.schedule.key]
        features = [float(f"{value:.6g}") for value in proposal.features]
        extra = {**record.extra, "origin": proposal.origin, "features": features}
        found.append(replace(record, extra=extra))
    return tuple(found)


def resolve_target(name: str) -> Target:
    """The target of that name; TargetError for an unknown one or one that this CPU cannot run."""
    target = named(name)
    missing = missing_features(target)
    if missing:
        from engine.errors import TargetError

        raise TargetError(
            f"this CPU cannot run code for target '{name}'",
            why=f"it lacks {', '.join(missing)}",
            fix="Use --target host.",
        )
    return target


def describe_target(target: Target) -> dict[str, Any]:
    """The target in plain words for readers of the database."""
    return {
        "name": target.name,
        "triple": target.triple,
        "cpu": target.cpu,
        "vector_bits": target.vector_bits,
        "cores": target.cores,
        "l1_bytes": target.l1,
        "l2_bytes": target.l2,
        "l3_bytes": target.l3,
        "features": target.feature_string,
    }
