"""Network files: one file that holds a compiled network.

In: a program, object code, weights.  Out: a file, and all of that again; docs/network-format.md
describes the bytes.  Reading needs neither the tuner's database nor the onnx package.  The weights
are read into huge pages where the system has them, else mapped.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelError, NoctuneError
from engine.files import replacing
from engine.runtime.buffers import huge_zeros
from engine.runtime.program import Program, from_json, to_json

MAGIC = b"NOCTUNE\x00"
VERSION = 2
PAGE = 4096
_HEADER = struct.Struct("<8sIIQQ32s")
_REBUILD = "Compile the network again."


@dataclass(frozen=True)
class NetworkImage:
    """What a file holds; `weights` starts on a page."""

    program: Program
    code: tuple[bytes, ...]
    weights: NDArray[np.uint8]


def write_network(path: str | Path, image: NetworkImage) -> None:
    """Write the file beside its place, then rename it: never half a file.

    Equal networks give equal bytes.  NoctuneError if the folder cannot be written or is full.
    """
    path = Path(path)
    parts = _parts(image)
    manifest, offsets = _manifest(image)
    end = offsets[-1] + len(parts[-1])
    header = _HEADER.pack(
        MAGIC, VERSION, _HEADER.size, len(manifest), end, hashlib.sha256(manifest).digest()
    )
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(header + manifest)
            for offset, part in zip(offsets, parts, strict=True):
                file.write(b"\0" * (offset - file.tell()))
                file.write(part)
    except OSError as error:
        raise NoctuneError(
            "the network cannot be written", where=str(path), why=error.strerror or str(error),
            fix="Choose a folder that can be written and has room.",
        ) from error  # fmt: skip


def _parts(image: NetworkImage) -> list[bytes | memoryview]:
    return [*image.code, image.weights.data]


def _manifest(image: NetworkImage) -> tuple[bytes, list[int]]:
    """The manifest's bytes, and the offset of each section.  The offsets stand in the manifest, so
    its length is found by trying until nothing moves."""
    parts = _parts(image)
    digests = [hashlib.sha256(p).hexdigest() for p in parts]
    program = to_json(image.program)
    length = 0
    while True:
        offsets = _offsets(_HEADER.size + length, [len(p) for p in parts])
        sections = [
            {"offset": o, "size": len(p), "sha256": d}
            for o, p, d in zip(offsets, parts, digests, strict=True)
        ]
        data = {"program": program, "code": sections[:-1], "weights": sections[-1]}
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        if len(text) <= length:
            return text.ljust(length), offsets
        length = len(text)


def _offsets(start: int, sizes: Sequence[int]) -> list[int]:
    """Each section on a boundary of 64 bytes, the last (weights) on a page."""
    found = []
    for i, size in enumerate(sizes):
        step = PAGE if i == len(sizes) - 1 else 64
        start = -(-start // step) * step
        found.append(start)
        start += size
    return found


def read_network(path: str | Path) -> NetworkImage:
    """The network of a file, every byte checked.

    ModelError if it is missing, no network file, cut short, damaged or of a newer version.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise ModelError("this is a folder", where=str(path), fix="Give a network file.")
        with path.open("rb") as file:
            return _read(path, file, size)
    except OSError as error:
        raise ModelError(
            "the network cannot be read", where=str(path), why=error.strerror or str(error)
        ) from error


def _read(path: Path, file: Any, size: int) -> NetworkImage:
    head = file.read(_HEADER.size)
    if head[: len(MAGIC)] != MAGIC[: len(head)] or not head:
        raise ModelError("this is not a compiled network", where=str(path),
                         fix="`noctune compile MODEL -o NET` makes one.")  # fmt: skip
    if len(head) < _HEADER.size:
        raise _damaged(path, "the file is cut short")
    _, version, header_size, length, total, digest = _HEADER.unpack(head)
    if version > VERSION:
        raise ModelError(f"the file has format {version}, this program reads {VERSION}",
                         where=str(path), fix="Use a newer noctune, or compile again.")  # fmt: skip
    if version < VERSION:
        raise ModelError(f"the file has format {version}, this program reads {VERSION}",
                         where=str(path), fix="Compile the network again.")  # fmt: skip
    if header_size != _HEADER.size:
        raise _damaged(path, "the header makes no sense")
    if size < total or size < header_size + length:
        raise _damaged(path, f"the file is cut short: {size} bytes of {total}")
    if size > total:
        raise _damaged(path, f"the file has {size - total} bytes too many")
    manifest = file.read(length)
    if hashlib.sha256(manifest).digest() != digest:
        raise _damaged(path, "the checksum of the manifest is wrong")
    try:
        data = json.loads(manifest)
        program = from_json(data["program"])
        code = tuple(_section(path, file, "code", part) for part in data["code"])
        weights = _weights(path, file, data["weights"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, f"the manifest lacks something: {error!r}") from error
    return NetworkImage(program, code, weights)


def _section(path: Path, file: Any, name: str, part: Mapping[str, Any]) -> bytes:
    file.seek(int(part["offset"]))
    data: bytes = file.read(int(part["size"]))
    _check(path, name, data, part["sha256"])
    return data


def _weights(path: Path, file: Any, part: Mapping[str, Any]) -> NDArray[np.uint8]:
    offset, size = int(part["offset"]), int(part["size"])
    weights = huge_zeros(size)
    if weights is None:
        weights = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(size,))
    else:
        file.seek(offset)
        if file.readinto(weights.data) != size:
            raise _damaged(path, "the file is cut short")
        weights.flags.writeable = False
    _check(path, "weights", weights.data, part["sha256"])
    return weights.view(np.ndarray)


def _check(path: Path, name: str, data: bytes | memoryview, digest: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        raise _damaged(path, f"the checksum of the {name} is wrong")


def _damaged(path: Path, why: str) -> ModelError:
    return ModelError("the network file is damaged", where=str(path), why=why, fix=_REBUILD)
