"""What two stores have in common and where they differ.

In: two stores.  Out: counts, and each workload whose best latency differs.  One workload and scope
is held in memory at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from db.store import Store
from engine.records import RecordScope


@dataclass(frozen=True, slots=True)
class BestChange:
    """A workload's best latency in each store, in seconds; None where it has none."""

    workload_key: str
    scope: RecordScope
    left: float | None
    right: float | None


@dataclass(frozen=True, slots=True)
class StoreDiff:
    """How many records only the left, only the right, and both stores hold."""

    only_left: int
    only_right: int
    both: int
    changes: tuple[BestChange, ...]


def diff_stores(left: Store, right: Store) -> StoreDiff:
    """Compare two stores; a record is the same by run, round, workload, scope and schedule."""
    lefts = {(group.workload_key, group.scope): group for group in left.groups()}
    rights = {(group.workload_key, group.scope): group for group in right.groups()}
    only_left = only_right = both = 0
    changes = []
    for place in sorted({**lefts, **rights}, key=_order):
        mine, theirs = _trials(left, *place), _trials(right, *place)
        only_left += len(mine - theirs)
        only_right += len(theirs - mine)
        both += len(mine & theirs)
        bests = [side[place].best if place in side else None for side in (lefts, rights)]
        if bests[0] != bests[1]:
            changes.append(BestChange(*place, *bests))
    return StoreDiff(only_left, only_right, both, tuple(changes))


def _trials(store: Store, key: str, scope: RecordScope) -> set[tuple[str, int, str]]:
    records = store.history([key], scope)[key]
    return {(record.run_id, record.round_index, record.schedule.key) for record in records}


def _order(place: tuple[str, RecordScope]) -> tuple[str, str, int, str, str]:
    key, scope = place
    mode = str(scope.timing_mode)
    return (key, scope.target_key, scope.threads, mode, scope.generator_version)
