"""Writes: each function runs inside the caller's transaction.

In: an open connection and plain values.  Out: rows, and their surrogate ids where a caller needs
them.  Whatever is there already is left as it is (`ON CONFLICT DO NOTHING`), so all are safe to
repeat.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
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
from db.rows import BATCH, record_values
from db.values import (
    MachineInfo,
    RoundInfo,
    RunInfo,
    RunStatus,
    batched,
    clean_json,
    clean_text,
    storable,
    takes_over,
)
from engine.errors import StoreError
from engine.records import MeasureRecord, RecordScope


def insert_new(
    connection: Connection, row: type[DeclarativeBase], values: Sequence[Mapping[str, Any]]
) -> int:
    """Insert the rows that are not there yet; returns how many were not."""
    if not values:
        return 0
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = make(cast(Table, row.__table__)).on_conflict_do_nothing()
    result = connection.execute(
        statement, list(values), execution_options={"preserve_rowcount": True}
    )
    return max(result.rowcount, 0)


# -- ids ------------------------------------------------------------------------------------------


def workload_ids(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    """The id of each workload, added where unknown."""
    wanted = sorted({clean_text(key) for key in keys})
    found = _find_workloads(connection, wanted)
    missing = [key for key in wanted if key not in found]
    if not missing:
        return found
    now = time.time()
    insert_new(
        connection,
        WorkloadRow,
        [{"workload_key": key, "description": {}, "created_at": now} for key in missing],
    )
    return found | _find_workloads(connection, missing)


def _find_workloads(connection: Connection, keys: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in batched(keys, BATCH):
        query = select(WorkloadRow.workload_key, WorkloadRow.id)
        for key, id_ in connection.execute(query.where(WorkloadRow.workload_key.in_(part))):
            found[key] = id_
    return found


def target_id(connection: Connection, scope: RecordScope) -> int:
    """The id of the scope, added where unknown."""
    found = find_target(connection, scope)
    if found is not None:
        return found
    insert_new(connection, TargetRow, [scope_values(scope) | {"description": {}}])
    return cast(int, find_target(connection, scope))


def find_target(connection: Connection, scope: RecordScope) -> int | None:
    """The id of the scope, None where unknown."""
    query = select(TargetRow.id).filter_by(**scope_values(scope))
    return connection.execute(query).scalar()


SCOPE_COLUMNS = ("target_key", "threads", "timing_mode", "generator_version")


def scope_values(scope: RecordScope) -> dict[str, Any]:
    """The columns of `targets` by which a scope is known."""
    return {
        "target_key": clean_text(scope.target_key),
        "threads": int(scope.threads),
        "timing_mode": str(scope.timing_mode),
        "generator_version": clean_text(scope.generator_version),
    }


def run_row_id(connection: Connection, run_id: str) -> int:
    """The row id of a run.  Raises StoreError where unknown."""
    found = connection.execute(select(TuningRunRow.id).filter_by(run_key=clean_text(run_id)))
    id_ = found.scalar()
    if id_ is None:
        raise StoreError(
            f"no such tuning run: {run_id!r}", fix="Open it first: store.start_run(...)."
        )
    return id_


def _imported_run_id(connection: Connection, run_key: str, target: int, started: float) -> int:
    run = {
        "run_key": run_key,
        "target_id": target,
        "machine_id": None,
        "status": str(RunStatus.IMPORTED),
        "params": {},
        "message": "",
        "started_at": started,
        "finished_at": None,
    }
    insert_new(connection, TuningRunRow, [run])
    return run_row_id(connection, run_key)


def network_ids(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """The id of each network's current version.  Raises StoreError for an unknown name."""
    wanted = tuple(names)
    found = _find_networks(connection, wanted)
    for name in wanted:
        if name not in found:
            raise StoreError(
                f"no such network: {name!r}", fix="Register it first: store.register_network(...)."
            )
    return found


