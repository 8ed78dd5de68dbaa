"""The difference of two stores."""

from __future__ import annotations

from store_samples import OTHER_SCOPES, SCOPE, failed, record

from db.compare import BestChange, StoreDiff, diff_stores
from db.memory_store import MemoryStore
from db.store import Store


def test_equal_stores(store: Store) -> None:
    other = MemoryStore()
    for each in (store, other):
        each.add_records([record(i) for i in range(3)])
    assert diff_stores(store, other) == StoreDiff(0, 0, 3, ())


def test_what_differs(store: Store) -> None:
    other = MemoryStore()
    store.add_records([record(0, 2e-3), record(1, 3e-3), failed(0, key="conv-b")])
    other.add_records([record(0, 2e-3), record(2, 1e-3), record(0, scope=OTHER_SCOPES[0])])
    other.add_records([failed(0, key="conv-b")])
    assert diff_stores(store, other) == StoreDiff(
        1,
        2,
        2,
        (
            BestChange("conv-a", SCOPE, 2e-3, 1e-3),
            BestChange("conv-a", OTHER_SCOPES[0], None, 1e-3),
        ),
    )
