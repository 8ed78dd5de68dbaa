"""Records and scopes for the tests of the stores."""

from __future__ import annotations

from typing import Any

from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode

SCOPE = RecordScope("skylake-avx512", 2)
OTHER_SCOPES = (
    RecordScope("x86-64-v3", 2),
    RecordScope("skylake-avx512", 1),
    RecordScope("skylake-avx512", 2, TimingMode.HOT),
    RecordScope("skylake-avx512", 2, generator_version="0"),
)


def record(
    tile: int = 0, seconds: float = 1e-3, key: str = "conv-a", **fields: Any
) -> MeasureRecord:
    """A valid record; its schedule is known by `tile`."""
    return MeasureRecord(
        **{
            "workload_key": key,
            "scope": SCOPE,
            "schedule": Schedule("tiled", {"tile": tile, "unroll": 4}),
            "times": (seconds, seconds * 1.5),
            "predicted": 0.5,
            "created": 1_700_000_000.25 + tile,
            "build_seconds": 0.125,
            "extra": {"instructions": 7},
        }
        | fields
    )


def failed(tile: int = 0, error: ErrorKind = ErrorKind.CRASH, **fields: Any) -> MeasureRecord:
    return record(tile, **({"times": (), "error": error, "message": "signal 11"} | fields))
