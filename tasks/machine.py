"""This machine: what the database notes about it, and the lock that keeps nights apart.

The lock is a `flock` on a file: the kernel frees it when its holder dies, however it dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from db.values import MachineInfo
from engine.errors import NoctuneError
from engine.target import Target


def machine_info(target: Target) -> MachineInfo:
    """Host name, CPU model, cores and caches; the key is equal for equal machines."""
    cpu = _cpu_model() or target.cpu
    host = platform.node()
    digest = hashlib.sha256(f"{host}|{cpu}|{target.cores}".encode()).hexdigest()[:16]
    return MachineInfo(
        key=digest,
        hostname=host,
        cpu_model=cpu,
        cores=target.cores,
        features=target.features,
        caches={"1": target.l1, "2": target.l2, "3": target.l3},
    )


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def lock_folder() -> Path:
    """One for all users of the machine: they share its cores."""
    return Path(tempfile.gettempdir())


@contextmanager
def night_lock(folder: Path | None = None) -> Iterator[None]:
    """Held for a whole nightly run.  Raises NoctuneError at once if another run has it."""
    path = (folder or lock_folder()) / "noctune-night.lock"
    handle = _open(path)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
            raise NoctuneError(
                "another nightly run has this machine",
                where=str(path),
                why=holder or "its holder did not say who it is",
                fix="Wait until it has ended; one that was killed holds nothing.",
            ) from None
        os.ftruncate(handle, 0)
        began = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(handle, f"process {os.getpid()}, since {began}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(PermissionError):
        os.fchmod(handle, 0o666)
    return handle
