"""The night's lock: one holder at a time, free as soon as its holder is dead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engine.errors import NoctuneError
from engine.target import host
from tasks.machine import lock_folder, machine_info, night_lock

HOLDER = """
import sys, time
from pathlib import Path
from tasks.machine import night_lock
with night_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_night_ends_at_once_and_says_why(tmp_path: Path) -> None:
    """G4-03: a job that a clock change starts twice runs once."""
    with night_lock(tmp_path), pytest.raises(NoctuneError) as caught, night_lock(tmp_path):
        pass
    assert "another nightly run has this machine" in str(caught.value)
    assert "since" in caught.value.why


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    """G4-01: the next night starts though the last one was killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(NoctuneError, match=str(holder.pid)), night_lock(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with night_lock(tmp_path):
        pass
    with night_lock(tmp_path):
        pass


def test_there_is_one_lock_whatever_tmpdir_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lock_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert lock_folder() == before == Path("/tmp")


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "noctune-night.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NoctuneError, match="cannot open the night's lock"), night_lock(tmp_path):
        pass


def test_machine_is_described() -> None:
    found = machine_info(host())
    assert found.cores == host().cores and found.hostname and found.cpu_model
    assert found.key == machine_info(host()).key
