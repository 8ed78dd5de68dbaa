"""Candidates timed as layers of a whole network, in as much time as there is."""

from __future__ import annotations

import numpy as np
import pytest

from engine.graph import load_proto
from engine.graph.partition import extract_search_tasks, lower
from engine.graph.task import LoweredGraph
from engine.measure.in_network import time_in_network
from engine.records import Schedule
from engine.space import sketches
from engine.target import host
from engine.zoo import build


@pytest.fixture(scope="module")
def lowered() -> LoweredGraph:
    return lower(load_proto(build("mlp")), host())


@pytest.fixture(scope="module")
def candidates(lowered: LoweredGraph) -> dict[str, list[Schedule]]:
    """Two schedules of each task."""
    found, rng = {}, np.random.default_rng(0)
    for task in extract_search_tasks(lowered, 1):
        sketch = sketches(task.workload, task.target, 1)[0]
        drawn = np.array([[rng.choice(k.values) for k in sketch.knobs] for _ in range(100)])
        rows = [sketch.default(), *drawn[sketch.valid(drawn)]]
        schedules = {s.key: s for s in map(sketch.schedule, rows)}
        found[task.key] = list(schedules.values())[:2]
    return found


class Patience:
    """Says that the time is over at the n-th question."""

    def __init__(self, last: int) -> None:
        self.last, self.asked = last, 0

    def __call__(self, ahead: float) -> bool:
        assert ahead >= 0
        self.asked += 1
        return self.asked >= self.last


def test_every_candidate_is_timed(
    lowered: LoweredGraph, candidates: dict[str, list[Schedule]]
) -> None:
    found = time_in_network(lowered, candidates, 1, turns=1, repeat=1)
    assert set(found) == set(candidates)
    for key, pairs in found.items():
        assert {s.key for s, _ in pairs} == {s.key for s in candidates[key]}
        seconds = [t for _, t in pairs]
        assert seconds == sorted(seconds) and seconds[0] > 0


def test_no_time_gives_nothing_and_little_time_fewer_candidates_and_turns(
    lowered: LoweredGraph, candidates: dict[str, list[Schedule]]
) -> None:
    depth = max(map(len, candidates.values()))
    assert depth == 2
    assert time_in_network(lowered, candidates, 1, repeat=1, too_long=Patience(1)) == {}
    best = time_in_network(lowered, candidates, 1, repeat=1, too_long=Patience(2))
    assert {k: [s.key for s, _ in found] for k, found in best.items()} == {
        k: [schedules[0].key] for k, schedules in candidates.items()
    }
    one_turn = Patience(depth + 1)
    found = time_in_network(lowered, candidates, 1, repeat=1, too_long=one_turn)
    assert one_turn.asked == depth + 1
    assert {k: len(f) for k, f in found.items()} == {k: len(s) for k, s in candidates.items()}
