"""Reads: each function runs inside the caller's transaction.

In: an open connection.  Out: the frozen values of `db.values` and `engine.records`.  Records are
read as plain columns and their JSON is parsed here, which is several times faster than mapped rows.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Select, Text, cast, func, select
from sqlalchemy.orm import DeclarativeBase

from db.models import (
    CompiledNetworkRow,
    EvaluationRow,
    MachineRow,
    MeasureRecordRow,
    NetworkRow,
    NetworkWorkloadRow,
    RoundEstimateRow,
    RunNetworkRow,
    TargetRow,
    TuningRoundRow,
    TuningRunRow,
    WorkloadRow,
)
from db.sql_write import BATCH, find_target
from db.values import (
    CompiledInfo,
    EvaluationInfo,
    GroupInfo,
    NetworkInfo,
    RoundInfo,
    RunInfo,
    RunStatus,
    batched,
    clean_text,
)
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode

_R = MeasureRecordRow
_COLUMNS = (
    _R.id,
    _R.workload_id,
    _R.target_id,
    _R.run_id,
    _R.round_index,
    cast(_R.schedule, Text),
    cast(_R.times, Text),
    _R.error,
    _R.message,
    _R.predicted,
    _R.created_at,
    _R.build_seconds,
    _R.noisy,
    cast(_R.extra, Text),
)

RecordQuery = Select[*tuple[Any, ...]]


class RecordReader:
    """Turns record rows into records; remembers the keys behind the ids for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._workloads: dict[int, str] = {}
        self._runs: dict[int, str] = {}
        self._scopes: dict[int, RecordScope] = {}

    def read(self, query: RecordQuery) -> list[tuple[int, MeasureRecord]]:
        """The records of a query over `record_query()`, each with its row id."""
        with _collector_paused():
            rows = self._connection.execute(query).all()
            self._learn(rows)
            return self._records(rows)

    def _records(self, rows: Sequence[Any]) -> list[tuple[int, MeasureRecord]]:
        """Column by column, so that the loops over rows are the interpreter's own."""
        if not rows:
            return []
        ids, workloads, targets, runs, rounds, schedules, times, *rest = zip(*rows, strict=True)
        errors, messages, predicted, created, built, noisy, extra = rest
        records = map(
            MeasureRecord,
            map(self._workloads.__getitem__, workloads),
            map(self._scopes.__getitem__, targets),
            [Schedule(data["sketch"], data["knobs"]) for data in _parse_all(schedules)],
            map(tuple, _parse_all(times, parse_int=float)),
            map(_KINDS.__getitem__, errors),
            messages,
            predicted,
            map(self._runs.__getitem__, runs),
            rounds,
            created,
            built,
            noisy,
            _parse_all(extra),
        )
        return list(zip(ids, records, strict=True))

    def _learn(self, rows: Sequence[Any]) -> None:
        connection = self._connection
        for part in _unknown(self._workloads, (row[1] for row in rows)):
            query = select(WorkloadRow.id, WorkloadRow.workload_key)
            found = connection.execute(query.where(WorkloadRow.id.in_(part)))
            self._workloads.update((id_, key) for id_, key in found)
        for part in _unknown(self._runs, (row[3] for row in rows)):
            runs = select(TuningRunRow.id, TuningRunRow.run_key)
            found = connection.execute(runs.where(TuningRunRow.id.in_(part)))
            self._runs.update((id_, key) for id_, key in found)
        if any(row[2] not in self._scopes for row in rows):
            self._scopes = scopes(connection)


_KINDS = {str(kind): kind for kind in ErrorKind}


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Reading makes many objects and no cycles; looking for cycles would double its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _parse_all(texts: Iterable[str], **options: Any) -> list[Any]:
    """Parse many JSON texts at once.

    PostgreSQL keeps numbers as decimals and writes a huge float without its exponent, so a list
    of floats is read with `parse_int=float`.
    """
    parsed: list[Any] = json.loads("[" + ",".join(texts) + "]", **options)
    return parsed


def _unknown(known: Mapping[int, str], ids: Iterable[int]) -> Iterable[tuple[int, ...]]:
    return batched(sorted(set(ids) - known.keys()), BATCH)


def record_query() -> RecordQuery:
    """A query of all records in the order in which they were stored."""
    return select(*_COLUMNS).order_by(_R.id)


def _all(row: type[DeclarativeBase]) -> Any:
    """All columns of a table, as plain columns rather than mapped objects."""
    return row.__table__


def scopes(connection: Connection) -> dict[int, RecordScope]:
    """Every scope by its row id."""
    return {row.id: _scope(row) for row in connection.execute(select(_all(TargetRow)))}


def _scope(row: Any) -> RecordScope:
    mode = TimingMode(row.timing_mode)
    return RecordScope(row.target_key, row.threads, mode, row.generator_version)


