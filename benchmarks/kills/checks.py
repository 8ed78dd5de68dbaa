"""What must hold after every kill: records, rounds, files, locks, published networks.

In: a database and folders.  Out: violations in words, none if all is well.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from db.connect import READING, connect
from engine.runtime.network import load

_LOCKS = {"noctune-night.lock"}
"""Lock files stay; what matters is that nobody holds them."""
_NOT_OURS = {".ses"}
"""What onnxruntime writes when it is imported."""

_TABLES = {
    "record": "SELECT r.id, w.workload_key, t.target_key, t.timing_mode, t.threads, r.run_id, "
    "r.round_index, r.schedule_hash, r.error, r.latency FROM measure_records r "
    "JOIN workloads w ON w.id = r.workload_id JOIN targets t ON t.id = r.target_id",
    "round": "SELECT run_id, round_index, workload_id, trials, valid FROM tuning_rounds",
    "run": "SELECT id, run_key FROM tuning_runs",
    "compiled network": "SELECT id, file_hash FROM compiled_networks",
    "evaluation": "SELECT id, compiled_id FROM evaluations",
    "use": "SELECT rn.run_id, w.workload_key, COUNT(*) FROM run_networks rn "
    "JOIN network_workloads nw ON nw.network_id = rn.network_id "
    "JOIN workloads w ON w.id = nw.workload_id GROUP BY rn.run_id, w.workload_key",
}
_COLD = "cold_weights"


@dataclass(frozen=True, slots=True)
class Contents:
    """All that is committed: rows by kind."""

    rows: dict[str, frozenset[tuple[Any, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows.get("record", ()))

    @property
    def trials(self) -> int:
        """Records of tuning rounds, without those of the selection inside networks."""
        return sum(row[3] == _COLD for row in self.rows.get("record", ()))


class Database:
    """Reads a database as anybody may, without noctune's store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine: Engine = connect(url).execution_options(**{READING: True})

    @property
    def _is_missing(self) -> bool:
        file = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        return file is not None and not Path(file).exists()

    def contents(self) -> Contents:
        """What is committed now; nothing where there are no tables yet."""
        if self._is_missing:
            return Contents()
        try:
            with self._engine.begin() as connection:
                rows = {
                    kind: frozenset(tuple(row) for row in connection.execute(text(query)))
                    for kind, query in _TABLES.items()
                }
        except (ProgrammingError, OperationalError) as error:
            message = str(error.orig)
            if "no such table" in message or "does not exist" in message:
                return Contents()
            raise
        finally:
            self._engine.dispose()
        return Contents(rows)

    def damage(self) -> list[str]:
        """What the database itself finds wrong with its file."""
        if self._is_missing or self._engine.dialect.name != "sqlite":
            return []
        with self._engine.begin() as connection:
            found = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
            orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        self._engine.dispose()
        bad = [f"database damaged: {line}" for line in found if line != "ok"]
        return bad + [f"row without its parent: {tuple(row)}" for row in orphans]


def lost(before: Contents, after: Contents) -> list[str]:
    """Rows that were committed and are no longer there as they were."""
    found = []
    for kind, rows in before.rows.items():
        missing = rows - after.rows.get(kind, frozenset())
        if missing:
            found.append(f"{len(missing)} {kind} rows lost, such as {min(missing, key=str)}")
    return found


def inconsistent(contents: Contents) -> list[str]:
    """Candidates that were measured twice, and rounds that are stored in part."""
    records = contents.rows.get("record", frozenset())
    found = _repeated(records, contents.rows.get("use", frozenset()))
    counts: dict[tuple[int, int], list[int]] = {}
    for row in records:
        count = counts.setdefault((row[5], row[6]), [0, 0])
        count[0] += 1
        count[1] += row[9] is not None
    for run, index, _, trials, valid in contents.rows.get("round", frozenset()):
        total, good = counts.pop((run, index), (0, 0))
        if good != valid or total != max(trials, valid):
            found.append(
                f"round {index} of run {run} says {trials} trials, {valid} valid; "
                f"it has {total} and {good}"
            )
    return found + [f"records of a round that is not there: {key}" for key in counts]


def _repeated(records: Iterable[tuple[Any, ...]], uses: Iterable[tuple[Any, ...]]) -> list[str]:
    """No candidate is tried twice at all, nor selected twice in a run for the same network."""
    networks = {(run, workload): count for run, workload, count in uses}
    seen: Counter[tuple[Any, ...]] = Counter()
    for _, workload, target, mode, threads, run, _, schedule, _, _ in records:
        seen[workload, target, mode, threads, schedule, None if mode == _COLD else run] += 1
    return [
        f"measured {count} times: {key}"
        for key, count in seen.items()
        if count > networks.get((key[5], key[0]), 1)
    ]


_TOLD = re.compile(r"^round \d+: .*?(\d+) trials, [\d.]+/s")


def told(lines: Iterable[str]) -> int:
    """Trials that a run said it had stored."""
    found = [int(m.group(1)) for line in lines if (m := _TOLD.match(line))]
    return max(found, default=0)


def left_behind(folder: Path, grace_s: float = 5.0) -> list[str]:
    """Temporary files and folders that are still there after a while."""
    end = time.monotonic() + grace_s
    while True:
        found = sorted(set(os.listdir(folder)) - _LOCKS - _NOT_OURS)
        if not found or time.monotonic() > end:
            return [f"temporary file left: {name}" for name in found]
        time.sleep(0.1)


def half_published(folder: Path) -> list[str]:
    """Hidden files of publications that never ended."""
    if not folder.exists():
        return []
    hidden = [path for path in folder.rglob(".*") if path.name != "."]
    return [f"half-written file left: {path.relative_to(folder)}" for path in hidden]


def held_locks(folder: Path) -> list[str]:
    """Locks that somebody still holds."""
    found = []
    for name in sorted(_LOCKS):
        path = folder / name
        if not path.exists():
            continue
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"lock held: {name}: {path.read_text(errors='replace').strip()}")
    return found


def damaged_networks(folder: Path) -> list[str]:
    """Published networks whose current file is not what was published, or does not run."""
    found = []
    for link in sorted(folder.glob("*/current")):
        try:
            found += _damaged(link)
        except Exception as error:
            found.append(f"published {link.parent.name}: {type(error).__name__}: {error}")
    return found


def unpublished(folder: Path, networks: Iterable[str]) -> list[str]:
    """Networks without a current version, after a night that ended well."""
    return [
        f"published {name}: no current version"
        for name in networks
        if not (folder / name / "current").exists()
    ]


def _damaged(link: Path) -> list[str]:
    name = link.parent.name
    file = link / f"{name}.net"
    noted = json.loads((link / "report.json").read_text())["file_hash"]
    if hashlib.sha256(file.read_bytes()).hexdigest() != noted:
        return [f"published {name}: the file is not the one that was published"]
    output = load(file)(np.full((1, 3, 12, 12), 0.5, np.float32))
    if not np.isfinite(output).all() or not np.any(output):
        return [f"published {name}: outputs are not numbers"]
    return []
