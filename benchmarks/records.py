"""How fast the record store is: `python benchmarks/records.py [--records N] [--url URL]`.

In: a number of records and a database (a temporary SQLite file if none is given).  Out: a table in
Markdown.  The figures that count are those of five million records (`--records 5000000`, which
takes a while to fill); every figure is the median of several repeats.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from db.store import Store, open_store
from db.values import RoundInfo
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule

SCOPE = RecordScope("skylake-avx512", 2)
NETWORK_TASKS = 30
PER_WORKLOAD = 2500
KNOBS = ("tile_n", "tile_oc", "tile_oh", "tile_ow", "inner_oc", "inner_ow", "split_ic", "split_kh",
         "split_kw", "unroll", "parallel", "pack", "order", "fuse_at")  # fmt: skip


def trial(key: str, number: int, generator: np.random.Generator) -> MeasureRecord:
    """A record of the size that real ones have: 14 knobs, three repeats, one in ten failed."""
    knobs = dict(zip(KNOBS, generator.integers(1, 64, len(KNOBS)).tolist(), strict=True))
    knobs["unroll"] = number
    seconds = float(generator.lognormal(-7.0, 0.5))
    ok = number % 10 != 3
    return MeasureRecord(
        key, SCOPE, Schedule("tiled/inline/fuse", knobs),
        (seconds * 1.01, seconds, seconds * 1.02) if ok else (),
        ErrorKind.OK if ok else ErrorKind.WRONG_RESULT, "" if ok else "largest error 0.5",
        seconds * 1.1, created=1.7e9 + number, build_seconds=0.016,
    )  # fmt: skip


def rounds(keys: list[str], count: int, size: int) -> Iterator[tuple[str, list[MeasureRecord]]]:
    generator = np.random.default_rng(7)
    for index in range(count):
        key = keys[index % len(keys)]
        yield key, [trial(key, index * size + place, generator) for place in range(size)]


def fill(store: Store, keys: list[str], count: int) -> None:
    """Records in large rounds, for speed; every workload gets the same number."""
    run_id = store.start_run([], SCOPE, run_id="fill")
    size = 1000
    for index, (key, records) in enumerate(rounds(keys, -(-count // size), size)):
        store.commit_round(RoundInfo(run_id, index, key), records)


def timed(work: Callable[[], object], repeats: int) -> float:
    """Seconds: the median of the repeats."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def store_rate(store: Store, keys: list[str], count: int) -> float:
    """Records a second in rounds of 64, each with its table of tasks."""
    store.register_network("bench", "hash", dict.fromkeys(keys[:NETWORK_TASKS], 2))
    run_id = store.start_run(["bench"], SCOPE, run_id=f"rate-{time.time_ns()}")
    table = tuple({"id": i, "latency_ms": 1.0, "trials": 64} for i in range(NETWORK_TASKS))
    made = list(rounds(keys[:NETWORK_TASKS], count, 64))
    start = time.perf_counter()
    for index, (key, records) in enumerate(made):
        store.commit_round(RoundInfo(run_id, index, key, {"bench": 0.01}, table), records)
    return count * 64 / (time.perf_counter() - start)


def resume(url: str, keys: list[str]) -> None:
    """All that a run reads when it starts again."""
    with open_store(url) as store:
        store.history(keys, SCOPE)
        store.best(keys, SCOPE)
        store.trial_counts(keys, SCOPE)
        store.rounds(store.runs()[-1].run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="records to fill in first")
    parser.add_argument("--url", default="", help="an empty database; a temporary file if none")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or str(Path(folder) / "records.db")
        keys = [f"conv2d-{i:05d}" for i in range(max(options.records // PER_WORKLOAD, 40))]
        with open_store(url) as store:
            start = time.perf_counter()
            fill(store, keys, options.records)
            filled = options.records / (time.perf_counter() - start)
            rate = store_rate(store, keys, 50)
            network = keys[:NETWORK_TASKS]
            best = timed(lambda: store.best(network, SCOPE), 4 * options.repeats)
            wanted = min(100_000, options.records)
            history = timed(lambda: store.records_for_model(SCOPE, wanted), options.repeats)
            stats = store.stats()
        again = timed(lambda: resume(url, network), options.repeats)
    kind = "PostgreSQL" if url.startswith("postgres") else "SQLite"
    print(f"{kind}, {stats.records} records, {stats.size_bytes / 2**20:.0f} MiB\n")
    print("| what | figure |\n|---|---|")
    print(f"| filled in rounds of 1000 | {filled:.0f} records/s |")
    print(f"| stored in rounds of 64 | {rate:.0f} records/s |")
    print(f"| best records of {NETWORK_TASKS} tasks | {best * 1e3:.1f} ms |")
    print(f"| history of {wanted} records for the cost model | {history:.2f} s |")
    print(f"| resume of a run of {NETWORK_TASKS} tasks | {again:.2f} s |")


if __name__ == "__main__":
    main()
