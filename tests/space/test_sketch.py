"""What every sketch promises: knobs, legality, features, schedules that can be read back."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from engine.records import Schedule
from engine.space import FEATURES, find, prior, sketches
from engine.target import named
from tests.space.samples import AVX2, WORKLOADS, legal_rows, random_rows

ALL = [
    pytest.param(sketch, id=f"{name}-{sketch.name}")
    for name, make in WORKLOADS.items()
    for sketch in sketches(make(), AVX2, 2, accuracy="fast")
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("sketch", ALL)
def test_the_default_is_legal(sketch):
    row = sketch.default()
    assert row.shape == (len(sketch.knobs),) and row.dtype == np.int64
    assert sketch.valid(row[None]).all()
    assert all(value in knob.values for value, knob in zip(row, sketch.knobs, strict=True))
    np.testing.assert_array_equal(row, sketch.default())


@pytest.mark.parametrize("sketch", ALL)
def test_schedules_survive_a_file(sketch, rng):
    for row in random_rows(sketch, rng)[:20]:
        schedule = sketch.schedule(row)
        again = Schedule.from_json(json.loads(json.dumps(schedule.to_json())))
        assert again.key == schedule.key
        back = sketch.row(again)
        if sketch.valid(row[None])[0]:
            np.testing.assert_array_equal(back, row)


@pytest.mark.parametrize("sketch", ALL)
def test_foreign_schedules_are_none_of_a_sketch(sketch):
    own = sketch.schedule(sketch.default())
    assert sketch.row(Schedule("other", own.knobs)) is None
    assert sketch.row(Schedule(own.sketch, {**own.knobs, "more": 1})) is None
    for name in own.knobs:
        assert sketch.row(Schedule(own.sketch, {**own.knobs, name: 10**6 + 1})) is None
        less = {k: v for k, v in own.knobs.items() if k != name}
        assert sketch.row(Schedule(own.sketch, less)) is None


@pytest.mark.parametrize("sketch", ALL)
def test_knobs_are_named_choices(sketch):
    names = [k.name for k in sketch.knobs]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"\w+\.\w+(\.block)?", name) for name in names)
    for knob in sketch.knobs:
        assert knob.values and len(set(knob.values)) == len(knob.values)
        assert all(isinstance(v, int) and v >= 0 for v in knob.values)
    assert sketch.size == np.prod([len(k.values) for k in sketch.knobs], dtype=object)


@pytest.mark.parametrize("sketch", ALL)
def test_features_are_finite_and_alike(sketch, rng):
    rows = random_rows(sketch, rng)
    found = sketch.features(rows)
    assert found.shape == (len(rows), len(FEATURES)) and found.dtype == np.float32
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(sketch.features(rows[:1])[0], found[0])
    seconds = prior(found, AVX2)
    assert seconds.shape == (len(rows),) and (seconds > 0).all() and np.isfinite(seconds).all()


@pytest.mark.parametrize("sketch", ALL)
def test_legal_rows_keep_to_the_registers(sketch, rng):
    rows = legal_rows(sketch, rng)
    assert len(rows)
    at = FEATURES.index("accumulators")
    assert (sketch.features(rows)[:, at] <= 1.0).all()


@pytest.mark.parametrize("sketch", ALL)
def test_schedules_find_their_sketch(sketch):
    others = [p.values[0] for p in ALL if p.values[0].dag is not sketch.dag]
    schedule = sketch.schedule(sketch.default())
    assert find((*others, sketch), schedule) is not None
    assert find((sketch,), schedule) is sketch
    assert find((), schedule) is None


@pytest.mark.parametrize("name", WORKLOADS)
def test_sketches_do_not_depend_on_the_run(name):
    """Records of one night are read by another process: same names, knobs and values."""
    first, second = (sketches(WORKLOADS[name](), AVX2, 2) for _ in range(2))
    assert [(s.name, s.knobs) for s in first] == [(s.name, s.knobs) for s in second]
    assert len({s.name for s in first}) == len(first)


@pytest.mark.parametrize("name", WORKLOADS)
def test_records_of_one_thread_count_are_read_at_another(name):
    for one, two in zip(*(sketches(WORKLOADS[name](), AVX2, n) for n in (1, 2)), strict=True):
        schedule = one.schedule(one.default())
        np.testing.assert_array_equal(two.row(schedule), one.default())


def test_accuracy_bounds_the_algorithms():
    work = WORKLOADS["winograd"]()
    strict, default, fast = (
        {s.dag.algorithm.split(".")[0] for s in sketches(work, AVX2, accuracy=a)}
        for a in ("strict", "default", "fast")
    )
    assert strict == {"direct"}
    assert "winograd2" in default
    assert default <= fast


def test_wider_registers_give_other_choices():
    work = WORKLOADS["product"]
    lanes = {sketches(work(), named(n))[0].tilings[0].lanes for n in ("sse42", "avx2", "avx512")}
    assert lanes == {4, 8, 16}


@pytest.mark.parametrize("sketch", ALL)
def test_the_model_counts_the_work_that_threads_share(sketch, rng):
    rows = legal_rows(sketch, rng)
    found = np.exp2(sketch.features(rows)[:, FEATURES.index("work_items")].astype(np.float64)) - 1
    columns, n = sketch.columns(rows), len(rows)
    if sketch.skeleton.shared:
        outside = np.prod([a.extent for a in sketch.skeleton.shared])
        expected = np.full(n, float(len(sketch.tilings) * outside))
    else:
        expected = sum(t.block_trips(columns, n) for t in sketch.tilings).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
