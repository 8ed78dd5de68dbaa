"""One tuner at a time: a lock file that every measuring process of this machine takes.

The lock is the kernel's (`flock`), so it vanishes with its holder.  The file's text says who
holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.errors import NoctuneError

_POLL_S = 0.1
_REMIND_S = 60.0


class BusyError(NoctuneError):
    """Another tuner has the machine, and whoever waited for it waits no longer."""


def never() -> bool:
    """Wait as long as it takes."""
    return False


def default_path() -> str:
    """`/tmp/noctune-<uid>.measure.lock`, whatever TMPDIR says, so that all tuners agree."""
    return f"/tmp/noctune-{os.getuid()}.measure.lock"


@contextlib.contextmanager
def machine_lock(
    path: str | None, notify: Callable[[str], None], give_up: Callable[[], bool] = never
) -> Iterator[None]:
    """Hold the machine while the block runs; says once a minute for whom it waits.

    Raises BusyError if `give_up` says so before the machine is free.
    """
    file = path or default_path()
    descriptor = _open(file)
    try:
        _wait(descriptor, file, notify, give_up)
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def _open(file: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(file, flags, 0o600)
    except OSError as error:
        raise NoctuneError(
            "cannot open the measuring lock", where=file, why=error.strerror or str(error),
            fix="Name a lock file on a local, writable file system.",
        ) from error  # fmt: skip


def _wait(
    descriptor: int, file: str, notify: Callable[[str], None], give_up: Callable[[], bool]
) -> None:
    told = float("-inf")
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        holder = _holder(file)
        if give_up():
            raise BusyError(
                "another tuner has the machine", where=file, why=holder, fix="Run again later."
            )
        if time.monotonic() - told > _REMIND_S:
            told = time.monotonic()
            notify(f"waiting for another tuner to finish measuring ({holder}, {file})")
        time.sleep(_POLL_S)


def _holder(file: str) -> str:
    with contextlib.suppress(OSError):
        return Path(file).read_text(encoding="utf-8", errors="replace").strip() or "unknown"
    return "unknown"


def _sign(descriptor: int) -> None:
    """Write who holds the lock; a full disk must not stop the measuring."""
    text = f"process {os.getpid()}: {' '.join(sys.argv)[:200]}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
