"""Candidates timed as layers of a whole network, in as much time as there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import engine.measure.in_network
from engine.graph import load_proto
from engine.graph.partition import extract_search_tasks, lower
from engine.graph.task import LoweredGraph
from engine.measure.in_network import Samples, corrected, time_in_network
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
    assert one_turn.asked >= depth + 1
    assert {k: len(f) for k, f in found.items()} == {k: len(s) for k, s in candidates.items()}


def test_winners_are_put_together_and_timed_again(
    lowered: LoweredGraph,
    candidates: dict[str, list[Schedule]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever candidate is ranked first, the last network is made of the winners."""
    built: list[dict[str, str]] = []
    real = engine.measure.in_network.compile_network

    def spy(lowered: LoweredGraph, chosen: Mapping[str, Schedule], **more: Any) -> object:
        built.append({key: schedule.key for key, schedule in chosen.items()})
        return real(lowered, chosen, **more)

    monkeypatch.setattr(engine.measure.in_network, "compile_network", spy)
    monkeypatch.setattr(engine.measure.in_network, "ranked", _last_one_first)
    time_in_network(lowered, candidates, 1, turns=1, repeat=1)
    assert built == [
        {key: schedules[min(rank, len(schedules) - 1)].key for key, schedules in candidates.items()}
        for rank in (0, 1, 1)
    ]


def _last_one_first(
    samples: Samples, candidates: Mapping[str, Sequence[Schedule]]
) -> dict[str, list[tuple[Schedule, float]]]:
    return {key: [(s, 1.0) for s in reversed(found)] for key, found in candidates.items()}


def test_the_second_timing_counts_and_losers_keep_their_distance() -> None:
    a, b, c = (Schedule("x", {"n": n}) for n in range(3))
    found = corrected([(a, 1.0), (b, 1.1), (c, 2.0)], [(b, 1.15), (a, 1.2)])
    assert found == [(b, 1.15), (a, 1.2), (c, 2.4)]
    assert corrected([(a, 1.0), (b, 3.0)], [(a, 2.0)]) == [(a, 2.0), (b, 6.0)]
