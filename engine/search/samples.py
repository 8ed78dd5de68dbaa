"""Training rows: what the measured records teach.

In: records of one scope and a way to find the features of each.  Out: `Samples`, arrays of features
and latencies in the order of the records, with every failure marked by an infinite latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.records import ErrorKind, MeasureRecord
from engine.search.population import TaskSpace
from engine.search.protocol import Features, Floats, Mask

SHORTEST, LONGEST = 1e-9, 1e6
"""Seconds; a latency outside is no measurement (0, infinity, 1e10 as other tuners write it)."""

NOT_THE_CANDIDATES_FAULT = (ErrorKind.MACHINE_FAULT, ErrorKind.UNMEASURABLE)
"""Trials that ended so teach nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """features float32[n, F]; latency float64[n] seconds, infinite where the candidate failed;
    workload: object[n], the key of each row's workload."""

    features: Features
    latency: Floats
    workload: np.ndarray[tuple[int, ...], np.dtype[np.object_]]

    def __len__(self) -> int:
        return len(self.latency)

    def take(self, index: Mask | slice) -> Samples:
        return Samples(self.features[index], self.latency[index], self.workload[index])

    def of(self, key: str) -> Samples:
        return self.take(np.asarray(self.workload == key, bool))

    @staticmethod
    def make(
        features: Features, latency: Sequence[float] | Floats, workload: Sequence[str]
    ) -> Samples:
        """Cleans what comes in: features finite, impossible latencies infinite."""
        seconds = np.asarray(latency, np.float64).copy()
        with np.errstate(invalid="ignore"):
            fine = (seconds >= SHORTEST) & (seconds <= LONGEST)
        seconds[~fine] = math.inf
        matrix = np.asarray(features, np.float32).reshape(len(seconds), -1 if len(seconds) else 0)
        clean = np.nan_to_num(matrix, nan=0.0, posinf=1e30, neginf=-1e30)
        keys = np.array([*workload, None], object)[:-1]
        return Samples(clean, seconds, keys)


_NOTHING = Samples.make(np.zeros((0, 0), np.float32), [], [])


def joined(old: Samples, new: Samples) -> Samples:
    """Both, in order; of rows with different features only the newer ones."""
    if not len(new):
        return old
    if not len(old) or old.features.shape[1] != new.features.shape[1]:
        return new
    return Samples(
        np.concatenate([old.features, new.features]),
        np.concatenate([old.latency, new.latency]),
        np.concatenate([old.workload, new.workload]),
    )


FeatureSource = Callable[[str], TaskSpace | None]
"""Workload key -> its space, None for a workload whose computation is not at hand."""


class FeatureTable:
    """Features of records, found once each.

    A record of a known workload is looked up in that workload's space; one of an unknown workload
    must carry its features in `extra["features"]`, otherwise it is left out.  `others` are rows of
    further workloads, which come before those of the records.
    """

    def __init__(self, source: FeatureSource, others: Samples | None = None) -> None:
        self._source, self._others = source, others or _NOTHING
        self._found: dict[tuple[str, str], Features | None] = {}
        self._last: tuple[list[MeasureRecord], Samples] = ([], _NOTHING)

    def samples(self, records: Sequence[MeasureRecord]) -> Samples:
        """Rows of all usable records, in order; machine faults teach nothing and are left out.

        When the records are those of the last call and some more, only those are worked on.
        """
        known, rows = self._last
        n = len(known)
        if (
            not n
            or len(records) < n
            or records[0] is not known[0]
            or records[n - 1] is not known[-1]
        ):
            n, rows = 0, _NOTHING
        rows = joined(rows, self._new(records[n:]))
        self._last = (list(records), rows)
        return joined(self._others, rows)

    def _new(self, records: Sequence[MeasureRecord]) -> Samples:
        usable = [r for r in records if r.error not in NOT_THE_CANDIDATES_FAULT]
        self._fill(usable)
        found = [(r, self._found[r.workload_key, r.schedule.key]) for r in usable]
        kept = [(r, row) for r, row in found if row is not None]
        width = len(kept[-1][1]) if kept else 0
        kept = [(r, row) for r, row in kept if len(row) == width]
        return Samples.make(
            np.array([row for _, row in kept], np.float32).reshape(len(kept), width),
            [r.latency if r.valid else math.inf for r, _ in kept],
            [r.workload_key for r, _ in kept],
        )

    def _fill(self, records: Sequence[MeasureRecord]) -> None:
        missing: dict[str, dict[str, MeasureRecord]] = {}
        for record in records:
            key = (record.workload_key, record.schedule.key)
            if key not in self._found:
                missing.setdefault(key[0], {})[key[1]] = record
        for workload, group in missing.items():
            self._look_up(workload, group)

    def _look_up(self, workload: str, group: Mapping[str, MeasureRecord]) -> None:
        records = list(group.values())
        space = self._source(workload)
        if space is None:
            for name, record in group.items():
                self._found[workload, name] = _stored(record)
            return
        pool, known = space.find([r.schedule for r in records])
        features = iter(space.features(pool))
        for record, here in zip(records, known.tolist(), strict=True):
            self._found[workload, record.schedule.key] = next(features) if here else None


def _stored(record: MeasureRecord) -> Features | None:
    """Features that were written with the record, None if there are none that can be read."""
    try:
        row = np.asarray(record.extra.get("features"), np.float32)
    except (TypeError, ValueError):
        return None
    return row if row.ndim == 1 and len(row) else None
