"""A tuning run as its records tell it: who was measured when, and what the estimate was.

In: a database.  Out: for each of its runs the trials of the run's search tasks in the order they
were made (those from before the run too), and the latencies on record after any of them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from db.store import Store, open_store
from db.values import RunInfo
from engine.records import MeasureRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Trials of one run's search tasks.

    weight: float64[tasks].  task: int64[trials], whose trial it was; seconds: float64[trials],
    infinite for a failed one; ends: after how many trials a round of this run ended, ascending (the
    first entry is the number of trials from before the run).
    """

    network: str
    number: int
    threads: int
    weight: Floats
    task: NDArray[np.int64]
    seconds: Floats
    ends: tuple[int, ...]

    def histories(self, count: int) -> list[Floats]:
        """The latencies of each task's trials, of the first `count` trials."""
        task, seconds = self.task[:count], self.seconds[:count]
        return [seconds[task == i] for i in range(len(self.weight))]

    def cost(self, count: int) -> Floats:
        """float64[tasks]: weight times best latency in seconds; infinite where none is valid."""
        return self.weight * [h.min(initial=np.inf) for h in self.histories(count)]

    @property
    def warm(self) -> tuple[int, ...]:
        """The ends of rounds from the one on after which every task has a latency."""
        return tuple(end for end in self.ends if np.isfinite(self.cost(end)).all())


@contextmanager
def copy_of(path: Path) -> Iterator[Store]:
    """A store on a copy of a SQLite database; the file itself is only read."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        uri = f"{path.resolve().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True)) as source,
            closing(sqlite3.connect(copy)) as to,
        ):
            source.backup(to)
        with open_store(str(copy)) as store:
            yield store


def replays(store: Store, network: str = "", *, scaled: bool = True) -> list[Run]:
    """The runs of the database, oldest first, or those of one network.

    Without `scaled`, latencies are taken as they were measured, before they were multiplied by
    `extra.scale`.
    """
    weights = {n.name: n.weights for n in store.networks()}
    found = []
    for number, run in enumerate(store.runs(), 1):
        if network and network not in run.networks:
            continue
        total: Counter[str] = Counter()
        for name in run.networks:
            total.update(weights.get(name, {}))
        records = list(store.iter_records(list(total), run.scope)) if total else []
        if any(r.run_id == run.run_id for r in records):
            found.append(_replay(run, number, total, records, scaled))
    return found


def _replay(
    run: RunInfo, number: int, weights: Mapping[str, int], records: Sequence[MeasureRecord],
    scaled: bool,
) -> Run:  # fmt: skip
    own = [i for i, r in enumerate(records) if r.run_id == run.run_id]
    records = records[: own[-1] + 1]
    place = {key: i for i, key in enumerate(weights)}
    ends = [i for i in own if i == 0 or _turn(records[i - 1]) != _turn(records[i])]
    return Run(
        "+".join(run.networks), number, run.scope.threads,
        np.array(list(weights.values()), np.float64),
        np.array([place[r.workload_key] for r in records]),
        np.array([_latency(r, scaled) for r in records]), (*ends, len(records)),
    )  # fmt: skip


def _turn(record: MeasureRecord) -> tuple[str, int]:
    return record.run_id, record.round_index


def _latency(record: MeasureRecord, scaled: bool) -> float:
    if not record.valid:
        return float("inf")
    return record.latency / (1.0 if scaled else float(record.extra.get("scale") or 1.0))
