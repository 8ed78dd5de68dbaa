"""Temporary folders of the workers, removed at any end.

Each tuner has one folder, which it holds locked.  A small shell waits on a pipe for the tuner's
end and removes the folder then, even if the tuner is killed; whatever survives both is swept by
the next tuner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from engine.errors import NoctuneError

PREFIX = "noctune-measure-"
_GRACE_S = 10.0
"""A folder younger than this may be one that its tuner has not locked yet."""


class Scratch:
    """A tuner's folder with one folder for each worker."""

    def __init__(self, base: str | None = None) -> None:
        self.base = Path(base or tempfile.gettempdir()).resolve()
        sweep(self.base)
        try:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.base))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NoctuneError(
                "cannot make a temporary folder", where=str(self.base),
                why=error.strerror or str(error), fix="Free some space or set TMPDIR.",
            ) from error  # fmt: skip
        self._janitor = _start_janitor(self.path)

    def folder(self, name: str) -> str:
        """Where worker `name` may write; made by `renew`."""
        return str(self.path / name)

    def renew(self, folder: str) -> None:
        """An empty folder in place of whatever was left there; none if the disk is full."""
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)

    def close(self) -> None:
        """Remove the folder; harmless if repeated."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1
        janitor, self._janitor = self._janitor, None
        if janitor is not None:
            janitor.communicate(b"done\n")


def _start_janitor(folder: Path) -> subprocess.Popen[bytes] | None:
    script = 'trap "" HUP INT TERM; read -r _ && exit; sleep 0.2; rm -rf -- "$1"'
    command = ["/bin/sh", "-c", script, "sh"]
    try:
        return subprocess.Popen(
            [*command, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
        )  # fmt: skip
    except OSError:
        return None


def sweep(base: Path) -> list[Path]:
    """Remove the folders of tuners that are gone; gives those removed."""
    removed = []
    for folder in base.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if _stale(folder):
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _stale(folder: Path) -> bool:
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return False
    if time.time() - info.st_mtime < _GRACE_S:
        return False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
