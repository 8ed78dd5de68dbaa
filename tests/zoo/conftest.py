"""Runs the tests of the built-in networks over the whole registry."""

from __future__ import annotations

import onnx
import pytest

from engine import zoo

QUICK = frozenset(
    {
        "resnet-18",
        "resnet-50",
        "resnet-18-v1",
        "mobilenet",
        "mobilenet-v2",
        "squeezenet_v1.1",
        "mlp",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs every test that asks for a `network` over the whole registry."""
    if "network" not in metafunc.fixturenames:
        return
    metafunc.parametrize(
        "network",
        [
            pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
            for name in zoo.names()
        ],
        scope="module",
    )


@pytest.fixture(scope="module")
def model(network: str) -> onnx.ModelProto:
    """The network at batch 1; the tests of one network come one after another."""
    return zoo.build(network)
