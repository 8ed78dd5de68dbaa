"""What is measured: the calls that the program makes, through the store that it makes them through.

In: the URL of a filled database.  Out: seconds of each repeat, by figure.  Every figure opens what
it needs before the clock starts, apart from resuming, which begins with nothing open.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.db import world
from db.store import Store, open_store
from db.values import RoundInfo, RunStatus
from tasks.elsewhere import MODEL_ROWS, in_order, samples_elsewhere, samples_of

STORED = 60
"""Rounds that are stored in one repeat."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: what it is, its goal in words and numbers, how to show it."""

    name: str
    what: str
    goal: str
    measure: Callable[[str, int, int], list[float]]
    show: Callable[[float], str]


def _timed(work: Callable[[int], object], repeats: int) -> list[float]:
    seconds = []
    for repeat in range(repeats):
        start = time.perf_counter()
        work(repeat)
        seconds.append(time.perf_counter() - start)
    return seconds


def store_rounds(url: str, runs: int, repeats: int) -> list[float]:
    """Seconds for one record, stored in rounds of 64 with their table of tasks."""
    with open_store(url) as store:
        found = []
        for _ in range(repeats):
            run = world.run_of(len(store.runs()))
            name = world.network_name(run.network)
            store.start_run([name], run.scope, run_id=run.run_id, machine=run.machine)
            made = [
                (
                    RoundInfo(
                        run.run_id, r.index, r.workload_key, {name: 0.01},
                        world.task_table(run, r), r.started, r.started + 20.0,
                    ),
                    world.records(r, run.scope),
                )
                for r, _ in zip(world.rounds_of(run), range(STORED), strict=False)
            ]  # fmt: skip
            start = time.perf_counter()
            for round_, records in made:
                store.commit_round(round_, records)
            found.append((time.perf_counter() - start) / (STORED * world.ROUND))
            store.finish_run(run.run_id, RunStatus.FINISHED)
    return found


def best_records(url: str, runs: int, repeats: int) -> list[float]:
    """Seconds for the best records of a network's tasks; another network each time."""
    with open_store(url) as store:

        def one(repeat: int) -> None:
            run = world.run_of(runs - 1 - repeat % runs)
            assert len(store.best(run.keys, run.scope)) == world.TASKS

        one(0)
        return _timed(one, 4 * repeats)


def model_history(url: str, runs: int, repeats: int) -> list[float]:
    """Seconds until the features and latencies of the newest trials stand in arrays."""
    with open_store(url) as store:

        def one(repeat: int) -> None:
            scope = world.run_of(runs - 1 - repeat * world.NETWORKS % runs).scope
            rows = store.model_rows(scope, MODEL_ROWS)
            assert len(samples_of(rows)) == len(rows)

        one(0)
        return _timed(one, repeats)


def whole_records(url: str, runs: int, repeats: int) -> list[float]:
    """Seconds for one whole record of the history of a network's tasks."""
    with open_store(url) as store:

        def one(repeat: int) -> float:
            run = world.run_of(runs - 1 - repeat % runs)
            start = time.perf_counter()
            found = store.history(run.keys, run.scope)
            return (time.perf_counter() - start) / max(sum(map(len, found.values())), 1)

        return [one(repeat) for repeat in range(repeats)]


def resume(url: str, runs: int, repeats: int) -> list[float]:
    """Seconds for all that a session asks of the database before the first round of a known run."""

    def one(repeat: int) -> None:
        run = world.run_of(runs - 1 - repeat % runs)
        with open_store(url) as store:
            _prepare(store, run)

    return _timed(one, repeats)


def _prepare(store: Store, run: world.Run) -> None:
    """As `tasks.session.TuningSession.prepare` does."""
    name = world.network_name(run.network)
    for number, key in enumerate(run.keys):
        store.register_workload(key, world.describe_task(number))
    store.register_network(name, f"hash-{run.network}", dict.fromkeys(run.keys, 2))
    store.register_machine(next(m for m in world.MACHINES if m.key == run.machine))
    store.register_target(run.scope, {"vector_bits": 256})
    store.start_run([name], run.scope, run_id=run.run_id, machine=run.machine)
    assert len(store.rounds(run.run_id)) == world.ROUNDS
    own = in_order(store.outcomes(run.keys, run.scope))
    samples_elsewhere(store, run.scope, run.keys, len(own))
    store.finish_run(run.run_id, RunStatus.FINISHED)


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f} records/s"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


FIGURES = (
    Figure("store", "stored in rounds of 64", "2,000 records/s", store_rounds, _rate),
    Figure("best", f"best records of {world.TASKS} tasks", "10 ms", best_records, _milliseconds),
    Figure("history", f"history of {MODEL_ROWS:,} trials for the cost model", "1 s", model_history,
           _seconds),
    Figure("resume", "resume of a run", "2 s", resume, _seconds),
    Figure("records", "a whole record of a task's history", "-", whole_records, _microseconds),
)  # fmt: skip
