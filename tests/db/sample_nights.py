"""Three nights of two small networks, always the same, for the examples in `docs/queries.md`."""

from __future__ import annotations

from unittest import mock

from db.store import Store
from db.values import MachineInfo, RoundInfo
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule

TWO = RecordScope("skylake-avx512", 2, generator_version="1")
ONE = RecordScope("skylake-avx512", 1, generator_version="1")
NETWORKS = {
    "resnet-tiny": {"conv3x3-64": 4, "conv1x1-64": 2, "dense-1000": 1},
    "mobilenet-tiny": {"conv1x1-64": 6, "depthwise-32": 5},
}
LATENCY = {"conv3x3-64": 8e-4, "conv1x1-64": 2e-4, "dense-1000": 1e-4, "depthwise-32": 3e-4}
ORDER = ("conv3x3-64", "conv1x1-64", "depthwise-32", "conv3x3-64", "dense-1000", "conv1x1-64")
MEASURED = {"resnet-tiny": 1.06, "mobilenet-tiny": 1.1}
FIRST_NIGHT = 1_767_225_600.0  # 2026-01-01 00:00 UTC
DAY = 86_400.0


class Clock:
    """Stands in for the module `time` where the store asks for the time of day."""

    def __init__(self) -> None:
        self.now = FIRST_NIGHT

    def time(self) -> float:
        self.now += 1.0
        return self.now


def fill(store: Store) -> None:
    """Put the nights into an empty store."""
    clock = Clock()
    with mock.patch("db.sql_write.time", clock):
        store.register_machine(MachineInfo("box-1", "box", "Xeon", 2, ("avx512f",)))
        for key in LATENCY:
            store.register_workload(key, {"anchor": key.split("-")[0]})
        for name, weights in NETWORKS.items():
            store.register_network(name, f"hash-of-{name}", weights, f"{name}.onnx")
        store.register_workload("softmax-1000", {"anchor": "softmax"})
        store.register_network("mobilenet-tiny", "hash-of-v2", NETWORKS["mobilenet-tiny"] | {
            "softmax-1000": 1
        })  # fmt: skip
        for night in range(3):
            clock.now = FIRST_NIGHT + night * DAY
            one_night(store, clock, night)
        store.add_records(
            [trial("conv3x3-64", ONE, i, 1.5e-3 - i * 1e-4, 1.4e-3) for i in range(3)]
        )


def one_night(store: Store, clock: Clock, night: int) -> None:
    run_id = store.start_run(
        list(NETWORKS), TWO, {"trials": 24}, run_id=f"night-{night + 1}", machine="box-1"
    )
    for index, key in enumerate(ORDER[night:] if night else ORDER):
        records = [candidate(key, night, index, place, clock.now) for place in range(4)]
        store.commit_round(RoundInfo(run_id, index, key, estimates(store, records),
                                     (), clock.now, clock.now + 20), records)  # fmt: skip
        clock.now += 30
    for name in NETWORKS:
        estimated = store.rounds(run_id)[-1].estimates.get(name)
        evaluation = {}
        if estimated is not None:
            evaluation = {"noctune": {"median_ms": estimated * MEASURED[name] * 1e3}}
        store.add_compiled_network(
            name, TWO, f"{name}.net", f"file-{night}", run_id=run_id, estimated=estimated,
            evaluation=evaluation,
        )  # fmt: skip
    store.finish_run(run_id, "finished")


def estimates(store: Store, records: list[MeasureRecord]) -> dict[str, float]:
    """Each network's estimate, where every workload of ours has a latency."""
    best = {key: found.latency for key, found in store.best(list(LATENCY), TWO).items()}
    for record in records:
        if record.valid:
            best[record.workload_key] = min(best.get(record.workload_key, 1.0), record.latency)
    return {
        name: sum(weight * best[key] for key, weight in weights.items())
        for name, weights in NETWORKS.items()
        if best.keys() >= weights.keys()
    }


def candidate(key: str, night: int, index: int, place: int, now: float) -> MeasureRecord:
    """One trial: later rounds are faster; one in seven crashes, one in eleven is wrong."""
    number = night * 100 + index * 4 + place
    if number % 7 == 3:
        return failed(key, number, ErrorKind.CRASH, "signal 11", now)
    if number % 11 == 5:
        return failed(key, number, ErrorKind.WRONG_RESULT, "largest error 0.5", now)
    seconds = LATENCY[key] * (1.0 + 0.6 / (1 + night * 6 + index) + 0.05 * ((place * 3) % 4))
    guess = seconds * (0.8 if place == 2 and night == 0 else 1.05 - 0.01 * night)
    return trial(key, TWO, number, seconds, guess, now)


def trial(
    key: str,
    scope: RecordScope,
    number: int,
    seconds: float,
    guess: float,
    now: float = FIRST_NIGHT,
) -> MeasureRecord:
    knobs = {"tile": 8 * (number % 5 + 1), "unroll": number}
    return MeasureRecord(key, scope, Schedule("tiled", knobs), (seconds, seconds * 1.02),
                         predicted=guess, created=now, build_seconds=0.02)  # fmt: skip


def failed(key: str, number: int, error: ErrorKind, message: str, now: float) -> MeasureRecord:
    return MeasureRecord(
        key, TWO, Schedule("tiled", {"tile": 8, "unroll": number}), (), error, message, 1e-3,
        created=now,
    )  # fmt: skip
