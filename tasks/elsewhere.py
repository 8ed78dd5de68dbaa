"""What the measurements of other networks' workloads teach.

In: rows of trials as the store gives them, without their computations.  Out: training rows for the
cost model, and the schedules that were fastest there.
"""

from __future__ import annotations

import numpy as np
import orjson

from db.values import ModelRows
from engine.records import MeasureRecord, RecordScope, Schedule
from engine.search import Samples
from engine.search.samples import NOT_THE_CANDIDATES_FAULT


def samples_of(rows: ModelRows) -> Samples:
    """A training row for each trial, in order.

    Trials without features, with those of an older version (another number of them), or that
    failed by no fault of the candidate are left out.
    """
    width = next((len(packed) for packed in reversed(rows.features) if packed), 0)
    places = [
        place
        for place, (packed, error) in enumerate(zip(rows.features, rows.errors, strict=True))
        if packed and len(packed) == width and error not in NOT_THE_CANDIDATES_FAULT
    ]
    packed = b"".join(rows.features[place] or b"" for place in places)
    return Samples.make(
        np.frombuffer(packed, "<f8").astype(np.float32).reshape(len(places), -1 if places else 0),
        [rows.latencies[place] for place in places],
        [rows.workload_keys[place] for place in places],
    )


def fastest(rows: ModelRows, scope: RecordScope, each: int = 2) -> list[MeasureRecord]:
    """The `each` fastest undisturbed trials of every workload, with nothing but their latency."""
    groups: dict[str, list[int]] = {}
    seconds = np.asarray(rows.latencies, np.float64)
    usable = np.isfinite(seconds) & ~np.asarray(rows.noisy, bool)
    order = np.argsort(seconds, kind="stable")
    for place in order[usable[order]].tolist():
        group = groups.setdefault(rows.workload_keys[place], [])
        if len(group) < each:
            group.append(place)
    return [
        MeasureRecord(key, scope, _schedule(rows.schedules[place]), (rows.latencies[place],))
        for key, group in groups.items()
        for place in group
    ]


def _schedule(text: str) -> Schedule:
    return Schedule.from_json(orjson.loads(text))
