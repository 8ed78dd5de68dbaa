"""This machine: what the database notes about it, and the lock that keeps nights apart.

The lock is a `flock` on a file: the kernel frees it when its holder dies, however it dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from db.values import MachineInfo
from engine.errors import NoctuneError
from engine.measure.lock import holder_of, open_lock, sign
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
    """One for all users of the machine, who share its cores, whatever TMPDIR says."""
    return Path("/tmp")


@contextmanager
def night_lock(folder: Path | None = None) -> Iterator[None]:
    """Held for a whole nightly run.  Raises NoctuneError at once if another run has it."""
    path = str((folder or lock_folder()) / "noctune-night.lock")
    handle = open_lock(path, "night's")
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NoctuneError(
                "another nightly run has this machine",
                where=path,
                why=holder_of(handle),
                fix="Wait until it has ended; one that was killed holds nothing.",
            ) from None
        sign(handle, f"since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        yield
    finally:
        os.close(handle)
