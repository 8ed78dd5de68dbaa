"""Whatever the shapes, the knobs, the layouts and the threads: a kernel computes its declaration.

Each example is a small random network; every kernel of it is generated with a random legal schedule
of a random sketch, in its canonical layouts or in roomier ones (wider halos, slices of bigger
buffers).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.expr.reference import reference
from engine.graph.builder import Builder
from engine.graph.task import LoweredGraph, Step
from engine.space import Sketch, sketches, strassen
from engine.target import host
from tests.codegen import nets
from tests.codegen.harness import check, random_feeds
from tests.codegen.workloads import network, roomier

FEW = settings(
    deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
MANY = settings(FEW, max_examples=40, print_blob=True)
SEEDS = st.integers(0, 2**32 - 1)
KINDS = {
    "convolution": nets.convolutions(), "winograd": nets.filtered(), "pool": nets.pools(),
    "preactivation": nets.preactivations(), "product": nets.products(), "rows": nets.rows(),
    "elementwise": nets.elementwise(),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def everything_is_tried_on_small_things() -> Iterator[None]:
    """Prefetching of constants, and products by halves whatever their size."""
    with pytest.MonkeyPatch.context() as patch:
        for name, least in (("_CHANNELS", 2), ("_WORK", 1), ("_ALIGNED", 2)):
            patch.setattr(strassen, name, least)
        patch.setattr("engine.space.tiling._STREAM", 0)
        yield


def random_row(sketch: Sketch, rng: np.random.Generator) -> np.ndarray:
    """A legal row; the default one if the draw finds none."""
    if not sketch.knobs:
        return sketch.default()
    rows = np.stack([rng.choice(k.values, 64) for k in sketch.knobs], axis=1).astype(np.int64)
    legal = rows[sketch.valid(rows)]
    return legal[0] if len(legal) else sketch.default()


def verify(step: Step, lowered: LoweredGraph, rng: np.random.Generator) -> None:
    """One random schedule of one step, in its own or in roomier layouts."""
    workload = step.workload
    assert workload is not None
    found = sketches(workload, host(), 2, accuracy="fast")
    sketch = found[int(rng.integers(len(found)))]
    known = lowered.graph.constants
    feeds = {
        p.name: known[step.bindings[p.name]]
        if p.constant
        else rng.uniform(-1, 1, p.shape).astype(np.float32)
        for p in workload.dag.placeholders
    }
    layouts = dict(step.layouts)
    if rng.random() < 0.5:
        layouts = {name: roomier(layout, rng) for name, layout in workload.layouts.items()}
    expected = reference(workload.dag, feeds, np.float64)
    schedule = sketch.schedule(random_row(sketch, rng))
    check(workload, sketch, schedule, host(), feeds, expected, layouts)


def verify_net(net: nets.Net, seed: int) -> None:
    lowered = network(net.inputs, net.build, host())
    rng = np.random.default_rng(seed)
    for step in lowered.steps:
        if step.workload is not None:
            verify(step, lowered, rng)


@pytest.mark.parametrize("kind", KINDS)
def test_random_networks(kind: str) -> None:
    @settings(FEW, max_examples=4 if kind == "winograd" else 8)
    @given(KINDS[kind], SEEDS)
    def run(net: nets.Net, seed: int) -> None:
        verify_net(net, seed)

    run()


def test_long_sums_in_parts() -> None:
    """Every way to cut a long reduction, with what follows it."""

    def build(b: Builder) -> str:
        out = b.emit("MatMul", "x", b.constant(nets.array((300, 40))))
        return b.emit("Relu", b.emit("Add", out, b.constant(nets.array((40,)))))

    (step,) = network({"x": (5, 300)}, build, host()).steps
    workload, rng = step.workload, np.random.default_rng(3)
    assert workload is not None
    (sketch,) = sketches(workload, host(), 2)
    (at,) = (i for i, k in enumerate(sketch.knobs) if k.name.endswith(".split"))
    feeds = random_feeds(workload.dag, rng)
    expected = reference(workload.dag, feeds, np.float64)
    for part in sketch.knobs[at].values:
        row = random_row(sketch, rng)
        row[at] = part
        check(workload, sketch, sketch.schedule(row), host(), feeds, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_networks(kind: str) -> None:
    @MANY
    @given(KINDS[kind], SEEDS)
    def run(net: nets.Net, seed: int) -> None:
        verify_net(net, seed)

    run()
