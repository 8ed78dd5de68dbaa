"""Measurers for the tests: short limits, own lock, own folder, the hostile builder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hostile import BUILDER

from engine.measure import MeasureOptions, Measurer
from engine.target import host


@pytest.fixture
def options(tmp_path: Path) -> MeasureOptions:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return MeasureOptions(
        timeout_s=20.0, compile_timeout_s=20.0, passes=2, finalists=1, final_passes=1,
        min_repeat_ms=0.2, memory_limit=512 << 20, builder=BUILDER, compile_workers=1,
        lock_path=str(tmp_path / "lock"), scratch=str(scratch),
    )  # fmt: skip


@pytest.fixture
def measurer(options: MeasureOptions) -> Iterator[Callable[..., Measurer]]:
    """Makes a measurer with these changes of the options; closes it at the end."""
    made: list[Measurer] = []

    def make(notify: Callable[[str], None] | None = None, **changes: Any) -> Measurer:
        made.append(Measurer(host(), 1, options=replace(options, **changes), notify=notify))
        return made[-1].__enter__()

    yield make
    for one in made:
        one.close()
