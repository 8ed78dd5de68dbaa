"""Trees that come with noctune, and the tool that trains them."""

from __future__ import annotations

from functools import partial, reduce
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.layers import LEAST_WORK, random_layers
from benchmarks.search.pretrain import draw, fit, held_out, regret, tasks_of
from engine.search import Samples, TaskSpace
from engine.search import pretrained as module
from engine.search.pretrained import FOLDER, file_of, load, pretrained
from engine.search.samples import joined
from engine.space import FEATURES, prior, sketches
from engine.target import LEVELS, named
from tasks.networks import load_network, merge_tasks

FILES = sorted(path.stem for path in FOLDER.glob("*.txt"))
AVX2 = named("avx2", cores=2)


def test_there_are_trees_for_the_usual_levels() -> None:
    assert {"avx2", "avx512"} <= set(FILES)


@pytest.mark.parametrize("level", FILES)
def test_trees_fit_the_features(level: str) -> None:
    """A file of every level that has one: of a level, of these features, right in its order."""
    assert level in LEVELS
    assert tuple(load(level).feature_name()) == FEATURES
    target = named(level, cores=2)
    task = merge_tasks([load_network("resnet-18-v1", target)], 2)[1]
    space = TaskSpace(sketches(task.workload, target, 2), 2)
    features = space.landmarks
    seconds, machine = pretrained(target)(features), prior(features, target)
    assert seconds.shape == (len(features),) and (seconds > 0).all()
    assert len(np.unique(seconds)) > len(features) / 4
    assert np.abs(np.log(seconds / machine)).max() < np.log(64)
    assert np.corrcoef(np.log(seconds), np.log(machine))[0, 1] > 0.5


def test_a_level_without_trees_has_the_machine_model() -> None:
    target = named("sse42", cores=2)
    assert not file_of("sse42").exists()
    features = np.ones((3, len(FEATURES)), np.float32)
    np.testing.assert_array_equal(pretrained(target)(features), prior(features, target))


def test_no_candidates() -> None:
    assert pretrained(AVX2)(np.zeros((0, len(FEATURES)), np.float32)).shape == (0,)


def test_trees_of_other_features_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = file_of("avx2").read_text().replace("fma_cycles", "else_cycles")
    (tmp_path / "avx2.txt").write_text(text)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    load.cache_clear()
    try:
        with pytest.raises(ValueError, match="train it again"):
            pretrained(AVX2)(np.ones((1, len(FEATURES)), np.float32))
    finally:
        load.cache_clear()


def test_random_layers_are_the_same_for_a_seed() -> None:
    first, again = ([m.SerializeToString() for m in islice(random_layers(3), 6)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 6


def test_tasks_are_of_all_kinds_and_none_of_a_network() -> None:
    tasks = list(tasks_of(AVX2, 40, seed=4))
    assert len({t.key for t in tasks}) == 40
    assert len({t.workload.anchor for t in tasks}) >= 5
    assert {t.threads for t in tasks} == {1, 2}
    assert all(t.workload.flops >= LEAST_WORK for t in tasks)
    known = {t.key for t in merge_tasks([load_network("resnet-50", AVX2)], 2)}
    assert not known & {t.key for t in tasks}


def test_draws_are_legal_and_of_every_sketch() -> None:
    task = next(t for t in tasks_of(AVX2, 30, 1) if len(sketches(t.workload, AVX2, 2)) > 3)
    space = TaskSpace(sketches(task.workload, AVX2, task.threads), task.threads)
    pool = draw(space, partial(prior, target=AVX2), 30, np.random.default_rng(0))
    assert set(pool.which) == set(range(len(space.sketches)))
    assert len(pool) == len(pool.unique())


def _samples(bias: float) -> Samples:
    """Layers whose candidates take longer than the machine model says, the more loads they have."""
    parts = []
    for task in list(tasks_of(AVX2, 8, 1)):
        space = TaskSpace(sketches(task.workload, AVX2, task.threads), task.threads)
        features = space.landmarks
        loads = features[:, FEATURES.index("loads_per_fma")]
        seconds = prior(features, AVX2) * np.exp(bias * loads)
        parts.append(Samples.make(features, seconds, [f"{task.key}/0"] * len(features)))
    return reduce(joined, parts)


def test_trees_correct_what_the_machine_model_gets_wrong() -> None:
    samples = _samples(bias=3.0)
    bare = np.log(regret(samples, partial(prior, target=AVX2))).mean(0)
    unseen = np.log(held_out(samples, AVX2)).mean(0)
    known = np.log(regret(samples, fit(samples, AVX2))).mean(0)
    assert bare[0] > 0.02
    assert known[0] < 0.5 * bare[0]
    assert unseen[0] < bare[0]
