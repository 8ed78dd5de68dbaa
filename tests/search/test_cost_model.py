"""The cost model: few rows, strange labels, ranking, transfer, reproducibility."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from engine.errors import NoctuneError
from engine.search import cost_model
from engine.search.cost_model import MIN_TREE_ROWS, CostModel, train_base
from engine.search.model_cache import LAG, ModelCache, training_rows
from engine.search.population import TaskSpace
from engine.search.samples import Samples, joined
from tests.search.synthetic import SCOPE, MatmulSketch, prior

SKETCH = MatmulSketch()
SPACE = TaskSpace((SKETCH,), 2)


def rows_of(sketch: MatmulSketch, n: int, seed: int = 0) -> np.ndarray:
    return sketch.everything()[np.random.default_rng(seed).permutation(20000)[:n]]


def samples_of(sketch: MatmulSketch, n: int, key: str = "w", seed: int = 0) -> Samples:
    rows = rows_of(sketch, n, seed)
    return Samples.make(sketch.features(rows, 2), sketch.latency(rows), [key] * n)


def model_of(samples: Samples, key: str = "w") -> CostModel:
    return ModelCache(prior).model(SCOPE, samples, key, SPACE)


def rank_agreement(model: CostModel, seed: int = 99) -> float:
    """Share of pairs of unseen candidates that the model orders rightly."""
    rows = rows_of(SKETCH, 400, seed)
    truth = SKETCH.latency(rows)
    guess = model.predict(SKETCH.features(rows, 2)).log_seconds
    left, right = np.triu_indices(len(rows), 1)
    differ = truth[left] != truth[right]
    right_order = (truth[left] < truth[right]) == (guess[left] < guess[right])
    return float(right_order[differ].mean())


@pytest.mark.parametrize("n", [0, 1, 2, 5, 19, 20, 21])
def test_few_rows_still_rank_candidates(n: int) -> None:
    """G2-04: trees cannot split below about 20 rows; the order must not become constant."""
    model = model_of(samples_of(SKETCH, n))
    found = model.predict(SKETCH.features(rows_of(SKETCH, 200, 7), 2))
    assert np.isfinite(found.log_seconds).all() and np.isfinite(found.deviation).all()
    assert len(np.unique(np.round(found.log_seconds, 6))) > 30
    assert rank_agreement(model) > 0.62


def test_more_rows_make_it_better_than_the_roofline() -> None:
    bare, some, many = (rank_agreement(model_of(samples_of(SKETCH, n))) for n in (0, 40, 400))
    assert bare < some < many
    assert many > 0.9


def test_measured_candidates_are_known_and_far_ones_uncertain() -> None:
    samples = samples_of(SKETCH, 30 + LAG)
    model = model_of(samples)
    seen = model.predict(samples.features)
    new = model.predict(SKETCH.features(rows_of(SKETCH, 300, 5), 2))
    assert np.abs(seen.log_seconds - np.log(samples.latency)).mean() < 0.1
    assert seen.deviation.mean() < 0.6 * new.deviation.mean()
    assert (new.deviation > 0).all()


@pytest.mark.parametrize("count", [4, 19, 60])
def test_failed_and_impossible_labels_stay_bounded(count: int) -> None:
    """G2-06: inf, 1e10, NaN and 0 among good rows."""
    good = samples_of(SKETCH, count)
    odd = rows_of(SKETCH, 4, 1234)
    labels = [math.inf, 1e10, math.nan, 0.0]
    bad = Samples.make(SKETCH.features(odd, 2), labels, ["w"] * 4)
    assert np.isinf(bad.latency).all()
    model = model_of(joined(good, bad))
    every = model.predict(SKETCH.features(rows_of(SKETCH, 500, 8), 2))
    assert np.isfinite(every.log_seconds).all()
    assert every.seconds.max() < 1.0 and every.seconds.min() > 1e-6
    failed = model.predict(bad.features).log_seconds
    assert failed.mean() > np.log(np.median(good.latency))


@pytest.mark.parametrize("n", [3, 25])
def test_nothing_but_failures(n: int) -> None:
    rows = rows_of(SKETCH, n)
    samples = Samples.make(SKETCH.features(rows, 2), [math.inf] * n, ["w"] * n)
    found = model_of(samples).predict(SKETCH.features(rows_of(SKETCH, 50, 3), 2))
    assert np.isfinite(found.log_seconds).all() and np.isfinite(found.deviation).all()


@pytest.mark.parametrize("n", [2, 20, 64])
def test_equal_labels(n: int) -> None:
    rows = rows_of(SKETCH, n)
    samples = Samples.make(SKETCH.features(rows, 2), [1e-3] * n, ["w"] * n)
    found = model_of(samples).predict(samples.features)
    assert np.isfinite(found.log_seconds).all()
    assert np.median(np.abs(found.log_seconds - np.log(1e-3))) < 0.35


def test_equal_rows_with_different_labels() -> None:
    """The same candidate measured again and again: no singular matrix."""
    features = np.repeat(SKETCH.features(SKETCH.default()[None, :], 2), 30, 0)
    samples = Samples.make(features, np.linspace(1e-3, 1.1e-3, 30), ["w"] * 30)
    found = model_of(samples).predict(features[:1])
    assert 0.9e-3 < found.seconds[0] < 1.2e-3


def test_features_that_are_not_finite() -> None:
    samples = samples_of(SKETCH, 30)
    odd = samples.features[:4].copy()
    odd[0, 1], odd[1, 2], odd[2, 3] = np.nan, np.inf, -np.inf
    assert np.isfinite(model_of(samples).predict(odd).log_seconds).all()


def test_the_same_rows_and_seed_give_the_same_model() -> None:
    probe = SKETCH.features(rows_of(SKETCH, 64, 5), 2)
    one, two = (model_of(samples_of(SKETCH, 80)).predict(probe) for _ in range(2))
    assert (one.log_seconds == two.log_seconds).all() and (one.deviation == two.deviation).all()


def test_other_workloads_teach_a_new_one() -> None:
    """Records of other sizes make the first guess on a new task better than the roofline."""
    others = [MatmulSketch(m, n, k) for m, n, k in
              ((49, 512, 512), (784, 128, 512), (196, 1024, 512), (3136, 64, 512))]  # fmt: skip
    history = reduce(joined, (samples_of(s, 64, f"other{i}") for i, s in enumerate(others)))
    bare, taught = (
        rank_agreement(model_of(samples_of(SKETCH, 0))),
        rank_agreement(model_of(history)),
    )
    assert taught > bare + 0.03


def test_predictions_are_calibrated_in_seconds() -> None:
    model = model_of(samples_of(SKETCH, 300))
    rows = rows_of(SKETCH, 300, 77)
    ratio = model.predict(SKETCH.features(rows, 2)).seconds / SKETCH.latency(rows)
    assert 0.9 < np.median(ratio) < 1.1


def test_one_model_serves_until_a_quarter_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    real = train_base

    def counting(samples: Samples, *args: object, **kwargs: object) -> object:
        trained.append(len(samples))
        return real(samples, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("engine.search.model_cache.train_base", counting)
    cache = ModelCache(prior)
    for n in (20, 22, 24, 25, 30, 31, 32):
        cache.base(SCOPE, samples_of(SKETCH, n + LAG))
    assert trained == [20, 25, 31]


def test_trees_trained_ahead_are_those_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    real = train_base

    def counting(samples: Samples, *args: object, **kwargs: object) -> object:
        trained.append(len(samples))
        return real(samples, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("engine.search.model_cache.train_base", counting)
    ahead, late = ModelCache(prior), ModelCache(prior)
    ahead.ahead(SCOPE, samples_of(SKETCH, 60), LAG)
    assert trained == [training_rows(60 + LAG)]
    features = samples_of(SKETCH, 200).features
    models = [c.base(SCOPE, samples_of(SKETCH, 60 + LAG)) for c in (ahead, late)]
    assert trained == [training_rows(60 + LAG)] * 2
    expected = [m.expect(features)[0] for m in models]
    assert np.array_equal(*expected)


def test_nothing_is_trained_ahead_on_records_that_do_not_exist() -> None:
    cache = ModelCache(prior)
    cache.ahead(SCOPE, samples_of(SKETCH, 40), 400)
    assert not cache._models


def test_the_training_prefix_follows_from_the_count_alone() -> None:
    assert [training_rows(n) for n in (0, 7, MIN_TREE_ROWS + LAG - 1)] == [0, 0, 0]
    counts = range(MIN_TREE_ROWS, 2000)
    sizes = [training_rows(n + LAG) for n in counts]
    assert all(size <= n for size, n in zip(sizes, counts, strict=True))
    assert sizes == sorted(sizes)
    assert all(n / size < 1.3 for size, n in zip(sizes, counts, strict=True))


def test_a_missing_openmp_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    real = builtins.__import__

    def broken(name: str, *args: object, **kwargs: object) -> object:
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(NoctuneError, match="libgomp1") as caught:
        cost_model.import_lightgbm()
    assert "libgomp.so.1" in caught.value.why
