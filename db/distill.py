"""Make a store smaller without losing what tuning needs: distil and prune.

In: a store.  Out: the same store with fewer records, and an archive of those that went, which
`db.exchange` reads back.  The archive is safe on the disk before the first record goes, and all go
in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from db.exchange import write_lines
from db.lines import record_line
from db.store import Store
from engine.errors import StoreError
from engine.records import MeasureRecord, RecordScope, TimingMode

KEEP, SPREAD = 16, 112


@dataclass(frozen=True, slots=True)
class DistillReport:
    """What was done; `archive` is None when nothing had to go."""

    kept: int
    removed: int
    archive: str | None


def distill(
    store: Store,
    archive: str | Path,
    *,
    keep: int = KEEP,
    spread: int = SPREAD,
    scope: RecordScope | None = None,
) -> DistillReport:
    """Keep the `keep` best schedules of each workload and scope, and up to `spread` others.

    Every workload's best record stays, and so do all that were timed inside a network (they are
    few, and tell what was tried there): the store compiles to the same networks as before.  With a
    `scope` only its records are touched.  Raises StoreError if `archive` exists or cannot be
    written.
    """
    if keep < 1 or spread < 0:
        raise StoreError("distilling keeps at least one record of each workload", fix="--keep 16")

    def drop(records: Sequence[MeasureRecord]) -> list[bool]:
        other = scope is not None and records and records[0].scope != scope
        if other or (records and records[0].scope.timing_mode is TimingMode.IN_NETWORK):
            return [False] * len(records)
        kept = choose_kept(records, keep, spread)
        return [place not in kept for place in range(len(records))]

    return _remove(store, Path(archive), drop)


def prune(
    store: Store,
    archive: str | Path,
    *,
    before: float | None = None,
    other_than_generator: str | None = None,
    failed_only: bool = False,
) -> DistillReport:
    """Drop records that are older than `before`, of another generator version, or failed.

    What is said is said together: a record goes if all of it holds.  The best record of each
    workload and scope stays.  Raises StoreError if nothing is said or the archive fails.
    """
    if before is None and other_than_generator is None and not failed_only:
        raise StoreError(
            "nothing says which records to drop",
            fix="Give an age, a generator or failures.",
        )

    def goes(record: MeasureRecord) -> bool:
        return (
            (before is None or record.created < before)
            and other_than_generator != record.scope.generator_version
            and not (failed_only and record.valid)
        )

    def drop(records: Sequence[MeasureRecord]) -> list[bool]:
        best = choose_kept(records, 1, 0)
        return [place not in best and goes(record) for place, record in enumerate(records)]

    return _remove(store, Path(archive), drop)


def choose_kept(records: Sequence[MeasureRecord], keep: int, spread: int) -> set[int]:
    """Places of the records of one workload and scope that stay.

    The `keep` fastest with different schedules; of the other valid ones as many as `spread` leaves,
    evenly over their order by latency from the fastest to the slowest, so that the cost model still
    sees slow ones; and for a quarter of `spread` the newest failures.
    """
    valid = [place for place, record in enumerate(records) if record.valid]
    valid.sort(key=lambda place: (records[place].latency, place))
    best: dict[str, int] = {}
    for place in valid:
        if len(best) < keep:
            best.setdefault(records[place].schedule.key, place)
    kept = set(best.values())
    failures = [place for place, record in enumerate(records) if not record.valid]
    newest = failures[max(len(failures) - spread // 4, 0) :]
    rest = [place for place in valid if place not in kept]
    return kept | set(newest) | set(_evenly(rest, spread - len(newest)))


def _evenly(items: Sequence[int], count: int) -> Sequence[int]:
    if count <= 0:
        return ()
    if count >= len(items):
        return items
    if count == 1:
        return items[:1]
    last = len(items) - 1
    return [items[round(place * last / (count - 1))] for place in range(count)]


def _remove(
    store: Store, archive: Path, drop: Callable[[Sequence[MeasureRecord]], list[bool]]
) -> DistillReport:
    if archive.exists():
        raise StoreError("the archive exists already", where=str(archive), fix="Give a new name.")

    def write(records: Iterable[MeasureRecord]) -> None:
        write_lines(archive, map(record_line, records))

    removed = store.remove_records(drop, write)
    if not removed:
        archive.unlink(missing_ok=True)
    return DistillReport(store.stats().records, removed, str(archive) if removed else None)
