"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from engine.errors import NoctuneError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name at the end; removed on any error.

    What a killed process of this machine left beside the same path is removed, too.  Raises
    NoctuneError where no file can be made.
    """
    goal = Path(path)
    check_writable(goal)
    prefix = f".{goal.name[:80]}.{platform.node()[:40]}."
    _sweep(goal.parent, prefix)
    handle, name = tempfile.mkstemp(prefix=f"{prefix}{os.getpid()}.", dir=goal.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, goal)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _sweep(folder: Path, prefix: str) -> None:
    for path in folder.glob(f"{escape(prefix)}*"):
        number = path.name.removeprefix(prefix).partition(".")[0]
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            with contextlib.suppress(OSError):
                path.unlink()


def check_writable(path: str | Path) -> None:
    """Raises NoctuneError unless a file can be made at `path`; for the start of a long run."""
    goal = Path(path)
    if goal.is_dir():
        raise NoctuneError("this is a folder, not a file", where=str(goal), fix="Name a file.")
    if goal.exists() and not goal.is_file():
        raise NoctuneError("this is a device or a pipe", where=str(goal), fix="Name a file.")
    folder = goal.parent
    if not folder.is_dir():
        raise NoctuneError(
            f"the folder '{folder}' does not exist",
            where=str(goal),
            fix=f"Make it first: mkdir -p {folder}",
        )
    if not os.access(folder, os.W_OK):
        raise NoctuneError(f"no file can be made in '{folder}'", where=str(goal))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
