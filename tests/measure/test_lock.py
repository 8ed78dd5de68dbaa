from __future__ import annotations

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


def test_default_path_does_not_depend_on_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_path()
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
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
