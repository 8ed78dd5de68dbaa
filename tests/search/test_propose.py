"""Rounds of proposals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.graph.task import SearchTask
from engine.records import ErrorKind, MeasureRecord, Schedule
from engine.search.evolve import Evaluator, EvolveOptions, Scored, diverse, evolve
from engine.search.model_cache import ModelCache
from engine.search.population import TaskSpace, join
from engine.search.propose import Proposal, propose_random, propose_round
from engine.search.samples import FeatureTable
from tests.search.synthetic import SCOPE, MatmulSketch, measure, prior, search_task
from tests.search.test_population import Few

SKETCHES = (MatmulSketch(), MatmulSketch(name="winograd2.tile", gain=1.3))
TASK = search_task(key="w")
BEST = min(s.best for s in SKETCHES)
SMALL = EvolveOptions(population=256, generations=3)


@dataclass
class Search:
    """A search as a session runs it, on imagined hardware."""

    sketches: tuple[MatmulSketch, ...] = SKETCHES
    task: SearchTask = TASK
    seed: int = 0

    def __post_init__(self) -> None:
        self.space = TaskSpace(self.sketches, 2)
        self.table = FeatureTable(lambda key: self.space)
        self.cache = ModelCache(prior, seed=self.seed)
        self.history: list[MeasureRecord] = []

    def propose(self, n: int, similar: tuple[Schedule, ...] = ()) -> list[Proposal]:
        model = self.cache.model(SCOPE, self.table.samples(self.history), self.task.key, self.space)
        rng = np.random.default_rng([self.seed, len(self.history)])
        return propose_round(
            self.task, self.space, self.history, model, n, rng, similar, options=SMALL
        )

    def round(self, n: int) -> list[Proposal]:
        proposals = self.propose(n)
        self.history += measure(
            self.sketches, [p.schedule for p in proposals], self.task.key, len(self.history)
        )
        return proposals

    @property
    def best(self) -> float:
        return min(r.latency for r in self.history)


def keys(proposals: list[Proposal]) -> list[str]:
    return [p.schedule.key for p in proposals]


def test_the_first_round_holds_a_default_and_a_look_at_hopeful_sketches() -> None:
    proposals = Search().propose(12)
    assert len(set(keys(proposals))) == 12
    defaults = {s.schedule(s.default()).key for s in SKETCHES}
    (default,) = [p for p in proposals if p.origin == "default"]
    assert default.schedule.key in defaults
    looks = [p for p in proposals if p.origin == "sketch"]
    assert len({p.schedule.sketch for p in looks}) == len(looks) == len(SKETCHES)
    assert all(p.predicted > 0 and len(p.features) == 12 for p in proposals)


def test_rounds_never_repeat_a_candidate() -> None:
    search = Search()
    seen: set[str] = set()
    for _ in range(6):
        fresh = keys(search.round(16))
        assert len(fresh) == 16 and len(set(fresh)) == 16
        assert not seen & set(fresh)
        seen |= set(fresh)


def test_the_same_inputs_give_the_same_round() -> None:
    """A resumed run proposes what the stopped one would have."""
    going, resumed = Search(seed=3), Search(seed=3)
    for _ in range(3):
        going.round(16)
    resumed.history = list(going.history)
    assert keys(going.propose(16)) == keys(resumed.propose(16))
    other = Search(seed=4)
    other.history = list(going.history)
    assert keys(other.propose(16)) != keys(going.propose(16))


def test_the_search_needs_at_most_half_of_randoms_trials() -> None:
    """Replay without timing, median of 5 seeds; and near-best programs with few trials."""
    found, lucky = [], []
    for seed in range(5):
        search = Search(seed=seed)
        for _ in range(4):
            search.round(8)
        found.append(search.best / BEST)
        drawn = propose_random(TASK, SKETCHES, (), 64, np.random.default_rng(seed))
        lucky.append(min(r.latency for r in measure(SKETCHES, drawn, "w")) / BEST)
    assert np.median(found) <= np.median(lucky)
    assert max(found) <= 1.05


def test_similar_schedules_come_first_and_are_made_legal() -> None:
    good = Schedule("direct.tile", {"mr": 14, "nr": 2, "kc": 1024, "unroll": 2, "order": 1})
    proposals = Search().propose(8, similar=(good, Schedule("unknown", {})))
    (carried,) = [p for p in proposals if p.origin == "similar"]
    assert carried.schedule.knobs["mr"] == 14 and carried.schedule.knobs["kc"] == 512


def test_records_of_other_tasks_and_scopes_are_not_this_tasks_history() -> None:
    search = Search()
    fresh = keys(search.propose(8))
    search.history = measure(SKETCHES, [p.schedule for p in search.propose(8)], "another")
    assert "default" in {p.origin for p in search.propose(8)}
    assert fresh


def test_a_small_space_is_exhausted_in_the_end() -> None:
    sketch = Few()
    task, space = search_task(key="few"), TaskSpace((sketch,), 2)
    model = ModelCache(lambda f: np.full(len(f), 1e-3)).model(
        SCOPE, FeatureTable(lambda key: None).samples(()), "few", space
    )
    rng = np.random.default_rng(0)
    first = propose_round(task, space, (), model, 3, rng)
    history = [MeasureRecord("few", SCOPE, p.schedule, (1e-3,)) for p in first]
    second = propose_round(task, space, history, model, 3, rng)
    history += [MeasureRecord("few", SCOPE, p.schedule, (1e-3,)) for p in second]
    assert (len(first), len(second)) == (3, 2)
    assert len(set(keys(first + second))) == 5
    assert propose_round(task, space, history, model, 3, rng) == []


def test_a_history_of_failures_does_not_stop_the_search() -> None:
    search = Search()
    for _ in range(2):
        search.history += [
            MeasureRecord("w", SCOPE, p.schedule, error=ErrorKind.CRASH, message="signal 11")
            for p in search.propose(16)
        ]
    assert len(search.propose(16)) == 16


def test_a_sketch_that_was_hardly_tried_gets_its_chance() -> None:
    search = Search()
    drawn = search.space.sample(64, np.random.default_rng(0))
    known = drawn.take(drawn.which == 0)
    search.history = measure(SKETCHES, search.space.schedules(known), "w")
    proposals = search.propose(8)
    assert any(p.schedule.sketch == "winograd2.tile" for p in proposals)


def test_a_sketch_that_cannot_win_is_left_alone() -> None:
    search = Search()
    drawn = search.space.sample(400, np.random.default_rng(0))
    search.history = measure(SKETCHES, search.space.schedules(drawn.take(drawn.which == 1)), "w")
    best = search.space.schedules(drawn.take(drawn.which == 1))[0]
    search.history += [MeasureRecord("w", SCOPE, best, (search.best / 3,))]
    assert not any(p.origin == "sketch" for p in search.propose(8))


def test_proposals_differ_in_two_knobs_where_they_can() -> None:
    space = TaskSpace(SKETCHES, 2)
    rows = join([space.pool(0, SKETCHES[0].default()[None, :])] * 1)
    near = join([rows, *(space.mutate(rows, np.random.default_rng(s)) for s in range(60))]).unique()
    none = np.zeros(len(near))
    scored = Scored(near, none[:, None].astype(np.float32), np.arange(len(near), dtype=float), none)
    chosen = diverse(scored, 5, 2).pool.rows
    apart = (chosen[:, None, :] != chosen[None, :, :]).sum(2)
    assert (apart[~np.eye(5, dtype=bool)] >= 2).all()
    assert len(diverse(scored, len(near), 2)) == len(near)


def test_evolution_improves_on_its_start() -> None:
    search = Search()
    space = search.space
    drawn = space.schedules(space.sample(60, np.random.default_rng(0)))
    samples = search.table.samples(measure(SKETCHES, drawn, "w"))
    model = search.cache.model(SCOPE, samples, "w", space)
    evaluate = Evaluator(space, model, 0.0)
    start, nobody = evaluate.library, np.zeros(0, np.uint64)
    best = evolve(evaluate, space.empty(), nobody, np.random.default_rng(1), SMALL)
    assert best.merit[0] <= start.merit[0]
    assert (np.diff(best.merit) >= 0).all() and len(np.unique(best.pool.keys)) == len(best)
    assert np.median(best.merit[:64]) < np.median(start.merit[:64])
