"""Databases before a command begins: there already, or possible to make.

In: a database's URL.  Out: an open store, or an error.
"""

from __future__ import annotations

from pathlib import Path

from db.connect import connect, is_memory, parse_url
from db.store import Store, open_store
from engine.errors import StoreError
from engine.files import check_writable


def open_existing(url: str) -> Store:
    """Open the store at `url`: looking into a database must not make an empty one.

    Raises StoreError, also if it is a file that does not exist.
    """
    path = _missing_file(url)
    if path is not None:
        raise StoreError(
            "there is no such database",
            where=url,
            fix="Name one with --db, or tune something first.",
        )
    return open_store(url)


def open_or_empty(url: str) -> Store:
    """Open the store at `url`; where no file is yet, an empty store in memory.

    For what goes without records, but would have something to note: an empty database file in the
    wrong folder would hide the mistake.  Raises StoreError where none could be made either.
    """
    if _missing_file(url) is None:
        return open_store(url)
    connect(url).dispose()
    return open_store("memory:")


def check_store(url: str) -> None:
    """Raises StoreError or NoctuneError unless the store can be opened; makes nothing."""
    path = _missing_file(url)
    if path is None:
        open_store(url).close()
    else:
        check_writable(path)


def store_files(url: str) -> tuple[Path, ...]:
    """The database's file, if it is one: what no output may overwrite."""
    if not url.strip() or is_memory(url):
        return ()
    parsed = parse_url(url)
    return (Path(parsed.database or ""),) if parsed.get_backend_name() == "sqlite" else ()


def _missing_file(url: str) -> Path | None:
    """The path of a database file that does not exist."""
    return next((path for path in store_files(url) if not path.exists()), None)
