"""Constants that are made at compile time."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codegen.constants import derive
from engine.errors import ModelError
from engine.expr import ComputeDag
from engine.space import sketches
from engine.target import named
from tasks.networks import load_network, merge_tasks

AVX2 = named("avx2", cores=2)


def derived_dags() -> dict[str, tuple[ComputeDag, str, tuple[int, ...]]]:
    """One DAG of each transform in resnet-18-v1, the constant it starts from, and its shape."""
    found = {}
    for task in merge_tasks([load_network("resnet-18-v1", AVX2)], 2):
        shapes = {p.name: p.shape for p in task.workload.dag.placeholders}
        for sketch in sketches(task.workload, AVX2, 2):
            for placeholder in sketch.dag.placeholders:
                if placeholder.derive is not None:
                    name, source = placeholder.derive
                    found.setdefault(name, (sketch.dag, source, shapes[source]))
    return found


def test_weights_that_overflow_are_refused() -> None:
    """Twice 2e38 is beyond float32; with direct sums the weights are fine."""
    dags = derived_dags()
    assert any(name.startswith("strassen") for name in dags) and len(dags) >= 3
    for name, (dag, source, shape) in dags.items():
        signs = np.where(np.random.default_rng(0).random(shape) < 0.5, -1, 1)
        large = (signs * 2e38).astype(np.float32)
        if not name.startswith("winograd"):
            with pytest.raises(ModelError, match="--accuracy strict"):
                derive(dag, {source: large})
        assert np.isfinite(derive(dag, {source: large * 1e-3})[_made(dag, name)]).all()


def test_weights_that_are_not_finite_stay_so() -> None:
    dag, source, shape = derived_dags()["strassen"]
    weights = np.ones(shape, np.float32)
    weights.flat[0] = np.inf
    assert not np.isfinite(derive(dag, {source: weights})[_made(dag, "strassen")]).all()


def _made(dag: ComputeDag, transform: str) -> str:
    return next(p.name for p in dag.placeholders if p.derive and p.derive[0] == transform)
