"""Distil and prune: what stays, what goes, and that nothing goes before its archive is safe."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import OTHER_SCOPES, SCOPE, failed, record

from db.distill import choose_kept, distill, prune
from db.exchange import import_file, read_records
from db.memory_store import MemoryStore
from db.store import Store
from engine.errors import StoreError
from engine.records import MeasureRecord

KEYS = ["conv-a", "conv-b"]


def filled(store: Store) -> Store:
    for key in KEYS:
        store.add_records([record(i, 1e-3 * (60 - i), key=key) for i in range(50)])
        store.add_records([failed(100 + i, key=key) for i in range(20)])
    store.add_records([record(i, 1e-3, scope=OTHER_SCOPES[0]) for i in range(30)])
    return store


def test_the_best_stay_the_same(store: Store, tmp_path: Path) -> None:
    filled(store)
    before = {key: store.top(key, SCOPE, 5) for key in KEYS}
    best = store.best(KEYS, SCOPE)
    report = distill(store, tmp_path / "old.jsonl", keep=5, spread=8)
    assert store.best(KEYS, SCOPE) == best
    assert {key: store.top(key, SCOPE, 5) for key in KEYS} == before
    assert (report.kept, report.removed) == (3 * 13, 170 - 39)
    assert store.stats().records == 39


def test_the_archive_brings_everything_back(store: Store, tmp_path: Path) -> None:
    filled(store)
    before = {r.schedule.key + r.workload_key + r.scope.target_key for r in store.iter_records()}
    report = distill(store, tmp_path / "old.jsonl", keep=1, spread=0)
    assert (report.kept, report.removed) == (3, 167)
    assert report.archive == str(tmp_path / "old.jsonl")
    assert import_file(store, tmp_path / "old.jsonl").new == 167
    after = {r.schedule.key + r.workload_key + r.scope.target_key for r in store.iter_records()}
    assert after == before


def test_one_scope_only(store: Store, tmp_path: Path) -> None:
    filled(store)
    distill(store, tmp_path / "old.jsonl", keep=1, spread=0, scope=OTHER_SCOPES[0])
    assert store.stats().scopes == {SCOPE: 140, OTHER_SCOPES[0]: 1}


def test_nothing_to_do_leaves_no_archive(store: Store, tmp_path: Path) -> None:
    store.add_records([record(0)])
    report = distill(store, tmp_path / "old.jsonl")
    assert (report.kept, report.removed, report.archive) == (1, 0, None)
    assert list(tmp_path.glob("*.jsonl")) == []


def test_twice_changes_nothing_more(store: Store, tmp_path: Path) -> None:
    filled(store)
    first = distill(store, tmp_path / "1.jsonl", keep=3, spread=10)
    assert first.removed
    kept = list(store.iter_records())
    assert distill(store, tmp_path / "2.jsonl", keep=3, spread=10).removed == 0
    assert list(store.iter_records()) == kept


def test_an_archive_that_cannot_be_written_costs_nothing(store: Store, tmp_path: Path) -> None:
    filled(store)
    with pytest.raises(StoreError, match="cannot be written"):
        distill(store, tmp_path / "absent" / "old.jsonl", keep=1, spread=0)
    (tmp_path / "there.jsonl").write_text("precious")
    with pytest.raises(StoreError, match="exists already"):
        distill(store, tmp_path / "there.jsonl", keep=1, spread=0)
    assert (tmp_path / "there.jsonl").read_text() == "precious"
    assert store.stats().records == 170
    with pytest.raises(StoreError, match="at least one"):
        distill(store, tmp_path / "old.jsonl", keep=0)


def test_the_archive_is_whole_before_anything_goes(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watching(MemoryStore):
        def _remove(self, record: MeasureRecord) -> bool:
            if not seen:
                seen.append(len(list(read_records(tmp_path / "old.jsonl"))))
            return super()._remove(record)

    distill(filled(Watching()), tmp_path / "old.jsonl", keep=1, spread=0)
    assert seen == [167]


class TestPrune:
    def test_by_age(self, store: Store, tmp_path: Path) -> None:
        store.add_records([record(i, 1e-3 * (i + 1), created=float(i)) for i in range(10)])
        assert prune(store, tmp_path / "old.jsonl", before=5.0).removed == 4
        tiles = [r.schedule.knobs["tile"] for r in store.history(["conv-a"], SCOPE)["conv-a"]]
        assert tiles == [0, 5, 6, 7, 8, 9]

    def test_failures_only(self, store: Store, tmp_path: Path) -> None:
        filled(store)
        assert prune(store, tmp_path / "old.jsonl", failed_only=True).removed == 40
        assert store.stats().errors == {"ok": 130}

    def test_other_generators(self, store: Store, tmp_path: Path) -> None:
        old = OTHER_SCOPES[3]
        store.add_records([record(i) for i in range(4)])
        store.add_records([record(i, scope=old) for i in range(4)])
        report = prune(store, tmp_path / "old.jsonl", other_than_generator=SCOPE.generator_version)
        assert report.removed == 3
        assert store.stats().scopes == {SCOPE: 4, old: 1}

    def test_says_together(self, store: Store, tmp_path: Path) -> None:
        store.add_records([record(0, created=1.0), failed(1, created=1.0), failed(2, created=9.0)])
        assert prune(store, tmp_path / "x.jsonl", before=5.0, failed_only=True).removed == 1

    def test_needs_a_reason(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="nothing says which"):
            prune(store, tmp_path / "x.jsonl")


def latencies(records: Iterable[MeasureRecord]) -> list[float]:
    return [r.latency for r in records]


def test_the_spread_reaches_from_fastest_to_slowest() -> None:
    records = [record(i, 1e-3 * (i + 1)) for i in range(100)]
    kept = sorted(choose_kept(records, 4, 5))
    assert kept == [0, 1, 2, 3, 4, 28, 52, 75, 99]


@settings(max_examples=80, deadline=None)
@given(
    trials=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 1e-3, 2e-3, 5e-3]))),
    keep=st.integers(1, 6),
    spread=st.integers(0, 9),
)
def test_what_stays(trials: list[tuple[int, float]], keep: int, spread: int) -> None:
    records = [
        record(tile, seconds, round_index=i) if seconds else failed(tile, round_index=i)
        for i, (tile, seconds) in enumerate(trials)
    ]
    kept = choose_kept(records, keep, spread)
    assert len(kept) <= keep + spread
    whole, less = MemoryStore(), MemoryStore()
    whole.add_records(records)
    less.add_records([records[place] for place in sorted(kept)])
    assert less.top("conv-a", SCOPE, keep) == whole.top("conv-a", SCOPE, keep)
