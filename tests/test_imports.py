"""The rules of the source tree: who may import whom, and how long a file may be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 500
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("engine", "db", "tasks", "flows")
    for path in (ROOT / folder).rglob("*.py")
)


def test_imports_go_one_way() -> None:
    """In a process of its own: the linter silences all loggers of the one it runs in."""
    script = "from importlinter.cli import lint_imports_command as lint; lint()"
    command = [sys.executable, "-c", script, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "Contracts: " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("source", SOURCES)
def test_file_is_short_enough_to_read(source: str) -> None:
    lines = (ROOT / source).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES, f"{source} has {len(lines)} lines: split it by purpose"
