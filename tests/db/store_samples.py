"""Records and scopes for the tests of the stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from db.store import Store
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode

SCOPE = RecordScope("skylake-avx512", 2, generator_version="1")
OTHER_SCOPES = (
    replace(SCOPE, target_key="x86-64-v3"),
    replace(SCOPE, threads=1),
    replace(SCOPE, timing_mode=TimingMode.HOT),
    replace(SCOPE, generator_version="0"),
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


def started(store: Store, name: str = "net", **options: object) -> str:
    """The id of a new run of a network that the store then knows."""
    store.register_network(name, "hash-1", {"conv-a": 3, "conv-b": 1}, "/models/net.onnx")
    return store.start_run([name], SCOPE, {"trials": 64}, **options)  # type: ignore[arg-type]