def find_workloads(connection: Connection, keys: Iterable[str]) -> dict[int, str]:
    """The known ones of the workloads, by row id, each with the key as it was asked for."""
    asked = {clean_text(key): key for key in keys}
    found: dict[int, str] = {}
    for part in batched(asked, BATCH):
        query = select(WorkloadRow.id, WorkloadRow.workload_key)
        for id_, key in connection.execute(query.where(WorkloadRow.workload_key.in_(part))):
            found[id_] = asked[key]
    return found


# -- records --------------------------------------------------------------------------------------


def history(
    connection: Connection, keys: Sequence[str], scope: RecordScope
) -> dict[str, tuple[MeasureRecord, ...]]:
    found: dict[str, list[MeasureRecord]] = {key: [] for key in keys}
    target = find_target(connection, scope)
    ids = find_workloads(connection, keys)
    if target is not None:
        reader = RecordReader(connection)
        for id_, key in ids.items():
            query = record_query().where(_R.target_id == target, _R.workload_id == id_)
            found[key] = [record for _, record in reader.read(query)]
    return {key: tuple(records) for key, records in found.items()}


def newest(
    connection: Connection, scope: RecordScope, limit: int | None
) -> tuple[MeasureRecord, ...]:
    target = find_target(connection, scope)
    if target is None or limit == 0:
        return ()
    query = record_query().where(_R.target_id == target)
    if limit is not None:
        query = query.order_by(None).order_by(_R.id.desc()).limit(limit)
    records = [record for _, record in RecordReader(connection).read(query)]
    return tuple(records if limit is None else reversed(records))


def best(
    connection: Connection, keys: Sequence[str], scope: RecordScope
) -> dict[str, MeasureRecord]:
    target = find_target(connection, scope)
    ids = find_workloads(connection, keys)
    if target is None or not ids:
        return {}
    inner = MeasureRecordRow.__table__.alias("fastest")
    fastest = (
        select(inner.c.id)
        .where(
            inner.c.target_id == target,
            inner.c.workload_id == WorkloadRow.id,
            inner.c.latency.is_not(None),
        )
        .order_by(inner.c.latency, inner.c.id)
        .limit(1)
        .scalar_subquery()
    )
    reader = RecordReader(connection)
    found: dict[str, MeasureRecord] = {}
    for part in batched(ids, BATCH):
        query = select(*_COLUMNS).select_from(WorkloadRow).join(_R, _R.id == fastest)
        for _, record in reader.read(query.where(WorkloadRow.id.in_(part))):
            found[record.workload_key] = record
    return {key: found[clean_text(key)] for key in keys if clean_text(key) in found}


def top(connection: Connection, key: str, scope: RecordScope, k: int) -> tuple[MeasureRecord, ...]:
    target = find_target(connection, scope)
    ids = find_workloads(connection, [key])
    if target is None or not ids or k < 1:
        return ()
    (id_,) = ids
    base = (
        select(*_COLUMNS)
        .where(_R.target_id == target, _R.workload_id == id_, _R.latency.is_not(None))
        .order_by(_R.latency, _R.id)
    )
    reader = RecordReader(connection)
    chosen: dict[str, MeasureRecord] = {}
    size, start = 2 * k, 0
    while len(chosen) < k:
        part = reader.read(base.offset(start).limit(size))
        for _, record in part:
            chosen.setdefault(record.schedule.key, record)
        if len(part) < size:
            break
        start += size
    return tuple(chosen.values())[:k]


def trial_counts(connection: Connection, keys: Sequence[str], scope: RecordScope) -> dict[str, int]:
    counts = dict.fromkeys(keys, 0)
    target = find_target(connection, scope)
    ids = find_workloads(connection, keys)
    for part in batched(ids, BATCH):
        query = (
            select(_R.workload_id, func.count())
            .where(_R.target_id == target, _R.workload_id.in_(part))
            .group_by(_R.workload_id)
        )
        for id_, count in connection.execute(query):
            counts[ids[id_]] = count
    return counts


def group_rows(connection: Connection) -> list[tuple[int, int, GroupInfo]]:
    """Workload id, target id and counts of every group, in order of key and scope."""
    query = (
        select(
            _R.workload_id,
            _R.target_id,
            func.count(),
            func.count(_R.latency),
            func.min(_R.latency),
        )
        .group_by(_R.target_id, _R.workload_id)
    )  # fmt: skip
    rows = connection.execute(query).all()
    by_id = scopes(connection)
    names = select(WorkloadRow.id, WorkloadRow.workload_key)
    keys = dict(connection.execute(names).all())
    groups = [(w, t, GroupInfo(keys[w], by_id[t], n, valid, low)) for w, t, n, valid, low in rows]
    return sorted(groups, key=lambda group: group[2].order)


# -- what else is known ---------------------------------------------------------------------------


def workloads(connection: Connection) -> dict[str, Mapping[str, Any]]:
    query = select(WorkloadRow.workload_key, WorkloadRow.description).order_by(WorkloadRow.id)
    return dict(connection.execute(query).all())


