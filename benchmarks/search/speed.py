"""Trials a second, and where the time goes.

    python -m benchmarks.search.speed --model resnet-50 --tasks 2,6,13 --rounds 4 [--round 12]

In: a network and numbers of its search tasks.  Out: trials a second over all rounds and each part's
share of the wall time: choosing and proposing (the search), measuring, storing.  Every trial is
built, run, verified and stored in a database of its own that is removed at the end.  With --warm
rounds of each task run before the clock starts, so that what is made once a task is left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from db.store import Store, open_store
from db.values import RoundInfo
from engine.graph.task import SearchTask
from engine.measure import MeasureOptions, Measurer
from engine.records import MeasureRecord
from engine.target import host
from tasks.networks import load_network, merge_tasks
from tasks.searching import Searching
from tasks.session import describe_target, with_origin
from tasks.table import anchor_record

SEARCH, MEASURE, STORE = "search", "measure", "store"


@dataclass
class Clock:
    """Wall seconds of each part, and what was done in them."""

    parts: dict[str, float] = field(default_factory=dict)
    build: float = 0.0
    trials: int = 0
    failed: int = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - started

    def count(self, records: Sequence[MeasureRecord]) -> None:
        self.trials += len(records)
        self.failed += sum(not r.valid for r in records)
        self.build += sum(r.build_seconds for r in records)

    def report(self) -> str:
        total = sum(self.parts.values())
        shares = ", ".join(f"{name} {spent / total:.1%}" for name, spent in self.parts.items())
        return (
            f"{self.trials} trials ({self.failed} failed) in {total:.1f} s: "
            f"{self.trials / total:.1f} a second\n"
            f"wall time: {shares}\n"
            f"building took {1e3 * self.build / max(self.trials, 1):.0f} ms a trial on one of the "
            "compile workers"
        )


def run_round(
    clock: Clock, tools: tuple[Searching, Measurer, Store], task: SearchTask,
    own: list[MeasureRecord], size: int, number: int, run_id: str,
) -> None:  # fmt: skip
    """One round of one task, as a tuning session makes it."""
    search, measurer, store = tools
    started = time.time()
    with clock.part(SEARCH):
        proposals = search.propose(task, own, size, number)
    if not proposals:
        return
    with clock.part(MEASURE):
        records = measurer.measure(
            task, [p.schedule for p in proposals], run_id=run_id, round_index=number,
            predicted=[p.predicted for p in proposals], anchor=anchor_record(own),
            meanwhile=partial(search.refit, task, len(proposals)),
        )  # fmt: skip
    with clock.part(STORE):
        kept = with_origin(records, proposals)
        info = RoundInfo(
            run_id=run_id, index=number, workload_key=task.key, estimates={}, task_table=(),
            started=started, finished=time.time(), trials=len(kept),
            valid=sum(r.valid for r in kept),
        )  # fmt: skip
        store.commit_round(info, kept)
        search.add(kept)
    own += kept
    clock.count(kept)


def measure_speed(
    tasks: Sequence[SearchTask],
    rounds: int,
    size: int,
    warm: int,
    url: str,
    options: MeasureOptions,
) -> Clock:
    """`rounds` rounds of each task in turns, after `warm` that do not count."""
    target = host()
    own: dict[str, list[MeasureRecord]] = {t.key: [] for t in tasks}
    with (
        open_store(url) as store,
        Measurer(target, tasks[0].threads, tasks[0].timing_mode, options) as measurer,
    ):
        store.register_target(tasks[0].scope, describe_target(target))
        run_id = store.start_run([], tasks[0].scope)
        for task in tasks:
            store.register_workload(task.key, {"anchor": task.workload.anchor})
        tools = (Searching(tasks, target, (), 0), measurer, store)
        clock, number = Clock(), 0
        for turn in range(warm + rounds):
            if turn == warm:
                clock = Clock()
            for task in tasks:
                run_round(clock, tools, task, own[task.key], size, number, run_id)
                number += 1
    return clock


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="resnet-50")
    parser.add_argument("--tasks", default="", help="numbers of the search tasks; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--round", type=int, default=12)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--lock", help="lock file, if not that of all tuners of this machine")
    options = parser.parse_args()
    target = host()
    tasks = merge_tasks([load_network(options.model, target)], target.cores)
    if options.tasks:
        tasks = tuple(tasks[int(t)] for t in options.tasks.split(","))
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "speed.sqlite")
        found = measure_speed(
            tasks, options.rounds, options.round, options.warm, url,
            MeasureOptions(lock_path=options.lock),
        )  # fmt: skip
    print(found.report())


if __name__ == "__main__":
    main()
