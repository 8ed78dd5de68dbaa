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

_SQLITE = b"SQLite format 3\0"
"""The first bytes of a database file."""


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


def check_writable(path: str | Path, *inputs: str | Path) -> None:
    """Raises NoctuneError unless a file can be made at `path`; for the start of a long run.

    None of the `inputs`, no SQLite database and nothing that lies beside one is ever overwritten.
    """
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
        raise NoctuneError(
            f"no file can be made in '{folder}'",
            where=str(goal),
            why="this user may not write there",
            fix="Name another folder, or change its permissions.",
        )
    names = _with_database(goal)
    if any(_is_same(name, Path(source)) for name in names for source in inputs):
        raise NoctuneError(
            "this output would overwrite another file that the command uses",
            where=str(goal),
            fix="Name another file.",
        )
    if any(map(_is_database, names)):
        raise NoctuneError(
            "this is a SQLite database or part of one, and is not overwritten",
            where=str(goal),
            fix="Name another file, or delete it first.",
        )


def _with_database(path: Path) -> tuple[Path, ...]:
    """The file, without links, and the SQLite database whose log or index it would be."""
    real = Path(os.path.realpath(path))
    ends = (end for end in ("-wal", "-shm", "-journal") if real.name.endswith(end))
    return (real, *(real.with_name(real.name.removesuffix(end)) for end in ends))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return str(one) == os.path.realpath(other) or one.samefile(other)
    except OSError:
        return False


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
