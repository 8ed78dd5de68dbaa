"""A made-up memory of many nights: machines, networks, runs, and records of the size of real ones.

In: a number of records and a seed.  Out: always the same runs of rounds of 64, as `MeasureRecord`s
for the store or as plain rows for filling a database.  Every network has 30 search tasks, a few of
them shared with the others; every night one network is tuned under one scope.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.values import MachineInfo, to_json
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule

NETWORKS, TASKS, SHARED = 24, 30, 6
ROUND, ROUNDS = 64, 100
"""Trials in a round and rounds in a run."""
FEATURES = 32
FIRST_NIGHT = 1_767_225_600.0
CPUS = ("skylake-avx512", "znver3", "x86-64-v3")
SCOPES = tuple(
    RecordScope(cpu, threads, generator_version="2") for cpu in CPUS for threads in (1, 2)
)
MACHINES = tuple(
    MachineInfo(f"box-{i}", f"box-{i}", cpu, 2, ("avx2", "fma"), {"l2": 1 << 20})
    for i, cpu in enumerate(CPUS)
)
KNOBS = (
    "conv2d.inner", "conv2d.oc", "conv2d.oc.block", "conv2d.oh", "conv2d.oh.block", "conv2d.outer",
    "conv2d.ow", "conv2d.split", "conv2d.unroll", "conv2d.window",
)  # fmt: skip
_SCHEDULE = '{"sketch":"direct.tiled","knobs":{' + ",".join(f'"{name}":%d' for name in KNOBS) + "}}"
_KEY = "direct.tiled|" + ",".join(f"{name}=%d" for name in KNOBS)
_EXTRA = '{"calls":%d,"max_rel_error":1.1775650310288386e-07,"spread":%r,"origin":"model"}'
_FAILED = (ErrorKind.WRONG_RESULT, "largest error 0.5")

Knobs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Round:
    """One round's trials as arrays: knobs int64[n, k], times float64[n, 3], features [n, 32]."""

    index: int
    workload_key: str
    started: float
    knobs: Knobs
    times: Floats
    features: Floats
    failed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Run:
    """One night: which network, under which scope."""

    number: int
    network: int

    @property
    def run_id(self) -> str:
        return hashlib.sha256(b"run %d" % self.number).hexdigest()[:32]

    @property
    def scope(self) -> RecordScope:
        return SCOPES[self.number // NETWORKS % len(SCOPES)]

    @property
    def machine(self) -> str:
        return MACHINES[CPUS.index(self.scope.target_key)].key

    @property
    def started(self) -> float:
        return FIRST_NIGHT + 4000.0 * self.number

    @property
    def keys(self) -> tuple[str, ...]:
        return task_keys(self.network)


def run_of(number: int) -> Run:
    """Night `number`: the networks take turns, then the scopes."""
    return Run(number, number % NETWORKS)


def network_name(network: int) -> str:
    return f"network-{network:02d}"


def task_keys(network: int) -> tuple[str, ...]:
    """Workload keys of a network's tasks; the first `SHARED` are those of its group of six."""
    groups = [(f"shared-{network // 6}", i) for i in range(SHARED)]
    groups += [(f"own-{network}", i) for i in range(TASKS - SHARED)]
    return tuple(_key(name, i) for name, i in groups)


def _key(name: str, number: int) -> str:
    digest = hashlib.sha256(f"{name} {number}".encode()).hexdigest()
    c, side = 64 << number % 4, 56 >> number % 4
    return json.dumps([digest[:32], [1, c, side, side], [c, c, 3, 3], digest[:8]])


def describe_task(number: int) -> dict[str, Any]:
    c, side = 64 << number % 4, 56 >> number % 4
    return {
        "anchor": "conv2d", "data_shape": [1, side, side, c], "weight_shape": [3, 3, c, c],
        "strides": [1, 1], "pads": [1, 1, 1, 1], "epilogue": ["bias_add", "relu"],
        "output_shape": [1, side, side, c], "flops": 18 * side * side * c * c,
    }  # fmt: skip


def rounds_of(run: Run) -> Iterator[Round]:
    """The run's rounds; each is seeded by run and round."""
    for index in range(ROUNDS):
        rng = np.random.default_rng([7, run.number, index])
        task = index % TASKS if index < TASKS else int(rng.integers(TASKS))
        knobs = rng.integers(0, 64, (ROUND, len(KNOBS)))
        knobs[:, 1] = np.arange(ROUND)
        base = 1e-4 * (1 + task) * rng.lognormal(0.1, 0.5, (ROUND, 1)) * (1 + 2 / (1 + index))
        yield Round(
            index,
            run.keys[task],
            run.started + 30.0 * index,
            knobs,
            base * rng.uniform(1.0, 1.03, (ROUND, 3)),
            np.round(rng.uniform(0, 18, (ROUND, FEATURES)), 4),
            rng.random(ROUND) < 0.1,
        )


def record_rows(round_: Round) -> Iterator[dict[str, Any]]:
    """The trials as columns of `measure_records` without ids, JSON columns as text."""
    for knobs, times, features, failed in zip(
        round_.knobs.tolist(), round_.times.tolist(), round_.features, round_.failed, strict=True
    ):
        best, place = min(times), tuple(knobs)
        kind, message = _FAILED if failed else (ErrorKind.OK, "")
        yield {
            "round_index": round_.index,
            "schedule_hash": hashlib.sha256((_KEY % place).encode()).hexdigest()[:32],
            "schedule": _SCHEDULE % place,
            "error": str(kind),
            "message": message,
            "latency": None if failed else best,
            "spread": None if failed else times[0] - best,
            "times": "[]" if failed else to_json(times),
            "predicted": best * 1.1,
            "build_seconds": 0.05,
            "noisy": False,
            "extra": _EXTRA % (700 + knobs[0], times[1] - best),
            "created_at": round_.started + 20.0,
            "features": features.astype("<f8").tobytes(),
        }


def records(round_: Round, scope: RecordScope) -> list[MeasureRecord]:
    """The trials as the tuner hands them to the store."""
    found = []
    for row in record_rows(round_):
        extra = json.loads(row["extra"])
        extra["features"] = np.frombuffer(row["features"], "<f8").tolist()
        found.append(
            MeasureRecord(
                round_.workload_key, scope, Schedule.from_json(json.loads(row["schedule"])),
                tuple(json.loads(row["times"])), ErrorKind(row["error"]), row["message"],
                row["predicted"], created=row["created_at"], build_seconds=row["build_seconds"],
                extra=extra,
            )
        )  # fmt: skip
    return found


def task_table(run: Run, round_: Round) -> tuple[dict[str, Any], ...]:
    """The table of tasks that is stored with a round."""
    return tuple(
        {
            "id": i, "name": f"conv2d 3x3 {64 << i % 4}", "weight": 1 + i % 3,
            "latency": 1e-4 * (1 + i), "gflops": 80.5, "trials": ROUND * (round_.index // TASKS),
            "failed": round_.index % 7, "workload_key": key,
        }
        for i, key in enumerate(run.keys)
    )  # fmt: skip