def targets(connection: Connection) -> dict[RecordScope, Mapping[str, Any]]:
    query = select(_all(TargetRow)).order_by(TargetRow.id)
    return {_scope(row): row.description for row in connection.execute(query)}


def networks(connection: Connection) -> tuple[NetworkInfo, ...]:
    weights: dict[int, dict[str, int]] = defaultdict(dict)
    parts = (
        select(NetworkWorkloadRow.network_id, WorkloadRow.workload_key, NetworkWorkloadRow.weight)
        .join(WorkloadRow, WorkloadRow.id == NetworkWorkloadRow.workload_id)
        .order_by(NetworkWorkloadRow.network_id, NetworkWorkloadRow.workload_id)
    )
    for id_, key, weight in connection.execute(parts):
        weights[id_][key] = weight
    query = select(_all(NetworkRow)).order_by(NetworkRow.registered_at, NetworkRow.id)
    return tuple(
        NetworkInfo(row.name, row.content_hash, weights[row.id], row.model_path, row.registered_at)
        for row in connection.execute(query)
    )


def runs(connection: Connection) -> tuple[RunInfo, ...]:
    names: dict[int, list[str]] = defaultdict(list)
    parts = (
        select(RunNetworkRow.run_id, NetworkRow.name)
        .join(NetworkRow, NetworkRow.id == RunNetworkRow.network_id)
        .order_by(RunNetworkRow.run_id, RunNetworkRow.position)
    )
    for id_, name in connection.execute(parts):
        names[id_].append(name)
    by_id = scopes(connection)
    query = (
        select(_all(TuningRunRow), MachineRow.machine_key)
        .outerjoin(MachineRow, MachineRow.id == TuningRunRow.machine_id)
        .order_by(TuningRunRow.started_at, TuningRunRow.id)
    )
    return tuple(
        RunInfo(
            row.run_key,
            by_id[row.target_id],
            tuple(names[row.id]),
            row.params,
            RunStatus(row.status),
            row.started_at,
            row.finished_at,
            row.message,
            row.machine_key or "",
        )
        for row in connection.execute(query)
    )


def rounds(connection: Connection, run: int, run_id: str) -> tuple[RoundInfo, ...]:
    estimates: dict[int, dict[str, float]] = defaultdict(dict)
    parts = (
        select(RoundEstimateRow.round_index, NetworkRow.name, RoundEstimateRow.estimated_latency)
        .join(NetworkRow, NetworkRow.id == RoundEstimateRow.network_id)
        .where(RoundEstimateRow.run_id == run)
        .order_by(RoundEstimateRow.round_index, RoundEstimateRow.network_id)
    )
    for index, name, seconds in connection.execute(parts):
        estimates[index][name] = seconds
    query = (
        select(_all(TuningRoundRow), WorkloadRow.workload_key)
        .join(WorkloadRow, WorkloadRow.id == TuningRoundRow.workload_id)
        .where(TuningRoundRow.run_id == run)
        .order_by(TuningRoundRow.round_index)
    )
    return tuple(
        RoundInfo(
            run_id,
            row.round_index,
            row.workload_key,
            estimates[row.round_index],
            tuple(row.task_table),
            row.started_at,
            row.finished_at,
            row.trials,
            row.valid,
        )
        for row in connection.execute(query)
    )


def compiled_networks(connection: Connection, network: str | None) -> tuple[CompiledInfo, ...]:
    by_id = scopes(connection)
    query = (
        select(_all(CompiledNetworkRow), NetworkRow.name, TuningRunRow.run_key)
        .join(NetworkRow, NetworkRow.id == CompiledNetworkRow.network_id)
        .outerjoin(TuningRunRow, TuningRunRow.id == CompiledNetworkRow.run_id)
        .order_by(CompiledNetworkRow.id)
    )
    if network is not None:
        query = query.where(NetworkRow.name == network)
    return tuple(
        CompiledInfo(
            row.id,
            row.name,
            by_id[row.target_id],
            row.path,
            row.file_hash,
            row.run_key or "",
            row.estimated_latency,
            row.verification,
            row.created_at,
            row.published_at,
            row.details,
        )
        for row in connection.execute(query)
    )


def evaluations(connection: Connection, network: str | None) -> tuple[EvaluationInfo, ...]:
    by_id = scopes(connection)
    query = (
        select(_all(EvaluationRow), NetworkRow.name, CompiledNetworkRow.target_id)
        .join(CompiledNetworkRow, CompiledNetworkRow.id == EvaluationRow.compiled_id)
        .join(NetworkRow, NetworkRow.id == CompiledNetworkRow.network_id)
        .order_by(EvaluationRow.id)
    )
    if network is not None:
        query = query.where(NetworkRow.name == network)
    return tuple(
        EvaluationInfo(
            row.compiled_id,
            row.name,
            by_id[row.target_id],
            row.median_latency,
            row.data,
            row.created_at,
        )
        for row in connection.execute(query)
    )
