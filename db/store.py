"""The contract of a record store, and how to open one.

In: a URL, ids and plain values.  Out: frozen dataclasses, never rows of an object mapper.
`tests/db/test_store_conformance.py` runs over every implementation.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from db.values import (
    CompiledInfo,
    EvaluationInfo,
    GroupInfo,
    MachineInfo,
    ModelRows,
    NetworkInfo,
    RoundInfo,
    RunInfo,
    RunStatus,
    StoreStats,
)
from engine.records import MeasureRecord, RecordScope


class Store(ABC):
    """The memory of all tuning.

    Threads: every method may be called from any thread.  Processes: a store is not used across a
    fork; pickling one sends its URL, and the receiver opens its own connections.

    Transactions: every method is one transaction.  It happens as a whole or not at all, also when
    the process is killed in the middle, and is safe to repeat: a round, record, workload, network
    or run that is there already is left as it is.

    Errors: `engine.errors.StoreError` and nothing else for anything the database does.  Lost
    connections are opened again and the transaction is repeated before an error is given.

    Ownership: values that come out are frozen copies; they stay true when the store is closed.
    Whoever opens a store closes it (`with open_store(url) as store:`).

    Scopes: a record counts for its own `RecordScope` only.  No method gives a record of another
    target, number of threads, timing mode or generator version than that of the scope asked for.

    Order: records come in the order in which they were stored.

    Values: a record whose times are not positive finite numbers is kept as `UNMEASURABLE`, without
    times (see `db.values.storable`).  Whole numbers of more than 64 bits become floats.
    """

    url: str

    # -- machines, targets, workloads, networks ---------------------------------------------------

    @abstractmethod
    def register_machine(self, machine: MachineInfo) -> None:
        """Note a machine that measures; its description is replaced if it is known."""

    @abstractmethod
    def register_target(self, scope: RecordScope, description: Mapping[str, Any]) -> None:
        """Describe a scope's target for readers (CPU, features, vector bits, caches)."""

    @abstractmethod
    def register_workload(self, key: str, description: Mapping[str, Any]) -> None:
        """Describe a workload for readers.  The first description that is not empty stays."""

    @abstractmethod
    def register_network(
        self, name: str, content_hash: str, weights: Mapping[str, int], model_path: str = ""
    ) -> None:
        """Note a version of a network and make it the current one of its name.

        `weights` says how often each workload occurs; unknown workloads are added.
        """

    @abstractmethod
    def workloads(self) -> Mapping[str, Mapping[str, Any]]:
        """Every workload key with its description."""

    @abstractmethod
    def networks(self) -> tuple[NetworkInfo, ...]:
        """Every version of every network by registration; the last of a name is current."""

    @abstractmethod
    def machines(self) -> tuple[MachineInfo, ...]:
        """Every machine, in the order in which they were registered first."""

    @abstractmethod
    def targets(self) -> Mapping[RecordScope, Mapping[str, Any]]:
        """Every scope that the store knows, with its description."""

    # -- runs and rounds --------------------------------------------------------------------------

    @abstractmethod
    def start_run(
        self,
        networks: Sequence[str],
        scope: RecordScope,
        params: Mapping[str, Any] | None = None,
        *,
        run_id: str = "",
        machine: str = "",
    ) -> str:
        """Open a run over registered networks (by name) and return its id.

        With a `run_id` that is known the run is opened again: it is `RUNNING` once more and keeps
        its rounds.  Raises StoreError for a network that is not registered.
        """

    @abstractmethod
    def finish_run(self, run_id: str, status: RunStatus | str, message: str = "") -> None:
        """Close a run.  Raises StoreError for an unknown one."""

    @abstractmethod
    def commit_round(self, round_: RoundInfo, records: Sequence[MeasureRecord]) -> int:
        """Store a finished round with all its records in one transaction; returns the new records.

        A committed round is closed: sending it again changes nothing and returns 0.  The records'
        `run_id` and `round_index` are taken from the round.  Raises StoreError for an unknown run.
        """

    @abstractmethod
    def add_run(self, run: RunInfo) -> bool:
        """Note a run of another database; returns whether it was unknown here.

        One that is known stays as it is, unless only its records were, or it counts as running
        while `run` says how it ended.  Networks and machines that are unknown are left out.
        """

    @abstractmethod
    def add_rounds(self, rounds: Iterable[tuple[RoundInfo, RecordScope]]) -> int:
        """Note finished rounds of another database in one transaction; returns how many were new.

        Their records go to `add_records`, and are to be there first.  Each round comes with the
        scope of its run, which is added if it is unknown; estimates of unknown networks are not.
        """

    @abstractmethod
    def runs(self) -> tuple[RunInfo, ...]:
        """Every run, oldest first."""

    @abstractmethod
    def rounds(self, run_id: str) -> tuple[RoundInfo, ...]:
        """The run's committed rounds by index."""

    # -- records ----------------------------------------------------------------------------------

    @abstractmethod
    def add_records(self, records: Iterable[MeasureRecord]) -> int:
        """Store records in one transaction; returns how many were new.

        A record is known by run, round, workload, scope and schedule; a known one is left as it is.
        Unknown workloads, targets and runs are added (such a run is `IMPORTED`).
        """

    @abstractmethod
    def history(
        self, workload_keys: Sequence[str], scope: RecordScope
    ) -> dict[str, tuple[MeasureRecord, ...]]:
        """Every trial, failed ones too, of each workload asked for; empty where none is."""

    @abstractmethod
    def outcomes(
        self, workload_keys: Sequence[str], scope: RecordScope
    ) -> dict[str, tuple[MeasureRecord, ...]]:
        """As `history`, but of each record only what choosing the next trials asks for.

        That is everything but `extra`, `predicted`, `build_seconds` and all times but the fastest.
        """

    @abstractmethod
    def model_rows(
        self, scope: RecordScope, limit: int | None = None, without: Sequence[str] = ()
    ) -> ModelRows:
        """The newest `limit` trials of all the scope's workloads but those of `without`."""

    @abstractmethod
    def best(self, workload_keys: Sequence[str], scope: RecordScope) -> dict[str, MeasureRecord]:
        """The fastest valid record of each workload; a workload without one is absent."""

    @abstractmethod
    def top(self, workload_key: str, scope: RecordScope, k: int) -> tuple[MeasureRecord, ...]:
        """The `k` fastest valid records with different schedules, fastest first."""

    @abstractmethod
    def trial_counts(self, workload_keys: Sequence[str], scope: RecordScope) -> dict[str, int]:
        """How many trials each workload has had, failed ones too; 0 where none."""

    @abstractmethod
    def groups(self) -> tuple[GroupInfo, ...]:
        """One entry for each workload and scope that has records, by key and scope."""

    @abstractmethod
    def iter_records(
        self, workload_keys: Sequence[str] | None = None, scope: RecordScope | None = None
    ) -> Iterator[MeasureRecord]:
        """Every record, of every scope unless one is given; streamed, with memory for one batch."""

    @abstractmethod
    def newest(
        self, limit: int, workload_keys: Sequence[str] | None = None, errors_only: bool = False
    ) -> tuple[MeasureRecord, ...]:
        """The last `limit` records of all scopes, newest first; only failures if asked for."""

    @abstractmethod
    def remove_records(
        self,
        drop: Callable[[Sequence[MeasureRecord]], Sequence[bool]],
        archive: Callable[[Iterable[MeasureRecord]], None],
    ) -> int:
        """Remove records chosen group by group; returns how many went.

        `drop` is given all records of one workload and scope and answers for each whether it goes.
        `archive` is given what goes and must have it safe when it returns; only then is anything
        removed, in one transaction.  Records stored meanwhile stay.
        """

    # -- compiled networks ------------------------------------------------------------------------

    @abstractmethod
    def add_compiled_network(
        self,
        network: str,
        scope: RecordScope,
        path: str,
        file_hash: str,
        *,
        run_id: str = "",
        estimated: float | None = None,
        verification: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> int:
        """Note a compiled file of a registered network's current version; returns its id.

        The same network, scope, path and hash give the same id again, with the new verification.
        `details` takes what else is worth knowing, such as workloads on their default schedule.
        """

    @abstractmethod
    def add_evaluation(self, compiled_id: int, evaluation: Mapping[str, Any]) -> None:
        """Note a side-by-side timing; `evaluation` is what `noctune bench --json` prints."""

    @abstractmethod
    def mark_published(self, compiled_id: int) -> None:
        """Note that the file is now the published one of its network."""

    @abstractmethod
    def compiled_networks(self, network: str | None = None) -> tuple[CompiledInfo, ...]:
        """The compiled files, oldest first."""

    @abstractmethod
    def evaluations(self, network: str | None = None) -> tuple[EvaluationInfo, ...]:
        """The evaluations, oldest first."""

    # -- the whole --------------------------------------------------------------------------------

    @abstractmethod
    def stats(self) -> StoreStats:
        """Counts of everything."""

    @abstractmethod
    def close(self) -> None:
        """Give back the connections; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_store(url: str) -> Store:
    """Open the store at `url`, making or upgrading its tables first.

    `url` is a path, `sqlite:///path`, `postgresql://user@host/database`, or `memory:` for one that
    lives as long as the object.  Raises StoreError when it cannot be used, saying why.
    """
    from db.connect import is_memory

    if is_memory(url):
        from db.memory_store import MemoryStore

        return MemoryStore()
    from db.sql_store import SqlStore

    return SqlStore(url)


def new_run_id() -> str:
    """A fresh run id."""
    return uuid.uuid4().hex
