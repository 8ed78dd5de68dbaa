"""Record rows: how a `MeasureRecord` stands in the table `measure_records`, both ways.

In: records, or an open connection and a query.  Out: column values, or records and `ModelRows`.
Rows are read as plain columns and worked on column by column, so that the loops over them are the
interpreter's own; mapped objects would take several times as long.
"""

from __future__ import annotations

import gc
import hashlib
import math
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import repeat
from types import MappingProxyType
from typing import Any

import orjson
from sqlalchemy import Connection, Select, Text, cast, select

from db.models import MeasureRecordRow, TargetRow, TuningRunRow, WorkloadRow
from db.values import ModelRows, batched, clean_json, split_features, spread, unpack_features
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode

BATCH = 2000
"""Rows, or values of an IN list, in one statement."""

_R = MeasureRecordRow
_KINDS = {str(kind): kind for kind in ErrorKind}
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
    _R.features,
)
_OUTCOME_COLUMNS = (
    _R.run_id,
    _R.round_index,
    cast(_R.schedule, Text),
    _R.latency,
    _R.error,
    _R.message,
    _R.noisy,
    _R.created_at,
)
_MODEL_COLUMNS = (_R.workload_id, _R.latency, _R.error, _R.features)

RecordQuery = Select[*tuple[Any, ...]]


def record_query() -> RecordQuery:
    """A query of all records in the order in which they were stored."""
    return record_columns().order_by(_R.id)


def record_columns() -> RecordQuery:
    """What a `RecordReader` reads, of rows and in an order that the caller chooses."""
    return select(*_COLUMNS)


def named_record_columns() -> RecordQuery:
    """What `RecordReader.read_named` takes; the query joins workloads and runs."""
    return select(*_COLUMNS, WorkloadRow.workload_key, TuningRunRow.run_key)


def outcome_columns() -> RecordQuery:
    """What `RecordReader.read_outcomes` reads."""
    return select(*_OUTCOME_COLUMNS)


def model_columns() -> RecordQuery:
    """What `read_model_rows` reads."""
    return select(*_MODEL_COLUMNS)


# -- writing --------------------------------------------------------------------------------------


def record_values(record: MeasureRecord) -> dict[str, Any]:
    """The columns of a storable record, apart from the ids of what it refers to."""
    features, extra = split_features(record.extra)
    return {
        "round_index": record.round_index,
        "schedule_hash": schedule_hash(record.schedule),
        "schedule": clean_json(record.schedule.to_json()),
        "error": str(record.error),
        "message": record.message,
        "latency": record.latency if record.valid else None,
        "spread": spread(record.times),
        "times": list(record.times),
        "predicted": record.predicted,
        "build_seconds": record.build_seconds,
        "noisy": record.noisy,
        "extra": extra,
        "features": features,
        "created_at": record.created,
    }


def schedule_hash(schedule: Schedule) -> str:
    """Short and equal for equal schedules; the models tell readers what it is."""
    return hashlib.sha256(schedule.key.encode("utf-8", "replace")).hexdigest()[:32]


# -- reading --------------------------------------------------------------------------------------


class StoredExtra(Mapping[str, Any]):
    """A record's `extra` as it was stored, decoded when somebody looks: few do."""

    __slots__ = ("_features", "_found", "_text")

    def __init__(self, text: str, features: bytes | None) -> None:
        self._text, self._features = text, features
        self._found: dict[str, Any] | None = None

    def _decoded(self) -> dict[str, Any]:
        if self._found is None:
            found: dict[str, Any] = orjson.loads(self._text)
            if self._features is not None:
                found["features"] = list(unpack_features(self._features))
            self._found = found
        return self._found

    def __getitem__(self, key: str) -> Any:
        return self._decoded()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __repr__(self) -> str:
        return repr(self._decoded())


