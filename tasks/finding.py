"""Finding models: from folders, globs and names to a list of single models.

In: what a user wrote.  Out: built-in names and paths of ONNX files, each once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path

from engine.errors import ModelError


def find_models(wanted: Iterable[str]) -> tuple[str, ...]:
    """Folders give the .onnx files in them and below, globs what they match, the rest itself.

    A folder or glob without a model gives nothing.  Raises ModelError if nothing is found at all.
    """
    found: dict[str, None] = {}
    texts = list(wanted)
    for text in texts:
        for model in _expand(text):
            found.setdefault(model)
    if not found:
        raise ModelError(
            "no models are found",
            where=", ".join(texts) or "(nothing given)",
            fix="Name ONNX files, folders or globs with some, or networks of `noctune zoo`.",
        )
    return tuple(found)


def _expand(text: str) -> list[str]:
    if Path(text).is_dir():
        return [str(p) for p in sorted(Path(text).rglob("*.onnx")) if p.is_file()]
    if has_magic(text) and not Path(text).exists():
        return sorted(p for p in glob(text, recursive=True) if Path(p).is_file())
    return [text]
