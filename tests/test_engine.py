"""The facade: every name it promises is there, and importing it is light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import engine

HEAVY = ("onnx", "onnxruntime", "llvmlite", "lightgbm", "prefect", "sqlalchemy", "numpy")


@pytest.mark.parametrize("name", engine.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    value = getattr(engine, name)
    assert value is getattr(engine, name)
    assert name in dir(engine)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tune_all'"):
        _ = engine.tune_all  # type: ignore[attr-defined]


def test_importing_it_loads_nothing_heavy() -> None:
    program = f"import sys, engine; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        cwd=Path(__file__).resolve().parents[1], timeout=60,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