class RecordReader:
    """Turns record rows into records; remembers the keys behind the ids for one transaction."""

    def __init__(
        self, connection: Connection, workloads: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        """`workloads` are keys by row id, as far as the caller knows them."""
        self._connection = connection
        self._workloads = dict(workloads)
        self._runs: dict[int, str] = {}
        self._scopes: dict[int, RecordScope] = {}

    def read(self, query: RecordQuery) -> list[tuple[int, MeasureRecord]]:
        """The records of a query over `record_columns()`, each with its row id."""
        with collector_paused():
            rows = self._connection.execute(query).all()
            self._learn(rows)
            return self._records(rows)

    def read_named(self, rows: Sequence[Any], scope: RecordScope) -> list[MeasureRecord]:
        """The records of rows over `named_record_columns()`, all of one scope."""
        for row in rows:
            self._workloads[row[1]], self._runs[row[3]] = row[-2], row[-1]
            self._scopes[row[2]] = scope
        return [record for _, record in self._records([row[:-2] for row in rows])]

    def read_outcomes(
        self, query: RecordQuery, key: str, scope: RecordScope
    ) -> list[MeasureRecord]:
        """The records of a query over `outcome_columns()` of one workload and scope."""
        with collector_paused():
            rows = self._connection.execute(query).all()
            if not rows:
                return []
            runs, rounds, schedules, latencies, *rest = zip(*rows, strict=True)
            errors, messages, noisy, created = rest
            self._learn_runs(set(runs))
            columns: dict[str, Iterable[Any]] = {
                "workload_key": repeat(key),
                "scope": repeat(scope),
                "schedule": _schedules(schedules),
                "times": [() if seconds is None else (seconds,) for seconds in latencies],
                "error": map(_KINDS.__getitem__, errors),
                "message": messages,
                "predicted": repeat(None),
                "run_id": map(self._runs.__getitem__, runs),
                "round_index": rounds,
                "created": created,
                "build_seconds": repeat(0.0),
                "noisy": noisy,
                "extra": map(dict, repeat(())),
            }
            return _made(columns, len(rows))

    def _records(self, rows: Sequence[Any]) -> list[tuple[int, MeasureRecord]]:
        if not rows:
            return []
        ids, workloads, targets, runs, rounds, schedules, times, *rest = zip(*rows, strict=True)
        errors, messages, predicted, created, built, noisy, extra, features = rest
        columns: dict[str, Iterable[Any]] = {
            "workload_key": map(self._workloads.__getitem__, workloads),
            "scope": map(self._scopes.__getitem__, targets),
            "schedule": _schedules(schedules),
            "times": [tuple(map(float, seconds)) for seconds in map(orjson.loads, times)],
            "error": map(_KINDS.__getitem__, errors),
            "message": messages,
            "predicted": predicted,
            "run_id": map(self._runs.__getitem__, runs),
            "round_index": rounds,
            "created": created,
            "build_seconds": built,
            "noisy": noisy,
            "extra": map(StoredExtra, extra, features),
        }
        records = _made(columns, len(ids))
        return list(zip(ids, records, strict=True))

    def _learn(self, rows: Sequence[Any]) -> None:
        connection = self._connection
        unknown = {row[1] for row in rows} - self._workloads.keys()
        self._workloads |= workload_keys(connection, unknown)
        self._learn_runs({row[3] for row in rows})
        if any(row[2] not in self._scopes for row in rows):
            self._scopes = scopes(connection)

    def _learn_runs(self, ids: set[int]) -> None:
        for part in batched(ids - self._runs.keys(), BATCH):
            query = select(TuningRunRow.id, TuningRunRow.run_key).where(TuningRunRow.id.in_(part))
            self._runs.update((id_, key) for id_, key in self._connection.execute(query))


def _schedules(texts: Iterable[str]) -> list[Schedule]:
    return [Schedule(data["sketch"], data["knobs"]) for data in map(orjson.loads, texts)]


def _made(columns: Mapping[str, Iterable[Any]], count: int) -> list[MeasureRecord]:
    """`count` records from all their fields; a frozen class's own way takes three times as long."""
    made: list[MeasureRecord] = list(map(object.__new__, repeat(MeasureRecord, count)))
    for field in fields(MeasureRecord):
        put = getattr(MeasureRecord, field.name).__set__
        deque(map(put, made, columns[field.name]), maxlen=0)
    return made


def read_model_rows(connection: Connection, query: RecordQuery) -> ModelRows:
    """The rows of a query over `model_columns()`, which lists the newest first, oldest first."""
    with collector_paused():
        rows = connection.execute(query).all()
        if not rows:
            return ModelRows()
        workloads, latencies, errors, features = zip(*reversed(rows), strict=True)
        keys = workload_keys(connection, set(workloads))
        return ModelRows(
            workload_keys=tuple(map(keys.__getitem__, workloads)),
            latencies=array("d", [math.inf if s is None else s for s in latencies]),
            errors=tuple(map(_KINDS.__getitem__, errors)),
            features=features,
        )


def workload_keys(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    """The key of each workload id."""
    found: dict[int, str] = {}
    for part in batched(sorted(ids), BATCH):
        query = select(WorkloadRow.id, WorkloadRow.workload_key).where(WorkloadRow.id.in_(part))
        found.update((id_, key) for id_, key in connection.execute(query))
    return found


def scopes(connection: Connection) -> dict[int, RecordScope]:
    """Every scope by its row id."""
    return {row.id: scope_of(row) for row in connection.execute(select(TargetRow.__table__))}


def scope_of(row: Any) -> RecordScope:
    """The scope that a row of `targets` stands for."""
    mode = TimingMode(row.timing_mode)
    return RecordScope(row.target_key, row.threads, mode, row.generator_version)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Reading makes many objects and no cycles; looking for cycles would double its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
