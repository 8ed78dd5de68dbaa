"""Reads: each function runs inside the caller's transaction.

In: an open connection.  Out: the frozen values of `db.values` and `engine.records`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, select
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
from db.rows import (
    BATCH,
    RecordQuery,
    RecordReader,
    collector_paused,
    model_columns,
    named_record_columns,
    outcome_columns,
    read_model_rows,
    record_columns,
    record_query,
    scope_of,
    scopes,
)
from db.sql_write import SCOPE_COLUMNS, find_target, scope_values
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
    batched,
    clean_text,
)
from engine.records import MeasureRecord, RecordScope

_R = MeasureRecordRow


def _all(row: type[DeclarativeBase]) -> Any:
    """All columns of a table, as plain columns rather than mapped objects."""
    return row.__table__


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
    target = find_target(connection, scope)
    ids = find_workloads(connection, keys)
    reader = RecordReader(connection, {id_: clean_text(key) for id_, key in ids.items()})

    def one(id_: int) -> list[MeasureRecord]:
        query = record_query().where(_R.target_id == target, _R.workload_id == id_)
        return [record for _, record in reader.read(query)]

    return _by_key(keys, ids if target is not None else {}, one)


def outcomes(
    connection: Connection, keys: Sequence[str], scope: RecordScope
) -> dict[str, tuple[MeasureRecord, ...]]:
    target = find_target(connection, scope)
    ids = find_workloads(connection, keys)
    reader = RecordReader(connection)

    def one(id_: int) -> list[MeasureRecord]:
        query = outcome_columns().where(_R.target_id == target, _R.workload_id == id_)
        return reader.read_outcomes(query.order_by(_R.id), clean_text(ids[id_]), scope)

    return _by_key(keys, ids if target is not None else {}, one)


def _by_key(
    keys: Sequence[str], ids: Mapping[int, str], read: Callable[[int], list[MeasureRecord]]
) -> dict[str, tuple[MeasureRecord, ...]]:
    """What `read` gives for each workload, without a search for cycles between two of them."""
    found: dict[str, tuple[MeasureRecord, ...]] = dict.fromkeys(keys, ())
    with collector_paused():
        for id_, key in ids.items():
            found[key] = tuple(read(id_))
    return found


def model_rows(
    connection: Connection, scope: RecordScope, limit: int | None, without: Sequence[str]
) -> ModelRows:
    target = find_target(connection, scope)
    if target is None or limit == 0:
        return ModelRows()
    query = model_columns().where(_R.target_id == target).order_by(_R.id.desc()).limit(limit)
    own = tuple(find_workloads(connection, without))
    if own:
        query = query.where(_R.workload_id.not_in(own))
    return read_model_rows(connection, query)


def best(
    connection: Connection, keys: Sequence[str], scope: RecordScope
) -> dict[str, MeasureRecord]:
    asked = {clean_text(key): key for key in keys}
    found: dict[str, MeasureRecord] = {}
    for part in batched(asked, BATCH):
        rows = connection.execute(_BEST, scope_values(scope) | {"keys": part}).all()
        reader = RecordReader(connection)
        found |= {record.workload_key: record for record in reader.read_named(rows, scope)}
    return {key: found[clean] for clean, key in asked.items() if clean in found}


def _best_query() -> RecordQuery:
    """Of each workload in `keys` under a scope the fastest record, with its workload and run."""
    inner = MeasureRecordRow.__table__.alias("fastest")
    fastest = (
        select(inner.c.id)
        .where(
            inner.c.target_id == TargetRow.id,
            inner.c.workload_id == WorkloadRow.id,
            inner.c.latency.is_not(None),
        )
        .order_by(inner.c.latency, inner.c.id)
        .limit(1)
        .scalar_subquery()
    )
    same = [getattr(TargetRow, name) == bindparam(name) for name in SCOPE_COLUMNS]
    return (
        named_record_columns()
        .select_from(WorkloadRow)
        .join(TargetRow, and_(*same))
        .join(_R, _R.id == fastest)
        .join(TuningRunRow, TuningRunRow.id == _R.run_id)
        .where(WorkloadRow.workload_key.in_(bindparam("keys", expanding=True)))
    )


_BEST = _best_query()


def top(connection: Connection, key: str, scope: RecordScope, k: int) -> tuple[MeasureRecord, ...]:
    target = find_target(connection, scope)
    ids = find_workloads(connection, [key])
    if target is None or not ids or k < 1:
        return ()
    (id_,) = ids
    base = (
        record_columns()
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


def newest(
    connection: Connection, limit: int, keys: Sequence[str] | None, errors_only: bool
) -> tuple[MeasureRecord, ...]:
    query = record_columns().order_by(_R.id.desc()).limit(max(limit, 0))
    if keys is not None:
        query = query.where(_R.workload_id.in_(tuple(find_workloads(connection, keys))))
    if errors_only:
        query = query.where(_R.latency.is_(None))
    return tuple(record for _, record in RecordReader(connection).read(query))


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
    return {scope_of(row): row.description for row in connection.execute(query)}


def machines(connection: Connection) -> tuple[MachineInfo, ...]:
    query = select(_all(MachineRow)).order_by(MachineRow.id)
    return tuple(
        MachineInfo(
            row.machine_key,
            row.hostname,
            row.cpu_model,
            row.cores,
            tuple(row.features),
            row.caches,
        )
        for row in connection.execute(query)
    )


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
