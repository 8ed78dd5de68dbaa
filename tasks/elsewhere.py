"""What the measurements of other networks' workloads teach.

In: a store, or trials as it gives them, without their computations.  Out: training rows for the
cost model, and records of the workloads that are most like a given one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from db.store import Store
from db.values import ModelRows
from engine.records import MeasureRecord, RecordScope
from engine.search import Samples, workload_distance
from engine.search.samples import NOT_THE_CANDIDATES_FAULT

MODEL_ROWS = 100_000
"""So many trials, one's own and the newest others, are read for the cost model."""
OTHER_ROWS = 20_000
"""So many of others at least: no model is trained on more."""
NEAREST = 8
"""Measured workloads that are asked for their fastest records."""

Top = Callable[[str, int], Sequence[MeasureRecord]]
"""Workload key, count -> so many of its fastest records."""


def in_order(history: Mapping[str, Sequence[MeasureRecord]]) -> list[MeasureRecord]:
    """The records of all tasks as they were measured, oldest first; then by round."""
    records = [record for found in history.values() for record in found]
    records.sort(key=attrgetter("round_index"))
    records.sort(key=attrgetter("created"))  # stable; one key of both would be 100,000 tuples
    return records


def samples_elsewhere(
    store: Store, scope: RecordScope, own_keys: Sequence[str], own_records: int
) -> Samples:
    """Training rows of other workloads: the newest, as many as one's own records leave room for."""
    limit = max(MODEL_ROWS - own_records, OTHER_ROWS)
    return samples_of(store.model_rows(scope, limit, without=own_keys))


def samples_of(rows: ModelRows) -> Samples:
    """A training row for each trial, in order.

    Trials without features, with those of an older version (another number of them), or that
    failed by no fault of the candidate are left out.
    """
    width = next((len(packed) for packed in reversed(rows.features) if packed), 0)
    kept = [
        place
        for place, (packed, error) in enumerate(zip(rows.features, rows.errors, strict=True))
        if packed and len(packed) == width and error not in NOT_THE_CANDIDATES_FAULT
    ]
    joined = b"".join(rows.features[place] or b"" for place in kept)
    features = np.frombuffer(joined, "<f8").astype(np.float32)
    return Samples.make(
        features.reshape(len(kept), -1 if kept else 0),
        np.asarray(rows.latencies, np.float64)[kept],
        [rows.workload_keys[place] for place in kept],
    )


def records_nearby(key: str, known: Iterable[str], top: Top, each: int = 4) -> list[MeasureRecord]:
    """The `each` fastest records of the `NEAREST` measured workloads most like that of `key`.

    `known` are the keys to choose from; those whose shapes cannot be compared are left out.
    """
    ranked = sorted((workload_distance(key, other), other) for other in known if other != key)
    found: list[MeasureRecord] = []
    measured = 0
    for distance, other in ranked:
        if measured == NEAREST or distance == float("inf"):
            break
        records = top(other, each)
        measured += bool(records)
        found += records
    return found
