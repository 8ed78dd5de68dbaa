from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.kills.faults import FAULTS, deck


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_deck_holds_every_fault_of_its_database_in_its_share(kind: str) -> None:
    mine = {name: fault.share for name, fault in FAULTS.items() if fault.only in ("", kind)}
    cards = deck(kind, 2 * sum(mine.values()), np.random.default_rng(3))
    assert Counter(cards) == {name: 2 * share for name, share in mine.items()}
    assert cards == deck(kind, len(cards), np.random.default_rng(3))
    assert cards != deck(kind, len(cards), np.random.default_rng(4))
