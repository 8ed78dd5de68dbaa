"""Populations as integer matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from engine.records import Schedule
from engine.search.population import Pool, TaskSpace, join
from tests.search.synthetic import Knob, MatmulSketch

WIDE = MatmulSketch()
OTHER = MatmulSketch(name="winograd2.tile", gain=2.0)


@dataclass(frozen=True)
class Few(MatmulSketch):
    """A sketch with two knobs and five legal points."""

    name: str = "few"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("a", (1, 2, 4)), Knob("b", (0, 1)))

    def default(self) -> np.ndarray:
        return np.array([1, 0], np.int64)

    def valid(self, matrix: np.ndarray) -> np.ndarray:
        return np.asarray((matrix[:, 0] < 4) | (matrix[:, 1] == 1))

    def features(self, matrix: np.ndarray, threads: int) -> np.ndarray:
        return np.pad(matrix.astype(np.float32), ((0, 0), (0, 10)))


@pytest.fixture
def space() -> TaskSpace:
    return TaskSpace((WIDE, OTHER), 2)


def all_legal(space: TaskSpace, pool: Pool) -> bool:
    return space.find(space.schedules(pool))[1].all()


def test_samples_are_legal_different_and_shared_among_sketches(space: TaskSpace) -> None:
    pool = space.sample(600, np.random.default_rng(1))
    assert len(pool) == 600 and len(np.unique(pool.keys)) == 600
    assert np.bincount(pool.which).tolist() == [300, 300]
    assert all_legal(space, pool)


def test_equal_generators_give_equal_samples(space: TaskSpace) -> None:
    one, two, three = (space.sample(100, np.random.default_rng(s)).rows for s in (4, 4, 5))
    assert (one == two).all() and not (one == three).all()


def test_a_sample_covers_every_value_of_every_knob(space: TaskSpace) -> None:
    rows = space.sample(2000, np.random.default_rng(0)).rows
    for column, knob in zip(rows.T, WIDE.knobs, strict=True):
        assert set(column.tolist()) == set(knob.values)


def test_mutants_are_legal_and_mostly_near(space: TaskSpace) -> None:
    start = space.sample(500, np.random.default_rng(2))
    pool = space.mutate(start, np.random.default_rng(3))
    assert all_legal(space, pool)
    assert len(pool) > 300
    one = space.mutate(join([start.take(slice(0, 1))] * 400), np.random.default_rng(3))
    changed = (one.rows != start.rows[0]).sum(1)
    assert (changed >= 1).mean() > 0.95
    assert np.median(changed) <= 2 and changed.max() > 2


def test_children_take_each_knob_from_a_parent_of_the_same_sketch(space: TaskSpace) -> None:
    parents = space.sample(40, np.random.default_rng(2))
    children = space.cross(parents, np.random.default_rng(3))
    assert len(children) and all_legal(space, children)
    for which, row in zip(children.which, children.rows, strict=True):
        mine = parents.rows[parents.which == which]
        assert (mine == row).any(0).all()


def test_keys_tell_sketches_and_values_apart(space: TaskSpace) -> None:
    row = WIDE.default()[None, :]
    same = join([space.pool(0, row), space.pool(0, row), space.pool(1, row)])
    assert len(np.unique(same.keys)) == 2
    assert len(same.unique()) == 2
    assert len(same.without(space.pool(0, row).keys)) == 1
    everything = space.pool(0, WIDE.everything())
    assert len(np.unique(everything.keys)) == len(everything)


def test_schedules_and_rows_are_inverse(space: TaskSpace) -> None:
    pool = space.sample(50, np.random.default_rng(0))
    found, known = space.find(space.schedules(pool))
    assert known.all() and (found.keys == pool.keys).all()
    strange = [Schedule("direct.tile", {"mr": 5}), Schedule("other", {"mr": 1})]
    found, known = space.find(strange)
    assert len(found) == 0 and not known.any()


def test_a_small_space_is_listed_exactly() -> None:
    space = TaskSpace((Few(),))
    assert space.small and space.size == 5
    assert len(space.sample(100, np.random.default_rng(0))) == 5


def test_sketches_of_different_width_live_in_one_pool() -> None:
    space = TaskSpace((Few(), WIDE))
    pool = space.sample(64, np.random.default_rng(0))
    assert np.bincount(pool.which).tolist() == [5, 32]
    assert space.features(pool).shape == (37, 12)
    assert all_legal(space, space.mutate(pool, np.random.default_rng(1)))


def test_features_are_those_of_each_rows_own_sketch(space: TaskSpace) -> None:
    pool = space.sample(20, np.random.default_rng(0))
    matrix = space.features(pool)
    for i, (which, row) in enumerate(zip(pool.which, pool.rows, strict=True)):
        assert (matrix[i] == space.sketches[which].features(row[None, :], 2)[0]).all()
    assert space.features(space.empty()).shape == (0, 12)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ({"mr": 14, "nr": 2, "kc": 1024, "unroll": 2}, {"mr": 14, "nr": 2, "kc": 512}),
        ({"mr": 100, "nr": 1, "unroll": 3}, {"mr": 16, "nr": 1}),
    ],
)
def test_a_schedule_of_another_shape_is_carried_over(
    space: TaskSpace, wanted: dict[str, int], got: dict[str, int]
) -> None:
    pool = space.nearest(Schedule("direct.tile", wanted), np.random.default_rng(0))
    (schedule,) = space.schedules(pool)
    assert {k: schedule.knobs[k] for k in got} == got


def test_an_illegal_carry_over_lands_on_a_legal_neighbour(space: TaskSpace) -> None:
    pool = space.nearest(Schedule("direct.tile", {"mr": 14, "nr": 3}), np.random.default_rng(0))
    (schedule,) = space.schedules(pool)
    assert WIDE.row(schedule) is not None
    assert abs(schedule.knobs["mr"] - 14) + abs(schedule.knobs["nr"] - 3) <= 6
    assert not len(space.nearest(Schedule("nowhere", {}), np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("winograd2.rows4.tile", "winograd2.tile"),
        ("winograd2.rows9.attached", "winograd2.tile"),
        ("direct.attached", "direct.tile"),
        ("winograd4.tile", None),
    ],
)
def test_a_schedule_of_a_missing_sketch_goes_to_the_likest(
    space: TaskSpace, name: str, taken: str | None
) -> None:
    pool = space.nearest(Schedule(name, {"mr": 7}), np.random.default_rng(0))
    assert [s.sketch for s in space.schedules(pool)] == ([taken] if taken else [])


def test_the_library_is_fixed_and_holds_small_spaces_whole(space: TaskSpace) -> None:
    pool, features = space.library
    assert (pool.keys == TaskSpace((WIDE, OTHER), 2).library[0].keys).all()
    assert len(pool) == len(features) == 2048 and not space.complete
    few = TaskSpace((Few(),))
    assert few.complete and len(few.library[0]) == 5
    assert 200 <= len(space.landmarks) <= 300


def test_a_task_without_sketches_is_refused() -> None:
    with pytest.raises(ValueError, match="sketch"):
        TaskSpace(())
