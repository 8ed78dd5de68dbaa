"""The rules of the source tree: who may import whom, and how long a file may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 500
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("engine", "db", "tasks", "flows")
    for path in (ROOT / folder).rglob("*.py")
)


def test_imports_go_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


@pytest.mark.parametrize("source", SOURCES)
def test_file_is_short_enough_to_read(source: str) -> None:
    lines = (ROOT / source).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES, f"{source} has {len(lines)} lines: split it by purpose"
