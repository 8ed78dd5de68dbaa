"""NaN, infinities, signed zeros and subnormal numbers; accuracy of the elementary functions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.expr.reference import reference
from engine.graph.builder import Builder
from engine.space import sketches
from engine.target import missing_features, named
from tests.codegen.functions import ulps, unary
from tests.codegen.harness import load, run
from tests.codegen.workloads import network

TARGETS = [n for n in ("host", "avx2", "sse42") if not missing_features(named(n))]
EDGE = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 1.0, -3.5, 1e30], np.float32)
COUNT = 1 << 16

# name -> (exact function, samples from, to, ulps allowed by engine/codegen/vector_math.py)
FUNCTIONS = {
    "exp": (np.exp, -104.0, 88.7, 1.1),
    "log": (np.log, 1e-3, 100.0, 0.9),
    "tanh": (np.tanh, -10.0, 10.0, 1.4),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -88.7, 88.7, 2.5),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), -4.5, 4.5, 2.7),
    "sin": (np.sin, -100.0, 100.0, 1.0),
    "cos": (np.cos, -100.0, 100.0, 1.0),
    "sqrt": (np.sqrt, 0.0, 100.0, 0.5),
    "reciprocal": (lambda x: 1 / x, 0.1, 100.0, 0.5),
}


def samples(low: float, high: float) -> np.ndarray:
    """Evenly spread numbers, and as many small ones of all magnitudes."""
    rng = np.random.default_rng(0)
    spread = rng.uniform(low, high, COUNT // 2)
    tiny = np.exp2(rng.uniform(-126, 0, COUNT // 2)) * rng.choice((-1.0, 1.0), COUNT // 2)
    return np.concatenate([spread, np.clip(tiny, low, high)]).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_are_as_exact_as_stated(op, target):
    exact, low, high, allowed = FUNCTIONS[op]
    x = samples(low, high)
    distance = ulps(unary(op, x, named(target)), exact(x.astype(np.float64)))
    assert distance.max() <= allowed, x[distance.argmax()]


@pytest.mark.parametrize("target", TARGETS)
def test_erf_is_close_absolutely(target):
    x = samples(-4.5, 4.5)
    exact = FUNCTIONS["erf"][0](x.astype(np.float64))
    assert np.abs(unary("erf", x, named(target)) - exact).max() <= 1.6e-7


@pytest.mark.parametrize("target", TARGETS)
def test_every_bit_pattern_class_of_exp(target):
    """From subnormal results through overflow, where two scale factors are needed."""
    ends = np.array(
        [-np.inf, -1e30, -104, -103.9, -103.3, -90, -87.4, 88.4, 88.7228317], np.float32
    )
    over = np.array([88.7228394, 89.0, 1e30, np.inf], np.float32)
    found = unary("exp", np.concatenate([ends, over]), named(target))
    assert np.isinf(found[len(ends) :]).all()
    assert ulps(found[: len(ends)], np.exp(ends.astype(np.float64))).max() <= 1.1


EXPECTED = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": FUNCTIONS["erf"][0], "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "sign": np.sign, "sin": np.sin, "cos": np.cos,
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", EXPECTED)
def test_special_values_of_functions(op, target):
    found = unary(op, EDGE, named(target))
    with np.errstate(all="ignore"):
        exact = EXPECTED[op](EDGE.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, exact, rtol=3e-7)
    zeros = exact == 0
    if op != "sign":
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(exact[zeros]))


def relu(b: Builder) -> str:
    return b.emit("Relu", "x")


def clip(b: Builder) -> str:
    return b.emit("Clip", "x", min=-1.0, max=2.0)


def largest(b: Builder) -> str:
    return b.emit("Max", "x", b.constant(EDGE[::-1].copy()))


def smallest(b: Builder) -> str:
    return b.emit("Min", "x", b.constant(EDGE[::-1].copy()))


def pooled(b: Builder) -> str:
    return b.emit("MaxPool", "x", kernel_shape=(2,), strides=(1,), pads=(1, 0), dilations=(1,),
                  ceil_mode=0)  # fmt: skip


def softmax(b: Builder) -> str:
    return b.emit("Softmax", "x", axis=1)


def leaky(b: Builder) -> str:
    return b.emit("LeakyRelu", "x", alpha=0.1)


ROWS = np.stack([np.roll(EDGE, k) for k in range(len(EDGE))])
PLANES = np.stack([ROWS, ROWS[::-1]])
NETS = {
    "relu": (relu, ROWS), "clip": (clip, ROWS), "max": (largest, ROWS), "min": (smallest, ROWS),
    "max pool": (pooled, PLANES), "leaky relu": (leaky, ROWS),
}  # fmt: skip


def results(build, data, target):
    """Each sketch's result of a network of one kernel, with the exact one."""
    lowered = network({"x": data.shape}, build, target)
    kernel = lowered.steps[-1 if lowered.steps[-1].workload.anchor != "copy" else -2]
    workload = kernel.workload
    feeds = {
        p.name: lowered.graph.constants[kernel.bindings[p.name]] if p.constant else data
        for p in workload.dag.placeholders
    }
    exact = reference(workload.dag, feeds)[workload.dag.outputs[0]]
    for sketch in sketches(workload, target):
        loaded = load(workload, sketch, sketch.schedule(sketch.default()), target)
        yield run(loaded, feeds)[workload.dag.outputs[0]], exact


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("net", NETS)
def test_special_values_go_through_operators(net, target):
    build, data = NETS[net]
    for found, exact in results(build, data, named(target)):
        assert np.isnan(exact).any()
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_of_special_values(target):
    rows = np.array(
        [[np.nan, 1, 2, 0], [np.inf, 1, 2, 0], [-np.inf, 1, 2, 1e-40], [-0.0, 0, 1, 200]],
        np.float32,
    )
    for found, exact in results(softmax, rows, named(target)):
        np.testing.assert_allclose(found, exact, rtol=1e-6)
        assert np.isnan(found[:2]).all() and found[2, 0] == 0
