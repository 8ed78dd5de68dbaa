"""Good schedules of like workloads: other sizes, other networks, other nights.

In: a workload's key and the records of other workloads in the same scope.  Out: schedules worth
trying first, the likest workload's best first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from engine.records import MeasureRecord, RecordScope, Schedule

OTHER_COMPUTATION = 6.0
"""Distance added when the computation differs (another epilogue, say) and only shapes are alike."""
FARTHEST = 16.0
"""Workloads farther apart have nothing to tell each other."""


@lru_cache(maxsize=65536)
def _parts(key: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """(digest of the computation, shapes) of a workload key; no shapes in any other text."""
    try:
        digest, *rest = json.loads(key)
        return str(digest), tuple(tuple(map(int, s)) for s in rest if isinstance(s, list))
    except (ValueError, TypeError):
        return key, ()


def workload_distance(left: str, right: str) -> float:
    """How unlike two workloads are, from their keys: sum of |log2| ratios of their extents.

    0 for equal keys; infinite when the shapes cannot be compared.  Of two different computations
    only the data and the weights are compared, at an extra distance.
    """
    if left == right:
        return 0.0
    (digest, shapes), (other, others) = _parts(left), _parts(right)
    extra = 0.0
    if digest != other:
        shapes, others, extra = shapes[:2], others[:2], OTHER_COMPUTATION
    if not shapes or [len(s) for s in shapes] != [len(s) for s in others]:
        return math.inf
    mine, theirs = (np.array([n for s in group for n in s], float) for group in (shapes, others))
    return extra + float(np.abs(np.log2(np.maximum(mine, 1) / np.maximum(theirs, 1))).sum())


def similar_schedules(
    key: str, scope: RecordScope, records: Iterable[MeasureRecord], limit: int = 8, each: int = 2
) -> list[Schedule]:
    """At most `limit` different schedules: the `each` fastest of the likest workloads first.

    Records of other scopes, failed and noisy ones are ignored, as are the workload's own.
    """
    groups: dict[str, list[MeasureRecord]] = {}
    for record in records:
        if record.valid and not record.noisy and record.scope == scope:
            groups.setdefault(record.workload_key, []).append(record)
    ranked = sorted((workload_distance(key, k), k) for k in groups if k != key)
    found: dict[str, Schedule] = {}
    for distance, other in ranked:
        if distance > FARTHEST or len(found) >= limit:
            break
        for record in sorted(groups[other], key=lambda r: r.latency)[:each]:
            found.setdefault(record.schedule.key, record.schedule)
    return list(found.values())[:limit]
