"""Finding models: from folders, globs and names to single models, each with a name of its own.

In: what a user wrote.  Out: built-in names and paths of ONNX files, each once, in order.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path

from engine.errors import ModelError
from tasks.networks import is_builtin


def find_models(wanted: Iterable[str]) -> tuple[str, ...]:
    """Folders give the .onnx files in them and below, globs those that they match, the rest itself.

    A folder or glob without a model gives nothing.  Raises ModelError if nothing is found at all,
    and for an empty name.
    """
    found: dict[str, str] = {}
    texts = list(wanted)
    for text in texts:
        for model in _expand(text):
            found.setdefault(os.path.abspath(model), model)
    if not found:
        raise ModelError(
            "no models are found",
            where=", ".join(texts) or "(nothing given)",
            fix="Name ONNX files, folders or globs with some, or networks of `noctune zoo`.",
        )
    return tuple(found.values())


def _expand(text: str) -> list[str]:
    if not text.strip():
        raise ModelError("an empty name is no model", fix="`.` is the current folder.")
    if Path(text).is_dir():
        paths = sorted(Path(text).rglob("*.onnx"))
    elif has_magic(text) and not Path(text).exists():
        paths = [Path(p) for p in sorted(glob(text, recursive=True)) if p.endswith(".onnx")]
    else:
        return [text]
    return [str(path) for path in paths if path.is_file()]


def network_names(models: Sequence[str]) -> dict[str, str]:
    """Model -> name of its network: the file's stem, after the names of as many folders as it takes
    to tell the models apart.

    "a/model.onnx", "b/model.onnx", "c/net.onnx" --> "a-model", "b-model", "net"
    """
    parts = {model: _parts(model) for model in models}
    depth = dict.fromkeys(models, 1)
    while True:
        names = {model: "-".join(parts[model][-depth[model] :]) for model in models}
        counts = Counter(names.values())
        alike = [m for m in models if counts[names[m]] > 1 and depth[m] < len(parts[m])]
        if not alike:
            return names
        for model in alike:
            depth[model] += 1


def _parts(model: str) -> tuple[str, ...]:
    if is_builtin(model):
        return (model,)
    path = Path(model).absolute()
    return (*path.parent.parts[1:], path.stem)
