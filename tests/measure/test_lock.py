from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from engine.errors import NoctuneError
from engine.measure.lock import BusyError, default_path, machine_lock


def test_lock_is_exclusive_and_says_for_whom_it_waits(tmp_path: Path) -> None:
    path, order, lines = str(tmp_path / "lock"), list[str](), list[str]()
    told = threading.Event()

    def second() -> None:
        with machine_lock(path, lambda line: (lines.append(line), told.set())[0]):
            order.append("second")

    with machine_lock(path, lines.append):
        thread = threading.Thread(target=second)
        thread.start()
        assert told.wait(10)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert len(lines) == 1 and "process" in lines[0] and path in lines[0]


def test_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), machine_lock(path, print):
        raise ZeroDivisionError
    with machine_lock(path, pytest.fail):
        pass


def test_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(NoctuneError, match="measuring lock"), machine_lock(str(tmp_path), print):
        pass


def test_lock_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with (
        pytest.raises(NoctuneError, match="measuring lock"),
        machine_lock(str(tmp_path / "link"), print),
    ):
        pass
    assert not (tmp_path / "target").exists()


def test_lock_with_two_names_is_refused(tmp_path: Path) -> None:
    """Whoever links it to a file of ours would have us overwrite that."""
    (tmp_path / "mine").write_text("precious")
    os.link(tmp_path / "mine", tmp_path / "lock")
    with (
        pytest.raises(NoctuneError, match="not a plain file"),
        machine_lock(str(tmp_path / "lock"), print),
    ):
        pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_all_users_share_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask; and the kernel refuses O_CREAT for a file of somebody else in /tmp."""
    path, ways, opened = str(tmp_path / "lock"), list[int](), os.open
    before = os.umask(0o077)
    try:
        with machine_lock(path, print):
            assert os.stat(path).st_mode & 0o777 == 0o666
    finally:
        os.umask(before)

    def theirs(file: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_CREAT | os.O_RDWR):
            raise PermissionError(13, "Permission denied", file)
        ways.append(flags)
        return opened(file, flags, mode)

    monkeypatch.setattr(os, "open", theirs)
    with (
        machine_lock(path, print),
        pytest.raises(BusyError, match="process"),
        machine_lock(path, print, lambda: True),
    ):
        pytest.fail("the lock is held")
    assert len(ways) == 2


def test_what_a_lock_says_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with machine_lock(path, print):
        Path(path).write_text("process 1\x1b[2J" + "x" * 10_000)
        with pytest.raises(BusyError) as caught, machine_lock(path, print, lambda: True):
            pytest.fail("the lock is held")
    assert "process 1?[2Jx" in caught.value.why and len(caught.value.why) <= 300


def test_default_path_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_path()
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert default_path() == before


def test_nobody_waits_longer_than_told(tmp_path: Path) -> None:
    path, asked, lines = str(tmp_path / "lock"), list[int](), list[str]()

    def give_up() -> bool:
        asked.append(1)
        return len(asked) == 3

    with (
        machine_lock(path, lines.append),
        pytest.raises(BusyError, match="another tuner"),
        machine_lock(path, lines.append, give_up),
    ):
        pytest.fail("the lock is held")
    assert len(asked) == 3 and len(lines) == 1
    with machine_lock(path, lines.append, lambda: True):
        assert len(lines) == 1, "a free lock is taken whatever the time"
