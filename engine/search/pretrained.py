"""The machine model, corrected by trees that were trained before any record exists.

In: a target.  Out: a `Prior` for it.  The trees come with noctune, one file for each vector width,
and were trained on random layers (`benchmarks/search/pretrain.py` makes the files anew; it has to
when the features change).  They say by how much the machine model errs, in log seconds.  A target
without a file has the machine model alone.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.search.cost_model import import_lightgbm
from engine.search.protocol import Features, Floats, Prior
from engine.space import FEATURES, prior
from engine.target import LEVELS, Target

FOLDER = Path(__file__).with_name("trees")


def file_of(level: str) -> Path:
    """Where the trees of a level of `engine.target.LEVELS` are, if there are any."""
    return FOLDER / f"{level}.txt"


def pretrained(target: Target) -> Prior:
    """float32[n, F] features -> float64[n] seconds, for candidates on that target."""
    machine = partial(prior, target=target)
    level = next((name for name, row in LEVELS.items() if row[2] == target.vector_bits), "")
    if not file_of(level).is_file():
        return machine
    return partial(_corrected, machine, level)


def correct(machine: Prior, trees: Any, features: Features) -> Floats:
    """Seconds of the machine model times what the trees say."""
    if not len(features):
        return np.zeros(0)
    found = machine(features) * np.exp(trees.predict(features, num_threads=1))
    return np.asarray(found, np.float64)


def _corrected(machine: Prior, level: str, features: Features) -> Floats:
    return correct(machine, load(level), features)


@cache
def load(level: str) -> Any:
    """The booster of a level.  Raises ValueError if it was trained on other features."""
    trees = import_lightgbm().Booster(model_file=str(file_of(level)))
    if tuple(trees.feature_name()) != FEATURES:
        raise ValueError(f"{file_of(level)} was trained on other features; train it again")
    return trees
