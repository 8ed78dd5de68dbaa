"""JSON lines: export from a store and import into one; `docs/records.md` defines the format.

In: a store and a path.  Out: a file that can be read without this code, or a report of what was
read.  Every line stands alone and names its format, so files may be cut, joined and filtered with
ordinary tools; whatever is not one of our lines is counted with its number and passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from db.lines import (
    MAX_LINE,
    head,
    key_text,
    machine_from_json,
    machine_to_json,
    mapping,
    network_to_json,
    parse_line,
    record_from_json,
    record_line,
    round_from_json,
    round_to_json,
    run_from_json,
    run_to_json,
    scope_from_json,
    scope_to_json,
    text,
    whole,
)
from db.store import Store
from db.values import RoundInfo, batched, to_json
from engine.errors import StoreError
from engine.records import MeasureRecord, RecordScope

MAX_BAD = 1000
"""Bad lines that a report lists; all are counted."""

_BATCH = 2000


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was passed over: its number, from 1, and why."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import found: `bad` lists at most `MAX_BAD` lines, `bad_count` counts all.

    `new` and `known` count records; `new_runs` and `new_rounds` what else was not there before.
    """

    lines: int
    new: int
    known: int
    bad_count: int
    bad: tuple[BadLine, ...]
    new_runs: int = 0
    new_rounds: int = 0


# -- writing --------------------------------------------------------------------------------------


def store_lines(
    store: Store,
    workload_keys: Sequence[str] | None = None,
    scope: RecordScope | None = None,
) -> Iterator[str]:
    """All lines of an export, without line ends; each comes after those that it refers to.

    With `workload_keys` there are no networks, runs and rounds, for these are of whole networks.
    """
    for key, description in store.workloads().items():
        if description and (workload_keys is None or key in workload_keys):
            yield to_json({**head("workload"), "workload_key": key, "description": description})
    for target, description in store.targets().items():
        if description and scope in (None, target):
            line = {**head("target"), **scope_to_json(target), "description": description}
            yield to_json(line)
    runs = () if workload_keys is not None else store.runs()
    runs = tuple(run for run in runs if scope in (None, run.scope))
    if workload_keys is None:
        yield from map(to_json, map(network_to_json, store.networks()))
        yield from map(to_json, map(machine_to_json, store.machines()))
        yield from map(to_json, map(run_to_json, runs))
    yield from map(record_line, store.iter_records(workload_keys, scope))
    for run in runs:
        for round_ in store.rounds(run.run_id):
            yield to_json(round_to_json(round_, run.scope))


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
        self._machines = {machine.key for machine in store.machines()}
        self._pending: list[MeasureRecord] = []
        self._rounds: list[tuple[RoundInfo, RecordScope]] = []
        self._bad: list[BadLine] = []
        self._lines = self._bad_count = self._new = self._records = 0
        self._new_runs = self._new_rounds = 0

    def take(self, number: int, raw: bytes) -> None:
        self._lines = number
        try:
            self._sort(parse_line(raw))
        except ValueError as error:
            self._bad_count += 1
            if len(self._bad) < MAX_BAD:
                self._bad.append(BadLine(number, str(error)))
        if len(self._pending) + len(self._rounds) >= _BATCH:
            self._flush()

    def _sort(self, data: Mapping[str, Any]) -> None:
        kind = data["kind"]
        if kind == "record":
            self._pending.append(record_from_json(data))
        elif kind == "workload":
            key = key_text(data, "workload_key")
            self._store.register_workload(key, mapping(data, "description"))
        elif kind == "target":
            self._target(data)
        elif kind == "network":
            self._network(data)
        elif kind == "machine":
            machine = machine_from_json(data)
            if machine.key not in self._machines:
                self._store.register_machine(machine)
        elif kind == "run":
            self._new_runs += self._store.add_run(run_from_json(data))
        elif kind == "round":
            self._rounds.append(round_from_json(data))
        else:
            raise ValueError(f"unknown kind: {kind!r}"[:80])

    def _target(self, data: Mapping[str, Any]) -> None:
        scope, description = scope_from_json(data), mapping(data, "description")
        if not self._store.targets().get(scope):
            self._store.register_target(scope, description)

    def _network(self, data: Mapping[str, Any]) -> None:
        """Networks that are known here stay as they are: the current version must not change."""
        name, content_hash = key_text(data, "name"), key_text(data, "content_hash")
        weights = mapping(data, "weights")
        counts = {key: whole(weights, key, 1) for key in weights}
        if name not in self._networks:
            path = text(data, "model_path", "")
            self._store.register_network(name, content_hash, counts, path)

    def _flush(self) -> None:
        """Records go first: a round that is there has its records."""
        self._new += self._store.add_records(self._pending)
        self._records += len(self._pending)
        self._pending.clear()
        self._new_rounds += self._store.add_rounds(self._rounds)
        self._rounds.clear()

    def finish(self) -> ImportReport:
        self._flush()
        known = self._records - self._new
        return ImportReport(
            self._lines, self._new, known, self._bad_count, tuple(self._bad), self._new_runs,
            self._new_rounds,
        )  # fmt: skip
