"""Plain values that go into and come out of a store.

In: nothing but plain data.  Out: frozen rows that cross threads and processes freely.  Times of day
are seconds since the epoch (UTC), latencies are seconds of one call.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from numbers import Integral, Real
from typing import Any, TypeVar

from engine.errors import StoreError
from engine.records import ErrorKind, MeasureRecord, RecordScope

T = TypeVar("T")

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class RunStatus(StrEnum):
    """How a tuning run stands.  A run that was killed stays `RUNNING`; its rounds count."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """One version of a model: its name, content hash, and how often each workload occurs in it."""

    name: str
    content_hash: str
    weights: Mapping[str, int]
    model_path: str = ""
    registered: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """A machine that measured: `key` is equal for equal machines, the rest is for people."""

    key: str
    hostname: str = ""
    cpu_model: str = ""
    cores: int = 0
    features: tuple[str, ...] = ()
    caches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A tuning run: which networks, under which scope, with which options."""

    run_id: str
    scope: RecordScope
    networks: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    status: RunStatus = RunStatus.RUNNING
    started: float = 0.0
    finished: float | None = None
    message: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """A finished round: the search task it went to, and how things stood after it.

    `estimates` holds each network's estimated latency after the round (networks without an estimate
    are absent), `task_table` one plain mapping for each search task, as the table shows it.
    """

    run_id: str
    index: int
    workload_key: str
    estimates: Mapping[str, float] = field(default_factory=dict)
    task_table: tuple[Mapping[str, Any], ...] = ()
    started: float = 0.0
    finished: float = 0.0
    trials: int = 0
    valid: int = 0

    @property
    def estimated_total(self) -> float:
        """Seconds: the sum over the networks, infinity while there is no estimate."""
        return sum(self.estimates.values()) if self.estimates else math.inf


@dataclass(frozen=True, slots=True)
class CompiledInfo:
    """A compiled network file, with the outcome of its verification."""

    id: int
    network: str
    scope: RecordScope
    path: str
    file_hash: str
    run_id: str = ""
    estimated: float | None = None
    verification: Mapping[str, Any] = field(default_factory=dict)
    created: float = 0.0
    published: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationInfo:
    """One side-by-side timing of a compiled network; `median` in seconds, `data` as measured."""

    compiled_id: int
    network: str
    scope: RecordScope
    median: float | None
    data: Mapping[str, Any]
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The records of one workload under one scope, counted; `best` in seconds or None."""

    workload_key: str
    scope: RecordScope
    records: int
    valid: int
    best: float | None

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: by workload, then by scope."""
        scope = self.scope
        return (
            self.workload_key,
            scope.target_key,
            scope.threads,
            str(scope.timing_mode),
            scope.generator_version,
        )


@dataclass(frozen=True, slots=True)
class ModelRows:
    """What the cost model learns from, oldest first: one entry of each field for each trial.

    `latencies` in seconds, infinite where a trial gave none; `features` hold 8-byte floats,
    little-endian, None where a record has none.
    """

    workload_keys: Sequence[str] = ()
    latencies: Sequence[float] = ()
    errors: Sequence[ErrorKind] = ()
    features: Sequence[bytes | None] = ()

    def __len__(self) -> int:
        return len(self.workload_keys)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds."""

    records: int
    valid: int
    errors: Mapping[str, int]
    workloads: int
    networks: int
    runs: int
    rounds: int
    compiled_networks: int
    scopes: Mapping[RecordScope, int]
    size_bytes: int = 0
    schema: str = ""


def storable(
    record: MeasureRecord, run_id: str | None = None, round_index: int | None = None
) -> MeasureRecord:
    """The record as every store keeps it.

    A time that is not a positive finite number makes the record `UNMEASURABLE` without times, so no
    query on latency can ever meet an infinity or a NaN.  Other numbers that are not finite become
    absent, and text loses what a database cannot hold (NUL, lone surrogates).  A `run_id` and a
    `round_index` take the place of the record's own.
    """
    error, times, message = record.error, tuple(map(float, record.times)), record.message
    if error is ErrorKind.OK and not (times and all(0 < t < math.inf for t in times)):
        error, message = ErrorKind.UNMEASURABLE, message or f"times are not measurable: {times}"
    predicted = record.predicted
    return MeasureRecord(
        workload_key=clean_text(record.workload_key),
        scope=record.scope,
        schedule=record.schedule,
        times=times if error is ErrorKind.OK else (),
        error=error,
        message=clean_text(message),
        predicted=float(predicted) if predicted is not None and math.isfinite(predicted) else None,
        run_id=clean_text(record.run_id if run_id is None else run_id),
        round_index=int(record.round_index if round_index is None else round_index),
        created=_finite(record.created),
        build_seconds=_finite(record.build_seconds),
        noisy=bool(record.noisy),
        extra=clean_json(record.extra),
    )


def split_features(extra: Mapping[str, Any]) -> tuple[bytes | None, Mapping[str, Any]]:
    """The features in `extra` (a list of floats) as 8-byte floats, and `extra` without them.

    They are kept in a column of their own: the cost model reads many of them, and little else.
    """
    values = extra.get("features")
    if not values or not isinstance(values, list) or set(map(type, values)) != {float}:
        return None, extra
    rest = {key: value for key, value in extra.items() if key != "features"}
    return struct.pack(f"<{len(values)}d", *values), rest


def unpack_features(data: bytes) -> tuple[float, ...]:
    """The numbers that `split_features` packed."""
    return struct.unpack(f"<{len(data) // 8}d", data)


def spread(times: Sequence[float]) -> float | None:
    """Standard deviation of the repeats in seconds; None for fewer than two or on overflow."""
    if len(times) < 2:
        return None
    mean = sum(times) / len(times)
    if not math.isfinite(mean):
        return None
    value = math.dist(times, [mean] * len(times)) / math.sqrt(len(times) - 1)
    return value if math.isfinite(value) else None


def run_status(status: RunStatus | str) -> RunStatus:
    """The status of that name.  Raises StoreError for another word."""
    try:
        return RunStatus(str(status))
    except ValueError:
        names = ", ".join(RunStatus)
        raise StoreError(f"no such run status: {status!r}", fix=f"Use one of {names}.") from None


def takes_over(known: RunStatus, new: RunStatus) -> bool:
    """Whether what another database says of a run replaces what is known of it here."""
    if known is RunStatus.IMPORTED:
        return new is not RunStatus.IMPORTED
    return known is RunStatus.RUNNING and new not in (RunStatus.RUNNING, RunStatus.IMPORTED)


def evaluated_median(evaluation: Mapping[str, Any]) -> float | None:
    """Seconds: the network's median in an evaluation, None if it has none."""
    ours = evaluation.get("noctune")
    median = ours.get("median_ms") if isinstance(ours, Mapping) else None
    if not isinstance(median, (int, float)) or not math.isfinite(median):
        return None
    return float(median) / 1e3


def clean_text(text: str) -> str:
    """The text without characters that a database refuses."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def clean_json(value: Any) -> Any:
    """The value as JSON gives it back, with None for numbers that are not finite.

    Whole numbers of more than 64 bits become floating-point numbers.
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, Integral):
        whole = int(value)
        return whole if -(2**63) <= whole < 2**64 else _rounded(whole)
    if isinstance(value, Mapping):
        return {clean_text(str(k)): clean_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_json(v) for v in value]
    if isinstance(value, Real):
        return clean_json(float(value))
    return clean_text(str(value))


def _rounded(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """The items in tuples of `size`; the last one may be shorter."""
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


def to_json(value: Any) -> str:
    """Compact strict JSON."""
    return _ENCODER.encode(value)


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0
