"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.errors import NoctuneError
from tasks.files import check_writable, replacing


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    goal = tmp_path / "out.bin"
    with replacing(goal) as path:
        path.write_text("new")
        assert not goal.exists()
    assert goal.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["out.bin"]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    goal = tmp_path / "out.bin"
    goal.write_text("old")
    with pytest.raises(RuntimeError), replacing(goal) as path:
        path.write_text("half")
        raise RuntimeError
    assert goal.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.bin"]


def test_where_no_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(NoctuneError, match="folder"):
        check_writable(tmp_path)
    with pytest.raises(NoctuneError, match="mkdir -p"):
        check_writable(tmp_path / "no" / "file")


def test_a_device_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NoctuneError, match="device or a pipe"), replacing(pipe):
        pass
    assert pipe.is_fifo()
