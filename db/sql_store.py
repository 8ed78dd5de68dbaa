"""The store on SQLite and PostgreSQL.

In: a database URL.  Out: a `Store`; the SQL itself is in `db.sql_read` and `db.sql_write`.  This
module holds what all of it shares: transactions, repeating them after a lost connection, errors.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, func, select, text
from sqlalchemy.exc import SQLAlchemyError

from db import sql_read, sql_write
from db.connect import READING, connect, is_passing, show_url, store_error, use_wal
from db.migrate import SCHEMA, migrate
from db.models import (
    CompiledNetworkRow,
    MeasureRecordRow,
    NetworkRow,
    TuningRoundRow,
    TuningRunRow,
    WorkloadRow,
)
from db.rows import RecordReader, record_query
from db.rows import scopes as scopes_by_id
from db.store import Store, new_run_id
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
    clean_json,
    clean_text,
    evaluated_median,
    run_status,
)
from engine.records import MeasureRecord, RecordScope

T = TypeVar("T")

RETRY_DELAYS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between repeats of a transaction whose connection was lost."""

STREAM_ROWS = 5000
"""Records in memory at once while streaming."""


class SqlStore(Store):
    """See `Store`.  One pool of connections for each store; every method takes one for a moment."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._writer: Engine = connect(url)
        self._reader: Engine = self._writer.execution_options(**{READING: True})
        try:
            self._repeat(lambda: migrate(self._reader, self._writer), was_open=False)
            self._repeat(lambda: use_wal(self._writer), was_open=False)
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return (SqlStore, (self.url,))

    def __repr__(self) -> str:
        return f"SqlStore({show_url(self._writer.url)!r})"

    # -- transactions -----------------------------------------------------------------------------

    def _repeat(self, work: Callable[[], T], *, was_open: bool = True) -> T:
        """Run one transaction, again where its failure may pass, and translate its errors."""
        for delay in (*RETRY_DELAYS, None):
            try:
                return work()
            except SQLAlchemyError as error:
                if delay is None or not is_passing(error, was_open=was_open):
                    raise store_error(error, self._writer.url) from error
                time.sleep(delay)
        raise AssertionError("unreachable")

    def _read(self, work: Callable[..., T], *args: Any) -> T:
        def once() -> T:
            with self._reader.begin() as connection:
                return work(connection, *args)

        return self._repeat(once)

    def _write(self, work: Callable[..., T], *args: Any) -> T:
        def once() -> T:
            with self._writer.begin() as connection:
                return work(connection, *args)

        return self._repeat(once)

    # -- machines, targets, workloads, networks ---------------------------------------------------

    def register_machine(self, machine: MachineInfo) -> None:
        self._write(sql_write.put_machine, machine)

    def register_target(self, scope: RecordScope, description: Mapping[str, Any]) -> None:
        self._write(sql_write.put_target, scope, description)

    def register_workload(self, key: str, description: Mapping[str, Any]) -> None:
        self._write(sql_write.put_workload, key, description)

    def register_network(
        self, name: str, content_hash: str, weights: Mapping[str, int], model_path: str = ""
    ) -> None:
        self._write(sql_write.put_network, name, content_hash, weights, model_path)

    def workloads(self) -> Mapping[str, Mapping[str, Any]]:
        return self._read(sql_read.workloads)

    def networks(self) -> tuple[NetworkInfo, ...]:
        return self._read(sql_read.networks)

    def machines(self) -> tuple[MachineInfo, ...]:
        return self._read(sql_read.machines)

    def targets(self) -> Mapping[RecordScope, Mapping[str, Any]]:
        return self._read(sql_read.targets)

    # -- runs and rounds --------------------------------------------------------------------------

    def start_run(
        self,
        networks: Sequence[str],
        scope: RecordScope,
        params: Mapping[str, Any] | None = None,
        *,
        run_id: str = "",
        machine: str = "",
    ) -> str:
        run_id = run_id or new_run_id()
        self._write(sql_write.put_run, run_id, tuple(networks), scope, params or {}, machine)
        return run_id

    def finish_run(self, run_id: str, status: RunStatus | str, message: str = "") -> None:
        self._write(sql_write.close_run, run_id, str(run_status(status)), message)

    def commit_round(self, round_: RoundInfo, records: Sequence[MeasureRecord]) -> int:
        return self._write(sql_write.put_round, round_, tuple(records))

    def add_run(self, run: RunInfo) -> bool:
        return self._write(sql_write.add_run, run)

    def add_rounds(self, rounds: Iterable[tuple[RoundInfo, RecordScope]]) -> int:
        return self._write(sql_write.add_rounds, tuple(rounds))

    def runs(self) -> tuple[RunInfo, ...]:
        return self._read(sql_read.runs)

    def rounds(self, run_id: str) -> tuple[RoundInfo, ...]:
        def work(connection: Connection) -> tuple[RoundInfo, ...]:
            return sql_read.rounds(connection, sql_write.run_row_id(connection, run_id), run_id)

        return self._read(work)

    # -- records ----------------------------------------------------------------------------------

    def add_records(self, records: Iterable[MeasureRecord]) -> int:
        return self._write(sql_write.put_records, tuple(records))

    def history(
        self, workload_keys: Sequence[str], scope: RecordScope
    ) -> dict[str, tuple[MeasureRecord, ...]]:
        return self._read(sql_read.history, tuple(workload_keys), scope)

    def outcomes(
        self, workload_keys: Sequence[str], scope: RecordScope
    ) -> dict[str, tuple[MeasureRecord, ...]]:
        return self._read(sql_read.outcomes, tuple(workload_keys), scope)

    def model_rows(
        self, scope: RecordScope, limit: int | None = None, without: Sequence[str] = ()
    ) -> ModelRows:
        return self._read(sql_read.model_rows, scope, limit, tuple(without))

    def best(self, workload_keys: Sequence[str], scope: RecordScope) -> dict[str, MeasureRecord]:
        return self._read(sql_read.best, tuple(workload_keys), scope)

    def top(self, workload_key: str, scope: RecordScope, k: int) -> tuple[MeasureRecord, ...]:
        return self._read(sql_read.top, workload_key, scope, k)

    def trial_counts(self, workload_keys: Sequence[str], scope: RecordScope) -> dict[str, int]:
        return self._read(sql_read.trial_counts, tuple(workload_keys), scope)

    def groups(self) -> tuple[GroupInfo, ...]:
        return tuple(group for _, _, group in self._read(sql_read.group_rows))

    def iter_records(
        self, workload_keys: Sequence[str] | None = None, scope: RecordScope | None = None
    ) -> Iterator[MeasureRecord]:
        ids = None
        if workload_keys is not None:
            ids = tuple(self._read(sql_read.find_workloads, tuple(workload_keys)))
        target = None
        if scope is not None:
            target = self._read(sql_write.find_target, scope)
            if target is None:
                return
        last = 0
        while part := self._read(self._part_after, last, ids, target):
            last = part[-1][0]
            yield from (record for _, record in part)

    @staticmethod
    def _part_after(
        connection: Connection, last: int, ids: tuple[int, ...] | None, target: int | None
    ) -> list[tuple[int, MeasureRecord]]:
        query = record_query().where(MeasureRecordRow.id > last).limit(STREAM_ROWS)
        if ids is not None:
            query = query.where(MeasureRecordRow.workload_id.in_(ids))
        if target is not None:
            query = query.where(MeasureRecordRow.target_id == target)
        return RecordReader(connection).read(query)

    def newest(
        self, limit: int, workload_keys: Sequence[str] | None = None, errors_only: bool = False
    ) -> tuple[MeasureRecord, ...]:
        return self._read(sql_read.newest, limit, workload_keys, errors_only)

    def remove_records(
        self,
        drop: Callable[[Sequence[MeasureRecord]], Sequence[bool]],
        archive: Callable[[Iterable[MeasureRecord]], None],
    ) -> int:
        ids = array("q")

        def going() -> Iterator[MeasureRecord]:
            for workload, target, _ in self._read(sql_read.group_rows):
                rows = self._read(self._group, workload, target)
                goes = drop([record for _, record in rows])
                for (id_, record), gone in zip(rows, goes, strict=True):
                    if gone:
                        ids.append(id_)
                        yield record

        archive(going())
        return self._write(sql_write.remove_ids, ids) if ids else 0

    @staticmethod
    def _group(
        connection: Connection, workload: int, target: int
    ) -> list[tuple[int, MeasureRecord]]:
        query = record_query().where(
            MeasureRecordRow.workload_id == workload, MeasureRecordRow.target_id == target
        )
        return RecordReader(connection).read(query)

    # -- compiled networks ------------------------------------------------------------------------

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
        values = {
            "path": clean_text(path),
            "file_hash": clean_text(file_hash),
            "estimated_latency": clean_json(estimated),
            "verification": clean_json(verification or {}),
            "details": clean_json(details or {}),
        }

        def work(connection: Connection) -> int:
            id_ = sql_write.put_compiled(connection, network, scope, run_id, values)
            if evaluation is not None:
                median = evaluated_median(evaluation)
                sql_write.put_evaluation(connection, id_, evaluation, median)
            return id_

        return self._write(work)

    def add_evaluation(self, compiled_id: int, evaluation: Mapping[str, Any]) -> None:
        median = evaluated_median(evaluation)
        self._write(sql_write.put_evaluation, compiled_id, evaluation, median)

    def mark_published(self, compiled_id: int) -> None:
        self._write(sql_write.put_published, compiled_id)

    def compiled_networks(self, network: str | None = None) -> tuple[CompiledInfo, ...]:
        return self._read(sql_read.compiled_networks, network)

    def evaluations(self, network: str | None = None) -> tuple[EvaluationInfo, ...]:
        return self._read(sql_read.evaluations, network)

    # -- the whole --------------------------------------------------------------------------------

    def stats(self) -> StoreStats:
        return self._read(self._stats)

    def _stats(self, connection: Connection) -> StoreStats:
        def count(row: Any) -> int:
            return connection.execute(select(func.count()).select_from(row)).scalar_one()

        by_error = select(
            MeasureRecordRow.target_id,
            MeasureRecordRow.error,
            func.count(),
            func.count(MeasureRecordRow.latency),
        ).group_by(MeasureRecordRow.target_id, MeasureRecordRow.error)
        errors: dict[str, int] = {}
        per_target: dict[int, int] = {}
        valid = 0
        for target, error, rows, good in connection.execute(by_error):
            errors[error] = errors.get(error, 0) + rows
            per_target[target] = per_target.get(target, 0) + rows
            valid += good
        scopes = scopes_by_id(connection)
        return StoreStats(
            records=sum(errors.values()),
            valid=valid,
            errors=dict(sorted(errors.items())),
            workloads=count(WorkloadRow),
            networks=count(NetworkRow),
            runs=count(TuningRunRow),
            rounds=count(TuningRoundRow),
            compiled_networks=count(CompiledNetworkRow),
            scopes={scopes[target]: rows for target, rows in sorted(per_target.items())},
            size_bytes=self._size(connection),
            schema=SCHEMA,
        )

    def _size(self, connection: Connection) -> int:
        if connection.dialect.name == "postgresql":
            size = connection.execute(text("SELECT pg_database_size(current_database())"))
            return int(size.scalar_one())
        path = Path(self._writer.url.database or "")
        files = (path, path.with_name(path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        self._writer.dispose()
