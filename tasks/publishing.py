"""Publishing: versions of a network in a folder, and an atomic link to the current one.

    FOLDER/NETWORK/versions/0007-2026-11-30T031500/NETWORK.net, report.json
    FOLDER/NETWORK/current -> versions/0007-2026-11-30T031500

In: a compiled file.  Out: the folder above.  `current` is swapped by rename: a reader sees the old
version or the new one, never none.  A process killed at any point leaves at most a folder whose
name starts with a dot, which the next publication removes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import NoctuneError

_VERSION = re.compile(r"(\d{4,})-.+")
_REPORT = re.compile(r"report(-.*)?\.html")


@dataclass(frozen=True, slots=True)
class Published:
    """One published version; `file` is the network, `report` what was noted with it."""

    name: str
    number: int
    folder: Path
    file: Path
    report: Mapping[str, Any]
    is_current: bool


def check_folder(folder: str | Path) -> None:
    """Raises NoctuneError unless a file can be made in the folder, or where it would be made."""
    if not str(folder).strip():
        raise NoctuneError("the folder to publish in has no name", fix="Name one with --folder.")
    home = Path(folder).absolute()
    there = next(path for path in (home, *home.parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise NoctuneError(
            "nothing can be published in this folder", where=str(folder),
            why=f"{there}: {error.strerror or error}",
            fix="Make it writable, or name another with --folder.",
        ) from error  # fmt: skip


def check_name(network: str) -> None:
    """Raises NoctuneError for what no network in the folder can be named."""
    if _REPORT.fullmatch(network):
        raise NoctuneError(
            f"no network can be named '{network}'", why="the night's report has this name",
            fix="Rename the model's file.",
        )  # fmt: skip
    if network in ("", ".", "..") or "/" in network:
        raise NoctuneError(
            f"'{network}' is not the name of a network",
            fix="Give the name alone; --folder DIR says where it is published.",
        )


def versions(folder: str | Path, network: str) -> tuple[Published, ...]:
    """The versions of a network, oldest first; empty if it was never published."""
    home = Path(folder) / network
    now = _current_name(home)
    found = []
    for path in _version_folders(home):
        found.append(
            Published(
                network,
                _number(path),
                path,
                path / f"{network}.net",
                _read_report(path),
                path.name == now,
            )
        )
    return tuple(found)


def current(folder: str | Path, network: str) -> Published | None:
    """The current version, None if there is none."""
    return next((v for v in versions(folder, network) if v.is_current), None)


def publish(
    folder: str | Path, network: str, file: str | Path, report: Mapping[str, Any], keep: int = 5
) -> Published:
    """Copy `file` in as the newest version and make it current; the `keep` newest stay.

    Raises NoctuneError if the folder cannot be written; the old version is current then.
    """
    home = Path(folder) / network
    _check_link(home)
    try:
        (home / "versions").mkdir(parents=True, exist_ok=True)
        sweep(home)
        number = max((_number(p) for p in _version_folders(home)), default=0) + 1
        name = f"{number:04d}-{time.strftime('%Y-%m-%dT%H%M%S')}"
        goal = _place(home, name, network, Path(file), report)
        _point(home, name)
        _prune(home, keep)
    except OSError as error:
        raise NoctuneError(
            "the network cannot be published", where=str(home), why=error.strerror or str(error),
            fix="See that the folder can be written to and has space; the records are stored, and "
            "the next night publishes the network.",
        ) from error  # fmt: skip
    return Published(network, number, goal, goal / f"{network}.net", report, True)


def rollback(
    folder: str | Path, network: str, to: int | None = None
) -> tuple[Published | None, Published]:
    """Make the version before the current one current (or number `to`); returns (from, to).

    Raises NoctuneError if there is no such version.
    """
    check_name(network)
    found = versions(folder, network)
    home = Path(folder) / network
    if not found:
        raise NoctuneError(f"'{network}' was never published", where=str(folder))
    _check_link(home)
    here = next((i for i, v in enumerate(found) if v.is_current), None)
    if to is None:
        goal = _before(found, here, home)
    else:
        named = [v for v in found if v.number == to]
        if not named:
            known = ", ".join(str(v.number) for v in found)
            raise NoctuneError(
                f"there is no version {to}", where=str(home), fix=f"There are: {known}."
            )
        goal = named[0]
    if not goal.file.is_file():
        raise NoctuneError(
            "the version's file is missing", where=str(goal.file),
            fix="Name another version with --to N; --list shows them.",
        )  # fmt: skip
    _point(home, goal.folder.name)
    return None if here is None else found[here], goal


def _before(found: tuple[Published, ...], here: int | None, home: Path) -> Published:
    if here is None:
        raise NoctuneError(
            "no version is current", where=str(home / "current"), why="there is no such link",
            fix=f"--to {found[-1].number} makes the newest version current.",
        )  # fmt: skip
    if here == 0:
        raise NoctuneError(
            "there is no older version", where=str(home),
            fix="`noctune rollback NETWORK --list` shows what there is.",
        )  # fmt: skip
    return found[here - 1]


def _place(home: Path, name: str, network: str, file: Path, report: Mapping[str, Any]) -> Path:
    hidden, goal = home / "versions" / f".{name}", home / "versions" / name
    hidden.mkdir()
    shutil.copyfile(file, hidden / f"{network}.net")
    text = json.dumps(report, indent=2, default=str)
    (hidden / "report.json").write_text(text, encoding="utf-8")
    for path in hidden.iterdir():
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    os.replace(hidden, goal)
    return goal


def _point(home: Path, name: str) -> None:
    """Swap the link; `name` is a folder in `versions`."""
    temporary = home / f".current-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("versions") / name)
    try:
        os.replace(temporary, home / "current")
    finally:
        temporary.unlink(missing_ok=True)


def _check_link(home: Path) -> None:
    path = home / "current"
    if path.is_dir() and not path.is_symlink():
        raise NoctuneError(
            "this is a folder, not a link to a version", where=str(path),
            fix="Move it away, then run again.",
        )  # fmt: skip


def _prune(home: Path, keep: int) -> None:
    now = _current_name(home)
    for path in _version_folders(home)[: -max(keep, 1)]:
        if path.name != now:
            shutil.rmtree(path, ignore_errors=True)


def sweep(home: Path) -> None:
    """Remove what a killed publication left in a network's folder."""
    for path in (home / "versions").glob(".*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in home.glob(".current-*"):
        with suppress(OSError):
            path.unlink()


def _version_folders(home: Path) -> list[Path]:
    found = [p for p in (home / "versions").glob("*") if _VERSION.fullmatch(p.name)]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    match = _VERSION.fullmatch(path.name)
    return int(match.group(1)) if match else 0


def _current_name(home: Path) -> str:
    try:
        return Path(os.readlink(home / "current")).name
    except OSError:
        return ""


def _read_report(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads((path / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
