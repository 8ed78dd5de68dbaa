"""One tuner at a time: a lock file that every measuring process of this machine takes.

The lock is the kernel's (`flock`), so it vanishes with its holder.  The file's text says who
holds it.  All users share the machine's cores, and so the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator

from engine.errors import NoctuneError

_POLL_S = 0.1
_REMIND_S = 60.0


class BusyError(NoctuneError):
    """Another tuner has the machine, and whoever waited for it waits no longer."""


def never() -> bool:
    """Wait as long as it takes."""
    return False


def default_path() -> str:
    """The same for all users, whatever TMPDIR says, so that all tuners agree."""
    return "/tmp/noctune-measure.lock"


@contextlib.contextmanager
def machine_lock(
    path: str | None, notify: Callable[[str], None], give_up: Callable[[], bool] = never
) -> Iterator[None]:
    """Hold the machine while the block runs; says once a minute for whom it waits.

    Raises BusyError if `give_up` says so before the machine is free.
    """
    file = path or default_path()
    descriptor = open_lock(file, "measuring")
    try:
        _wait(descriptor, file, notify, give_up)
        sign(descriptor, " ".join(sys.argv)[:200])
        yield
    finally:
        os.close(descriptor)


def open_lock(file: str, name: str) -> int:
    """A descriptor of the lock file, which is made if need be; every user may lock it.

    Raises NoctuneError, about "the `name` lock", for what is no plain file.
    """
    try:
        descriptor = _open(file)
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:  # a link may lead to any file
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a plain file with one name")
        return descriptor
    except OSError as error:
        raise NoctuneError(
            f"cannot open the {name} lock", where=file, why=error.strerror or str(error),
            fix="It must be a plain file that everybody may write; once removed it is made again.",
        ) from error  # fmt: skip


def _open(file: str) -> int:
    """In /tmp the kernel may refuse O_CREAT for a file of another user: it comes second."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(FileNotFoundError):
        return _open_existing(file, flags)
    try:
        descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return _open_existing(file, flags)
    os.fchmod(descriptor, 0o666)  # whatever the umask says
    return descriptor


def _open_existing(file: str, flags: int) -> int:
    """For reading only where the rights allow no more: that is enough for a lock."""
    try:
        return os.open(file, flags)
    except PermissionError:
        return os.open(file, flags & ~os.O_RDWR)


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
        holder = holder_of(descriptor)
        if give_up():
            raise BusyError(
                "another tuner has the machine", where=file, why=holder, fix="Run again later."
            )
        if time.monotonic() - told > _REMIND_S:
            told = time.monotonic()
            notify(f"waiting for another tuner to finish measuring ({holder}, {file})")
        time.sleep(_POLL_S)


def holder_of(descriptor: int) -> str:
    """What the holder wrote, without what a terminal would obey."""
    with contextlib.suppress(OSError):
        text = os.pread(descriptor, 300, 0).decode(errors="replace").strip()
        return "".join(c if c.isprintable() else "?" for c in text) or "unknown"
    return "unknown"


def sign(descriptor: int, more: str) -> None:
    """Write who holds the lock; a full disk must not stop the measuring."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}: {more}\n".encode(), 0)
