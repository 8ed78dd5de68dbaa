"""What the pages' examples need: a folder of their own, with the files that they name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import zoo

SMALL = "mlp"
"""Every network of the examples is this one; only the names in the pages are larger."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., int]:
    """Run `noctune WORDS`; fails with what was printed unless the command succeeds."""
    from flows.cli import main

    def call(*words: str) -> int:
        code = main(list(words))
        printed = capsys.readouterr()
        assert code == 0, f"noctune {' '.join(words)}\n{printed.out}{printed.err}"
        return code

    return call


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which resnet-18 and resnet-50 are files, and small."""
    import onnx

    folder = tmp_path_factory.mktemp("workplace")
    model = zoo.build(SMALL)
    for name in ("resnet-18", "resnet-50"):
        onnx.save(model, folder / name)  # a file comes before the built-in network of its name
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.savez(folder / "image.npz", **{model.graph.input[0].name: image})
    return folder


@pytest.fixture
def here(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test runs in that folder, with nothing set from outside."""
    monkeypatch.chdir(workplace)
    for name in [n for n in os.environ if n.startswith("NOCTUNE_")]:
        monkeypatch.delenv(name)
    return workplace
