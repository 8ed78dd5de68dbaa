"""JSON lines: export from a store and import into one; `docs/records.md` defines the format.

In: a store and a path.  Out: a file that can be read without this code, or a report of what was
read.  Every line stands alone and names its format, so files may be cut, joined and filtered with
ordinary tools; whatever is not one of our lines is counted with its number and passed over.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from db.store import Store
from db.values import batched, storable, to_json
from engine.errors import StoreError
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode

FORMAT = "noctune-records"
VERSION = 1

MAX_LINE = 4 << 20
"""Bytes; a longer line is none of ours."""

MAX_BAD = 1000
"""Bad lines that a report lists; all are counted."""

_INT32 = 2**31
_MAX_FLOAT = sys.float_info.max
_MAX_KEY = 2000
_BATCH = 2000


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was passed over: its number, from 1, and why."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import found: `bad` lists at most `MAX_BAD` lines, `bad_count` counts all."""

    lines: int
    new: int
    known: int
    bad_count: int
    bad: tuple[BadLine, ...]


# -- writing --------------------------------------------------------------------------------------


def record_to_json(record: MeasureRecord) -> dict[str, Any]:
    """The record's line as a plain mapping."""
    kept = storable(record)
    return {
        **_head("record"),
        "workload_key": kept.workload_key,
        **_scope_to_json(kept.scope),
        "schedule": kept.schedule.to_json(),
        "error": str(kept.error),
        "message": kept.message,
        "times": list(kept.times),
        "predicted": kept.predicted,
        "run_id": kept.run_id,
        "round_index": kept.round_index,
        "created": kept.created,
        "build_seconds": kept.build_seconds,
        "noisy": kept.noisy,
        "extra": kept.extra,
    }


def _head(kind: str) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "kind": kind}


def _scope_to_json(scope: RecordScope) -> dict[str, Any]:
    return {
        "target_key": scope.target_key,
        "threads": scope.threads,
        "timing_mode": str(scope.timing_mode),
        "generator_version": scope.generator_version,
    }


def store_lines(
    store: Store,
    workload_keys: Sequence[str] | None = None,
    scope: RecordScope | None = None,
) -> Iterator[str]:
    """All lines of an export, without line ends: what the records refer to, then the records."""
    for key, description in store.workloads().items():
        if description and (workload_keys is None or key in workload_keys):
            yield to_json({**_head("workload"), "workload_key": key, "description": description})
    for target, description in store.targets().items():
        if description and scope in (None, target):
            line = {**_head("target"), **_scope_to_json(target), "description": description}
            yield to_json(line)
    if workload_keys is None:
        for network in store.networks():
            line = {
                **_head("network"),
                "name": network.name,
                "content_hash": network.content_hash,
                "model_path": network.model_path,
                "weights": dict(network.weights),
            }
            yield to_json(line)
    yield from map(record_line, store.iter_records(workload_keys, scope))


def record_line(record: MeasureRecord) -> str:
    """The record's line, without a line end."""
    return to_json(record_to_json(record))


def export_store(
    store: Store,
    path: str | os.PathLike[str],
    workload_keys: Sequence[str] | None = None,
    scope: RecordScope | None = None,
) -> int:
    """Write a store to a file, which appears as a whole or not at all; returns the lines.

    Raises StoreError if the file cannot be written.
    """
    return write_lines(path, store_lines(store, workload_keys, scope))


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> int:
    """Write lines to a new file by way of a temporary one; returns how many.

    The data is on the disk when this returns.  Raises StoreError if it cannot be written.
    """
    final = Path(path)
    if final.exists() and not final.is_file():
        raise StoreError("this is not a file", where=str(final), fix="Name a file to write.")
    part = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("wb") as file:
                count = _write(file, lines)
            os.replace(part, final)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _file_error(final, "written", error) from error
    return count


def append_records(path: str | os.PathLike[str], records: Iterable[MeasureRecord]) -> int:
    """Add records to the end of a file, never onto a line that was cut; returns how many."""
    try:
        with Path(path).open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            return _write(file, map(record_line, records))
    except OSError as error:
        raise _file_error(Path(path), "written", error) from error


def _write(file: BinaryIO, lines: Iterable[str]) -> int:
    count = 0
    for part in batched(lines, _BATCH):
        file.write(("\n".join(part) + "\n").encode())
        count += len(part)
    file.flush()
    os.fsync(file.fileno())
    return count


def _file_error(path: Path, done: str, error: OSError) -> StoreError:
    return StoreError(f"the file cannot be {done}", where=str(path), why=error.strerror or "")


# -- reading --------------------------------------------------------------------------------------


def import_file(store: Store, path: str | os.PathLike[str]) -> ImportReport:
    """Read a file into a store; what the store knows already is left as it is.

    Records go in by the thousand, each batch in one transaction; after a break the import is run
    again.  Raises StoreError if the file cannot be read.
    """
    reader = _Reader(store)
    try:
        with Path(path).open("rb") as file:
            for number, raw in _raw_lines(file):
                reader.take(number, raw)
    except OSError as error:
        raise _file_error(Path(path), "read", error) from error
    return reader.finish()


def read_records(path: str | os.PathLike[str]) -> Iterator[MeasureRecord]:
    """The records of a file, one after the other; everything else is passed over."""
    try:
        with Path(path).open("rb") as file:
            for _, raw in _raw_lines(file):
                try:
                    data = parse_line(raw)
                    if data["kind"] == "record":
                        yield record_from_json(data)
                except ValueError:
                    continue
    except OSError as error:
        raise _file_error(Path(path), "read", error) from error