def _find_networks(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in dict.fromkeys(names):
        query = (
            select(NetworkRow.id)
            .filter_by(name=clean_text(name))
            .order_by(NetworkRow.registered_at.desc(), NetworkRow.id.desc())
            .limit(1)
        )
        id_ = connection.execute(query).scalar()
        if id_ is not None:
            found[name] = id_
    return found


# -- registration ---------------------------------------------------------------------------------


def put_machine(connection: Connection, machine: MachineInfo) -> None:
    values = {
        "hostname": clean_text(machine.hostname),
        "cpu_model": clean_text(machine.cpu_model),
        "cores": machine.cores,
        "features": clean_json(machine.features),
        "caches": clean_json(machine.caches),
    }
    key = clean_text(machine.key)
    if not insert_new(connection, MachineRow, [values | {"machine_key": key}]):
        connection.execute(update(MachineRow).filter_by(machine_key=key).values(values))


def put_target(connection: Connection, scope: RecordScope, description: Mapping[str, Any]) -> None:
    id_ = target_id(connection, scope)
    if description:
        change = update(TargetRow).filter_by(id=id_)
        connection.execute(change.values(description=clean_json(description)))


def put_workload(connection: Connection, key: str, description: Mapping[str, Any]) -> None:
    id_ = workload_ids(connection, [key])[clean_text(key)]
    query = select(WorkloadRow.description).filter_by(id=id_)
    if description and not connection.execute(query).scalar():
        change = update(WorkloadRow).filter_by(id=id_)
        connection.execute(change.values(description=clean_json(description)))


def put_network(
    connection: Connection,
    name: str,
    content_hash: str,
    weights: Mapping[str, int],
    model_path: str,
) -> None:
    known = {"name": clean_text(name), "content_hash": clean_text(content_hash)}
    changing = {"model_path": clean_text(model_path), "registered_at": time.time()}
    if not insert_new(connection, NetworkRow, [known | changing]):
        connection.execute(update(NetworkRow).filter_by(**known).values(changing))
    id_ = connection.execute(select(NetworkRow.id).filter_by(**known)).scalar_one()
    ids = workload_ids(connection, weights)
    rows = [
        {"network_id": id_, "workload_id": ids[clean_text(key)], "weight": weight}
        for key, weight in weights.items()
    ]
    connection.execute(delete(NetworkWorkloadRow).filter_by(network_id=id_))
    insert_new(connection, NetworkWorkloadRow, rows)


# -- runs, rounds, records ------------------------------------------------------------------------


def put_run(
    connection: Connection,
    run_id: str,
    networks: Sequence[str],
    scope: RecordScope,
    params: Mapping[str, Any],
    machine: str,
) -> None:
    ids = network_ids(connection, networks)
    machine_query = select(MachineRow.id).filter_by(machine_key=clean_text(machine))
    values = {
        "target_id": target_id(connection, scope),
        "machine_id": connection.execute(machine_query).scalar() if machine else None,
        "status": str(RunStatus.RUNNING),
        "params": clean_json(params),
        "message": "",
        "finished_at": None,
    }
    key = clean_text(run_id)
    if not insert_new(
        connection, TuningRunRow, [values | {"run_key": key, "started_at": time.time()}]
    ):
        connection.execute(update(TuningRunRow).filter_by(run_key=key).values(values))
    _put_run_networks(connection, run_row_id(connection, run_id), ids.values())


def _put_run_networks(connection: Connection, run: int, networks: Iterable[int]) -> None:
    connection.execute(delete(RunNetworkRow).filter_by(run_id=run))
    rows = [{"run_id": run, "network_id": id_, "position": i} for i, id_ in enumerate(networks)]
    insert_new(connection, RunNetworkRow, rows)


def add_run(connection: Connection, run: RunInfo) -> bool:
    """Note a run of another database; returns whether it was unknown."""
    key = clean_text(run.run_id)
    target = target_id(connection, run.scope)
    known = connection.execute(select(TuningRunRow.status).filter_by(run_key=key)).scalar()
    if known is not None and not takes_over(RunStatus(known), run.status):
        return False
    row = _imported_run_id(connection, key, target, run.started)
    machine = select(MachineRow.id).filter_by(machine_key=clean_text(run.machine))
    change = update(TuningRunRow).filter_by(id=row)
    connection.execute(
        change.values(
            target_id=target,
            machine_id=connection.execute(machine).scalar() if run.machine else None,
            status=str(run.status),
            params=clean_json(run.params),
            message=clean_text(run.message),
            started_at=run.started,
            finished_at=run.finished,
        )
    )
    _put_run_networks(connection, row, _find_networks(connection, run.networks).values())
    return known is None


def add_rounds(connection: Connection, rounds: Iterable[tuple[RoundInfo, RecordScope]]) -> int:
    """Note rounds of another database; returns how many were new."""
    return sum(_add_round(connection, round_, scope) for round_, scope in rounds)


def _add_round(connection: Connection, round_: RoundInfo, scope: RecordScope) -> bool:
    key = clean_text(round_.run_id)
    run = connection.execute(select(TuningRunRow.id).filter_by(run_key=key)).scalar()
    if run is None:
        target = target_id(connection, scope)
        run = _imported_run_id(connection, key, target, round_.started)
    row = _round_row(connection, run, round_, round_.trials, round_.valid)
    if not insert_new(connection, TuningRoundRow, [row]):
        return False
    _put_estimates(connection, row, round_, _find_networks(connection, round_.estimates))
    return True


def close_run(connection: Connection, run_id: str, status: str, message: str) -> None:
    change = update(TuningRunRow).filter_by(id=run_row_id(connection, run_id))
    connection.execute(
        change.values(status=status, message=clean_text(message), finished_at=time.time())
    )


def put_round(connection: Connection, round_: RoundInfo, records: Sequence[MeasureRecord]) -> int:
    run = run_row_id(connection, round_.run_id)
    kept = [storable(record, round_.run_id, round_.index) for record in records]
    valid = sum(record.valid for record in kept)
    row = _round_row(connection, run, round_, len(kept), valid)
    if not insert_new(connection, TuningRoundRow, [row]):
        return 0
    _put_estimates(connection, row, round_, network_ids(connection, round_.estimates))
    return _insert_records(connection, kept, {round_.run_id: run})


def _round_row(
    connection: Connection, run: int, round_: RoundInfo, trials: int, valid: int
) -> dict[str, Any]:
    key = clean_text(round_.workload_key)
    return {
        "run_id": run,
        "round_index": round_.index,
        "workload_id": workload_ids(connection, [key])[key],
        "trials": trials,
        "valid": valid,
        "task_table": clean_json(round_.task_table),
        "started_at": round_.started,
        "finished_at": round_.finished,
    }


def _put_estimates(
    connection: Connection, row: Mapping[str, Any], round_: RoundInfo, networks: Mapping[str, int]
) -> None:
    """Estimates of the networks whose ids are given."""
    known = {"run_id": row["run_id"], "round_index": row["round_index"]}
    estimates = [
        known | {"network_id": networks[name], "estimated_latency": seconds}
        for name, seconds in round_.estimates.items()
        if name in networks and 0 <= seconds < float("inf")
    ]
    insert_new(connection, RoundEstimateRow, estimates)


def put_records(connection: Connection, records: Iterable[MeasureRecord]) -> int:
    """Insert the records, in batches but in the one transaction; returns how many were new."""
    return sum(
        _insert_records(connection, [storable(record) for record in part], {})
        for part in batched(records, BATCH)
    )


def _insert_records(
    connection: Connection, records: Sequence[MeasureRecord], runs: dict[str, int]
) -> int:
    workloads = workload_ids(connection, {record.workload_key for record in records})
    targets = {scope: target_id(connection, scope) for scope in {r.scope for r in records}}
    runs = dict(runs)
    for record in records:
        if record.run_id not in runs:
            runs[record.run_id] = _known_run(connection, record, targets[record.scope])
    rows = [
        {
            "workload_id": workloads[clean_text(record.workload_key)],
            "target_id": targets[record.scope],
            "run_id": runs[record.run_id],
            **record_values(record),
        }
        for record in records
    ]
    return insert_new(connection, MeasureRecordRow, rows)


def _known_run(connection: Connection, record: MeasureRecord, target: int) -> int:
    key = clean_text(record.run_id)
    found = connection.execute(select(TuningRunRow.id).filter_by(run_key=key)).scalar()
    return found or _imported_run_id(connection, key, target, record.created)


def remove_ids(connection: Connection, ids: Sequence[int]) -> int:
    """Remove records by row id; returns how many were there."""
    removed = 0
    for part in batched(ids, BATCH):
        statement = delete(MeasureRecordRow).where(MeasureRecordRow.id.in_(part))
        removed += connection.execute(statement).rowcount
    return removed


# -- compiled networks ----------------------------------------------------------------------------


def put_compiled(
    connection: Connection, network: str, scope: RecordScope, run_id: str, values: dict[str, Any]
) -> int:
    known = {
        "network_id": network_ids(connection, [network])[network],
        "target_id": target_id(connection, scope),
        "path": values["path"],
        "file_hash": values["file_hash"],
    }
    run = run_row_id(connection, run_id) if run_id else None
    new = known | values | {"run_id": run, "created_at": time.time(), "published_at": None}
    if not insert_new(connection, CompiledNetworkRow, [new]):
        connection.execute(
            update(CompiledNetworkRow)
            .filter_by(**known)
            .values(
                verification=values["verification"],
                estimated_latency=values["estimated_latency"],
                details=values["details"],
                run_id=run,
            )
        )
    return connection.execute(select(CompiledNetworkRow.id).filter_by(**known)).scalar_one()


def put_evaluation(
    connection: Connection, compiled_id: int, data: Mapping[str, Any], median: float | None
) -> None:
    _require_compiled(connection, compiled_id)
    row = {
        "compiled_id": compiled_id,
        "median_latency": median,
        "data": clean_json(data),
        "created_at": time.time(),
    }
    connection.execute(insert(EvaluationRow).values(row))


def put_published(connection: Connection, compiled_id: int) -> None:
    _require_compiled(connection, compiled_id)
    change = update(CompiledNetworkRow).filter_by(id=compiled_id)
    connection.execute(change.values(published_at=time.time()))


def _require_compiled(connection: Connection, compiled_id: int) -> None:
    query = select(CompiledNetworkRow.id).filter_by(id=compiled_id)
    if connection.execute(query).scalar() is None:
        raise StoreError(f"no such compiled network: {compiled_id}")
