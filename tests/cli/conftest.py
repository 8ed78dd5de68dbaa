"""Running commands in this process, and a small compiled network to run them on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `noctune ARGS`."""

    def call(*args: object) -> Result:
        try:
            code = main([str(a) for a in args])
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled `mlp`, made without records."""
    from tasks.building import compile_model

    folder = tmp_path_factory.mktemp("compiled")
    compile_model("mlp", str(folder / "mlp.net"), db=str(folder / "noctune.sqlite"))
    return folder / "mlp.net"
