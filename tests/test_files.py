"""Files appear whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import NoctuneError
from engine.files import check_writable, replacing

ROOT = Path(__file__).resolve().parents[1]
LEAVE = """
import sys, time
from engine.files import replacing
with replacing(sys.argv[1]):
    print("made", flush=True)
    time.sleep(60)
"""


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


def test_inputs_are_not_overwritten(tmp_path: Path) -> None:
    source, other = tmp_path / "model.onnx", tmp_path / "other"
    source.write_text("model")
    (tmp_path / "link").symlink_to(source)
    os.link(source, tmp_path / "same")
    for name in ("model.onnx", "link", "same", f"../{tmp_path.name}/model.onnx", "model.onnx-wal"):
        with pytest.raises(NoctuneError, match="would overwrite"):
            check_writable(tmp_path / name, other, source)
    with pytest.raises(NoctuneError, match="would overwrite"):
        check_writable(tmp_path / "new", tmp_path / "new")  # neither is there yet
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    check_writable(tmp_path / "new", other, source, tmp_path / "loop")


@pytest.mark.parametrize("name", ["a.sqlite", "link", "a.sqlite-wal", "a.sqlite-shm", "link-wal"])
def test_databases_are_not_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"SQLite format 3\0 and so on")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "link-wal").symlink_to(tmp_path / "a.sqlite-wal")
    with pytest.raises(NoctuneError, match="SQLite database"), replacing(tmp_path / name):
        pass
    assert path.read_bytes() == b"SQLite format 3\0 and so on"


def test_a_folder_that_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NoctuneError, match=r"may not write there.*Name another folder"):
        check_writable(tmp_path / "file")


def test_a_device_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NoctuneError, match="device or a pipe"), replacing(pipe):
        pass
    assert pipe.is_fifo()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", LEAVE, str(tmp_path / "out.bin")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert killed.stdout is not None and killed.stdout.readline() == "made\n"
    (left,) = tmp_path.iterdir()
    with replacing(tmp_path / "out.bin") as path:
        assert left.exists(), "its process lives"
        path.write_text("second")
    killed.kill()
    killed.communicate()
    (tmp_path / ".out.bin.other-machine.1.x").write_text("not ours")
    with replacing(tmp_path / "out.bin") as path:
        path.write_text("third")
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [".out.bin.other-machine.1.x", "out.bin"]
