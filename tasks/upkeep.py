"""Keeping the database small: distilling and pruning with an archive, and a file of the best.

In: a database.  Out: the same database with fewer records, an archive of the others, a report.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from db.distill import distill as distill_store
from db.distill import prune as prune_store
from db.exchange import export_store
from db.store import open_store
from engine.files import check_writable
from tasks.stores import store_files


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What stayed and what went; `archive` holds the records that went, "" if none did."""

    db: str
    kept: int
    removed: int
    archive: str
    output: str = ""
    lines: int = 0


def distill(
    db: str, *, keep: int, spread: int, output: str = "", archive: str = ""
) -> UpkeepReport:
    """Keep the `keep` best schedules of each workload and scope, and `spread` others.

    The best record of each always stays, so that compiling gives the same networks.  `output` gets
    all that stayed as JSON lines.
    """
    archive = archive or archive_path(db)
    check_outputs(db, archive, output)
    with open_store(db) as store:
        done = distill_store(store, archive, keep=keep, spread=spread)
        lines = export_store(store, output) if output else 0
        return UpkeepReport(store.url, done.kept, done.removed, done.archive or "", output, lines)


def prune(
    db: str,
    *,
    before: float | None = None,
    other_than_generator: str | None = None,
    failed_only: bool = False,
    archive: str = "",
) -> UpkeepReport:
    """Drop records that are too old, of another generator version, or failed."""
    archive = archive or archive_path(db)
    check_outputs(db, archive)
    with open_store(db) as store:
        done = prune_store(
            store,
            archive,
            before=before,
            other_than_generator=other_than_generator,
            failed_only=failed_only,
        )
        return UpkeepReport(store.url, done.kept, done.removed, done.archive or "")


def check_outputs(db: str, archive: str = "", output: str = "") -> None:
    """Raises NoctuneError unless both files can be made and overwrite neither the database nor each
    other."""
    inputs: tuple[str | Path, ...] = store_files(db)
    if archive:
        check_writable(archive, *inputs)
        inputs = (*inputs, archive)
    if output:
        check_writable(output, *inputs)


def archive_path(db: str) -> str:
    """Beside a database file, in this folder for a server: "noctune.2026-11-30T031500.jsonl"."""
    stamp = time.strftime("%Y-%m-%dT%H%M%S")
    if "://" in db and not db.startswith("sqlite"):
        return f"noctune-archive.{stamp}.jsonl"
    path = Path(db.split("///")[-1])
    return str(path.with_name(f"{path.stem}-archive.{stamp}.jsonl"))
