"""What workers load and what they can reach."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import bad, good, search_task

from engine.measure import Measurer
from engine.measure.confine import lock_in
from engine.records import ErrorKind


def has_landlock(folder: Path) -> bool:
    """Tried in a child: a process cannot take it back."""
    child = os.fork()
    if child == 0:
        os._exit(0 if lock_in(str(folder)) else 1)
    return os.waitpid(child, 0)[1] == 0


def test_workers_load_little(measurer: Callable[..., Measurer]) -> None:
    (record,) = measurer().measure(search_task(), [bad("build_imports")])
    assert "imported: []" in record.message


def test_no_way_out_of_the_folder(measurer: Callable[..., Measurer], tmp_path: Path) -> None:
    if not has_landlock(tmp_path):
        pytest.skip("this kernel has no Landlock")
    maker = measurer()
    record, fine = maker.measure(search_task(), [bad("build_escape"), good()])
    assert record.error is ErrorKind.COMPILE_ERROR and "escaped: ['inside']" in record.message
    assert fine.valid
    assert not list(tmp_path.rglob("outside"))


def test_no_core_dumps_and_bounded_memory(measurer: Callable[..., Measurer]) -> None:
    maker = measurer()
    assert maker.measure(search_task(), [good()])[0].valid
    for pid in maker.pids:
        rows = [row.split() for row in Path(f"/proc/{pid}/limits").read_text().splitlines()]
        limits = {" ".join(row[:-3]): row[-3] for row in rows}
        assert limits["Max core file size"] == "0"
        assert int(limits["Max address space"]) > maker.options.memory_limit
