"""The cost model: which candidates are fast, and how sure that is.

In: `Samples` of all workloads measured on this target, and the machine model's prior.  Out: a
frozen `CostModel` that predicts seconds and their uncertainty for any candidates of one task.

Three layers, each a correction of the log latency that the one below expects:
    prior (the machine model)  ->  trees on all the target's records  ->  the task's own rows
The trees (LightGBM, a small bagged ensemble) learn what the machine does and carry over to other
tasks; the last layer (a Gaussian process) weighs the task at hand, works from the first row on, and
tells how uncertain a candidate is.  Failed candidates count as several times slower than the
task's best, so labels are bounded whatever a failure looked like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from engine.errors import NoctuneError
from engine.search.local_model import LocalModel, fit_local
from engine.search.protocol import Features, Floats, Prior
from engine.search.samples import Samples

FAILED_SLOWDOWN = 8.0
"""A failed candidate is taken to be so many times slower than its workload's best."""
SLOWEST = 64.0
"""Slower candidates than this multiple of the best are all alike."""
MIN_TREE_ROWS = 20
"""Below, trees cannot split (LightGBM issues 4826, 5081): prior and own rows alone."""
MAX_TREE_ROWS = 20_000
MAX_OWN_ROWS = 256
PRIOR_WIDTH = 0.25
"""Standard deviation of log(measured / machine model) assumed before any record exists."""
_MEMBERS = 3
_TREES = 50


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """log_seconds float64[n] and its standard deviation float64[n]."""

    log_seconds: Floats
    deviation: Floats

    @property
    def seconds(self) -> Floats:
        return np.exp(self.log_seconds)


class Predictor(Protocol):
    """Anything that can rank candidates of a task."""

    def predict(self, features: Features, /) -> Prediction: ...


@dataclass(frozen=True, slots=True, eq=False)
class BaseModel:
    """What all records of the target teach: prior and trees.  `rows` were trained on."""

    prior: Prior
    members: tuple[Any, ...]
    rows: int
    width: float
    threads: int

    def expect(self, features: Features) -> tuple[Floats, Floats]:
        """(log seconds, disagreement of the trees)."""
        if not len(features):
            return np.zeros(0), np.zeros(0)
        log_prior = np.log(_positive(self.prior(features)))
        if not self.members:
            return log_prior, np.zeros(len(features))
        each = np.stack([m.predict(features, num_threads=self.threads) for m in self.members])
        return log_prior + each.mean(0), each.std(0)

    def focus(self, own: Samples, scale_by: Features) -> CostModel:
        """The model for one task: `own` are its rows, `scale_by` features of any candidates of it
        (to know how far each feature ranges)."""
        own = _latest(own)
        expected, _ = self.expect(own.features)
        residual = bounded_log(own, expected) - expected
        return CostModel(self, fit_local(own.features, residual, scale_by, self.width), len(own))


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """Predicts the latency of one task's candidates; `own_rows` of its records were seen."""

    base: BaseModel
    local: LocalModel
    own_rows: int

    def predict(self, features: Features) -> Prediction:
        """Seconds with uncertainty for float32[n, F]; always finite."""
        clean = np.nan_to_num(features, nan=0.0, posinf=1e30, neginf=-1e30)
        expected, disagreement = self.base.expect(clean)
        mean, deviation = self.local.predict(clean)
        return Prediction(expected + mean, np.sqrt(deviation**2 + disagreement**2))


def train_base(samples: Samples, prior: Prior, *, seed: int = 0, threads: int = 1) -> BaseModel:
    """Trains the trees on all rows; the same rows and seed give the same model.

    One thread by default: with more, OpenMP threads wait actively and disturb a measurement.
    Raises NoctuneError when LightGBM's OpenMP library is missing.
    """
    samples = samples.take(slice(max(0, len(samples) - MAX_TREE_ROWS), None))
    if len(samples) < MIN_TREE_ROWS:
        return BaseModel(prior, (), len(samples), PRIOR_WIDTH, threads)
    (expected, label), weight = _labels(samples, prior), _weights(samples)
    members = tuple(
        _booster(samples.features, label, weight, _TREES, seed * _MEMBERS + i, threads)
        for i in range(_MEMBERS)
    )
    model = BaseModel(prior, members, len(samples), PRIOR_WIDTH, threads)
    left = label - (model.expect(samples.features)[0] - expected)
    width = float(np.clip(2.0 * left.std(), 0.05, PRIOR_WIDTH))
    return BaseModel(prior, members, len(samples), width, threads)