def _raw_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; of a line that is too long only the beginning is kept."""
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        rest = raw
        while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE + 1)
        yield number, raw


class _Reader:
    """Takes lines, sorts them by kind and hands them to the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._networks = {network.name for network in store.networks()}
        self._pending: list[MeasureRecord] = []
        self._bad: list[BadLine] = []
        self._lines = self._bad_count = self._new = self._records = 0

    def take(self, number: int, raw: bytes) -> None:
        self._lines = number
        try:
            self._sort(parse_line(raw))
        except ValueError as error:
            self._bad_count += 1
            if len(self._bad) < MAX_BAD:
                self._bad.append(BadLine(number, str(error)))
        if len(self._pending) >= _BATCH:
            self._flush()

    def _sort(self, data: Mapping[str, Any]) -> None:
        kind = data["kind"]
        if kind == "record":
            self._pending.append(record_from_json(data))
        elif kind == "workload":
            key = _text(data, "workload_key")
            self._store.register_workload(key, _mapping(data, "description"))
        elif kind == "target":
            self._target(data)
        elif kind == "network":
            self._network(data)
        else:
            raise ValueError(f"unknown kind: {kind!r}"[:80])

    def _target(self, data: Mapping[str, Any]) -> None:
        scope, description = _scope(data), _mapping(data, "description")
        if not self._store.targets().get(scope):
            self._store.register_target(scope, description)

    def _network(self, data: Mapping[str, Any]) -> None:
        """Networks that are known here stay as they are: the current version must not change."""
        name, content_hash = _text(data, "name"), _text(data, "content_hash")
        weights = _mapping(data, "weights")
        counts = {key: _int(weights, key) for key in weights}
        if name not in self._networks:
            path = _text(data, "model_path", "")
            self._store.register_network(name, content_hash, counts, path)

    def _flush(self) -> None:
        self._new += self._store.add_records(self._pending)
        self._records += len(self._pending)
        self._pending.clear()

    def finish(self) -> ImportReport:
        self._flush()
        known = self._records - self._new
        return ImportReport(self._lines, self._new, known, self._bad_count, tuple(self._bad))


def parse_line(raw: bytes) -> dict[str, Any]:
    """The mapping of one of our lines.  Raises ValueError with the reason for any other line."""
    if len(raw) > MAX_LINE:
        raise ValueError("line too long")
    if not raw.strip():
        raise ValueError("blank line")
    try:
        data = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        cut = "" if raw.endswith(b"\n") else ", the line is cut"
        raise ValueError("not JSON" + cut) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a line of {FORMAT}")
    version = data.get("version")
    if version != VERSION:
        raise ValueError(f"version {version!r} is not known here"[:80])
    if not isinstance(data.get("kind"), str):
        raise ValueError("without a kind")
    return data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def record_from_json(data: Mapping[str, Any]) -> MeasureRecord:
    """The record of a line.  Raises ValueError naming the field that is missing or wrong."""
    schedule, times = _mapping(data, "schedule"), data.get("times")
    knobs = _mapping(schedule, "knobs")
    if not isinstance(times, list):
        raise ValueError("times is not a list")
    predicted = None if data.get("predicted") is None else _number(data, "predicted")
    try:
        error = ErrorKind(_text(data, "error"))
    except ValueError as reason:
        raise ValueError(f"error: {reason}"[:80]) from None
    record = MeasureRecord(
        workload_key=_text(data, "workload_key"),
        scope=_scope(data),
        schedule=Schedule(
            _text(schedule, "sketch"), {key: _int(knobs, key, 2**200) for key in knobs}
        ),
        times=tuple(_number({"times": seconds}, "times") for seconds in times),
        error=error,
        message=_text(data, "message", "", limit=MAX_LINE),
        predicted=predicted,
        run_id=_text(data, "run_id", ""),
        round_index=_int(data, "round_index"),
        created=_number(data, "created", 0.0),
        build_seconds=_number(data, "build_seconds", 0.0),
        noisy=data.get("noisy") is True,
        extra=_mapping(data, "extra", {}),
    )
    return storable(record)


def _scope(data: Mapping[str, Any]) -> RecordScope:
    try:
        mode = TimingMode(_text(data, "timing_mode"))
    except ValueError as reason:
        raise ValueError(f"timing_mode: {reason}"[:80]) from None
    version = _text(data, "generator_version")
    return RecordScope(_text(data, "target_key"), _int(data, "threads"), mode, version)


def _text(
    data: Mapping[str, Any], key: str, default: str | None = None, limit: int = _MAX_KEY
) -> str:
    value = data.get(key, default)
    if not isinstance(value, str) or len(value) > limit:
        raise ValueError(f"{key} is not a text" if not isinstance(value, str) else f"{key}: long")
    return value


def _int(data: Mapping[str, Any], key: str, limit: int = _INT32) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise ValueError(f"{key} is not a whole number in range")
    return value


def _number(data: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = data.get(key, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > _MAX_FLOAT:
        raise ValueError(f"{key} is not a number")
    return float(value)


def _mapping(
    data: Mapping[str, Any], key: str, default: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    value = data.get(key, default)
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is not an object")
    return value
