"""Products by halves: exact on whole numbers, whatever the axes, and offered where they pay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.codegen.constants import derive
from engine.expr.reference import reference
from engine.graph.builder import Builder
from engine.graph.task import Workload
from engine.space import sketches, strassen
from engine.space.algorithms import BOUND, ERROR, TRANSFORMS, allowed, alternatives
from engine.space.features import _transform
from tests.codegen.workloads import network
from tests.space.samples import AVX2


def workload(shape: tuple[int, ...], build: Callable[[Builder], str]) -> Workload:
    found = [s.workload for s in network({"x": shape}, build, AVX2).steps if s.workload is not None]
    (work,) = (w for w in found if w.dag.anchor.reducer)
    return work


def convolution(
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    stride: int = 1,
    pad: int = 0,
    apart: int = 1,
) -> Workload:
    rank = len(shape) - 2

    def build(b: Builder) -> str:
        values = np.random.default_rng(1).integers(-3, 4, weight).astype(np.float32)
        out = b.emit(
            "Conv", "x", b.constant(values), kernel_shape=weight[2:], strides=(stride,) * rank,
            dilations=(apart,) * rank, pads=(pad,) * 2 * rank, group=1,
        )  # fmt: skip
        return b.emit("Relu", out)

    return workload(shape, build)


def product(shape: tuple[int, ...], weight: tuple[int, ...]) -> Workload:
    values = np.random.default_rng(1).integers(-3, 4, weight).astype(np.float32)
    return workload(shape, lambda b: b.emit("MatMul", "x", b.constant(values)))


def by_halves(work: Workload) -> list[str]:
    found = [d.algorithm for d in alternatives(work.dag, "default")]
    return [name for name in found if name.startswith(strassen.NAME)]


@pytest.mark.parametrize("name", ERROR)
def test_each_algorithm_has_a_bound_and_a_transform(name: str) -> None:
    assert name in TRANSFORMS and 0.0 < ERROR[name] < BOUND["default"]
    assert not allowed(name + ".rows2", "strict") and allowed(name + ".rows2", "default")


def by_seven(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The product of two float32 matrices from seven of their halves."""
    (m, k), n = x.shape, w.shape[1]
    quarters = x.reshape(m // 2, 2, 2, k // 2).transpose(1, 2, 0, 3)  # even and odd rows
    data, result = (np.array(c, np.float32) for c in (strassen._DATA, strassen._RESULT))
    left = np.einsum("xq,qpk->xpk", data, quarters.reshape(4, m // 2, k // 2))
    parts = np.einsum("qx,xpn->qpn", result, left @ strassen.weight_transform(w))
    return parts.reshape(2, 2, m // 2, n // 2).transpose(2, 0, 1, 3).reshape(m, n)


def test_seven_products_are_the_whole_product() -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-9, 9, s).astype(np.float32) for s in ((6, 8), (8, 4)))
    np.testing.assert_array_equal(by_seven(x, w), x @ w)


@pytest.mark.parametrize(("m", "k", "n"), [(256, 128, 128), (196, 512, 512), (128, 3072, 768)])
def test_errors_stay_within_the_bound(m: int, k: int, n: int) -> None:
    """Normal data in single precision."""
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    expected = x.astype(np.float64) @ w
    assert abs(by_seven(x, w) - expected).max() < ERROR[strassen.NAME] * abs(expected).max()


def test_weights_of_convolutions_are_halved_by_channels() -> None:
    weight = np.random.default_rng(3).normal(size=(6, 4, 3, 2)).astype(np.float32)
    made = strassen.weight_transform(weight)
    assert made.shape == (7, 3, 2, 2, 3)
    np.testing.assert_array_equal(made[:, 1, 1], strassen.weight_transform(weight[:, :, 1, 1].T))


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(convolution((1, 128, 6, 5), (160, 128, 1, 1)), id="1x1"),
        pytest.param(convolution((2, 64, 7, 6), (64, 64, 3, 3), 2, 1), id="3x3, stride 2"),
        pytest.param(convolution((1, 64, 9, 12), (96, 64, 3, 3), 1, 2, 2), id="dilated, odd rows"),
        pytest.param(convolution((2, 128, 5, 3), (128, 128, 1, 1)), id="batch"),
        pytest.param(convolution((1, 64, 4, 4, 5), (64, 64, 3, 1, 2), 1, 1), id="3-D"),
        pytest.param(convolution((1, 64, 14), (64, 64, 4), 2), id="1-D"),
        pytest.param(product((6, 128), (128, 160)), id="matrix"),
        pytest.param(product((2, 3, 4, 128), (128, 128)), id="batched"),
    ],
)
def test_sums_are_those_of_the_declaration(work: Workload) -> None:
    rng = np.random.default_rng(5)
    feeds = {p.name: rng.integers(-4, 5, p.shape).astype(np.float32) for p in work.dag.placeholders}
    (expected,) = reference(work.dag, feeds, np.float64).values()
    found = [d for d in alternatives(work.dag, "default") if d.algorithm.startswith(strassen.NAME)]
    assert found
    for dag in found:
        (result,) = reference(dag, derive(dag, feeds), np.float64).values()
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(convolution((1, 32, 8, 8), (256, 32, 1, 1)), id="few channels"),
        pytest.param(convolution((1, 64, 8, 8), (64, 64, 1, 1)), id="short sums"),
        pytest.param(convolution((1, 128, 7, 7), (128, 128, 1, 1)), id="odd image"),
        pytest.param(convolution((1, 128, 8, 8), (136, 128, 1, 1)), id="ragged channels"),
        pytest.param(product((1, 512), (512, 512)), id="one row"),
    ],
)
def test_not_offered_where_it_cannot_pay(work: Workload) -> None:
    assert not by_halves(work)


def test_steps_of_some_pixels_and_of_all() -> None:
    assert by_halves(convolution((1, 128, 28, 28), (128, 128, 1, 1))) == [
        "strassen.rows1", "strassen.rows14",
    ]  # fmt: skip
    assert by_halves(product((128, 768), (768, 768))) == ["strassen.rows32", "strassen.rows64"]


def test_features_count_the_terms_of_sums() -> None:
    """Twelve coefficients of seven sums, four elements of the data."""
    work = convolution((1, 128, 28, 28), (128, 128, 1, 1))
    found = [s for s in sketches(work, AVX2) if s.name.startswith(strassen.NAME)]
    terms = {_transform(t) for s in found for t in s.tilings if t.constant_transform}
    assert terms == {(12.0, 4.0), (12.0, 7.0)}