def train_trees(samples: Samples, prior: Prior, trees: int, names: Sequence[str]) -> Any:
    """One booster of so many trees that says log(measured / prior), with named features."""
    _, label = _labels(samples, prior)
    return _booster(samples.features, label, _weights(samples), trees, 0, 1, list(names))


def _labels(samples: Samples, prior: Prior) -> tuple[Floats, Floats]:
    """(log prior, log(measured / prior)) of every row."""
    expected = np.log(_positive(prior(samples.features)))
    return expected, bounded_log(samples, expected) - expected


def bounded_log(samples: Samples, expected: Floats) -> Floats:
    """Finite log seconds of every row: failures FAILED_SLOWDOWN times the workload's best, slow
    rows at most SLOWEST times.  A workload where nothing worked is taken as slow as `expected`
    (log seconds) times FAILED_SLOWDOWN."""
    fine = np.isfinite(samples.latency)
    result = np.log(np.where(fine, samples.latency, 1.0))
    for rows in _groups(samples):
        good = rows[fine[rows]]
        bad = rows[~fine[rows]]
        if len(good):
            best = float(result[good].min())
            result[good] = np.minimum(result[good], best + np.log(SLOWEST))
            result[bad] = best + np.log(FAILED_SLOWDOWN)
        else:
            result[bad] = expected[bad] + np.log(FAILED_SLOWDOWN)
    return np.asarray(result)


def _weights(samples: Samples) -> Floats:
    """Fast rows matter most, and a workload with thousands of rows does not drown the others."""
    weight = np.ones(len(samples))
    for rows in _groups(samples):
        best = samples.latency[rows].min()
        speed = best / samples.latency[rows] if np.isfinite(best) else np.zeros(len(rows))
        weight[rows] = np.clip(speed, 0.1, 1.0) / np.sqrt(max(1.0, len(rows) / 32.0))
    return np.asarray(weight / weight.mean())


def _groups(samples: Samples) -> list[np.ndarray[tuple[int, ...], np.dtype[np.intp]]]:
    """Row numbers of each workload."""
    number: dict[str, int] = {}
    codes = np.array([number.setdefault(k, len(number)) for k in samples.workload], np.intp)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []


def _latest(own: Samples) -> Samples:
    """At most MAX_OWN_ROWS rows: the fastest half and the newest."""
    if len(own) <= MAX_OWN_ROWS:
        return own
    rank = own.latency.argsort(kind="stable").argsort()
    keep = rank < MAX_OWN_ROWS // 2
    keep[np.flatnonzero(~keep)[-(MAX_OWN_ROWS // 2) :]] = True
    return own.take(keep)


def _booster(
    features: Features,
    label: Floats,
    weight: Floats,
    trees: int,
    seed: int,
    threads: int,
    names: list[str] | Literal["auto"] = "auto",
) -> Any:
    lightgbm = import_lightgbm()
    options = {
        "objective": "regression", "learning_rate": 0.12, "num_leaves": 15, "max_bin": 63,
        "min_data_in_leaf": max(2, min(8, len(label) // 20)), "min_data_in_bin": 1,
        "lambda_l2": 0.5, "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.7,
        "feature_pre_filter": False, "seed": seed, "deterministic": True, "force_col_wise": True,
        "num_threads": threads, "verbosity": -1,
    }  # fmt: skip
    data = lightgbm.Dataset(features, label, weight=weight, feature_name=names, params=options)
    return lightgbm.train(options, data, trees)


def import_lightgbm() -> Any:
    """LightGBM, loaded at first use because it brings OpenMP into the process."""
    try:
        import lightgbm
    except OSError as error:
        raise NoctuneError(
            "LightGBM cannot be loaded",
            why=str(error),
            fix="Install the OpenMP runtime: libgomp1 on Debian and Ubuntu, libgomp on Fedora and "
            "RHEL.",
        ) from error
    return lightgbm


def _positive(seconds: Floats) -> Floats:
    clean = np.nan_to_num(np.asarray(seconds, np.float64), nan=1.0, posinf=1e6, neginf=1e-9)
    return np.clip(clean, 1e-9, 1e6)
