"""Golden files: text that is compared with a file beside the tests, or replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest


def compare(text: str, path: Path, config: pytest.Config) -> None:
    """Asserts that the file holds `text`; writes it with --update-golden."""
    if config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return
    assert path.exists(), f"{path.name} is missing; make it with --update-golden"
    assert text == path.read_text(), f"{path.name} differs; if that is wanted: --update-golden"
