"""What the tuner and its worker processes say to each other.

Messages are pickles with an 8-byte length in front, over two pipes of their own, so that whatever a
candidate prints cannot be taken for an answer.  A worker handles one message at a time: `Setup`
first, then jobs, each answered by `Done` or `Failed`.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from engine.graph.task import Workload
from engine.records import ErrorKind, Schedule, TimingMode
from engine.target import Target

_HEAD = struct.Struct("<Q")
_MAX_MESSAGE = 16 << 30
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Setup:
    """Who the worker is and what limits it lives under; `memory_limit` in bytes, `cores` are CPU
    numbers."""

    role: str
    plugin: str
    folder: str
    cores: tuple[int, ...]
    memory_limit: int
    longest_pause_s: float
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What all candidates of a search task share."""

    key: str
    workload: Workload
    target: Target
    threads: int
    timing_mode: TimingMode


@lru_cache(maxsize=8)
def problem_of(data: bytes) -> Problem:
    """A pickled problem, unpickled once."""
    problem = pickle.loads(data)
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True, slots=True)
class Compile:
    """Build one schedule; `problem` is a pickled `Problem`.  Done holds a `Built`."""

    problem: bytes
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled candidate: its kernel (without IR), object files, and seconds it took.

    `derived` names constants that are computed from others: name -> (transform, source).
    """

    kernel: Any
    code: bytes | tuple[bytes, ...]
    seconds: float = 0.0
    derived: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make a problem's inputs and reference, or take a known one.  Done holds the reference."""

    problem: bytes
    reference: Any = None


@dataclass(frozen=True, slots=True)
class Time:
    """Time candidate `number`; `built` is there if the worker does not hold it yet.

    Without `repeats` it is loaded, verified and tried.  `calls` is what a repeat took last time.
    Candidates below `first` are of former batches and may be forgotten.  Done holds a `Timed`.
    """

    number: int
    schedule: Schedule
    built: Built | None
    repeats: int
    calls: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one call for each repeat, how many repeats were disturbed, calls per repeat.

    `dropped` lists candidates that the worker no longer holds.
    """

    times: tuple[float, ...]
    disturbed: int
    calls: int
    max_rel_error: float
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """Time the probe kernel.  Done holds its seconds."""


@dataclass(frozen=True, slots=True)
class Done:
    """A job's result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A job failed but the worker goes on."""

    kind: ErrorKind
    message: str
    extra: Mapping[str, Any] = field(default_factory=dict)


def pack(message: object) -> bytes:
    """A message as it goes through a pipe."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(data)) + data


def send(fd: int, message: object) -> None:
    """Write a message to a blocking pipe."""
    view = memoryview(pack(message))
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]


def receive(fd: int) -> Any:
    """The next message of a blocking pipe; EOFError at its end."""
    (length,) = _HEAD.unpack(_exactly(fd, _HEAD.size))
    return pickle.loads(_exactly(fd, length))


def _exactly(fd: int, count: int) -> bytearray:
    data = bytearray()
    while len(data) < count:
        part = os.read(fd, min(count - len(data), _CHUNK))
        if not part:
            raise EOFError
        data += part
    return data


class Inbox:
    """Puts messages together from the pieces that a non-blocking pipe gives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: bytes) -> list[Any]:
        """Messages complete with this piece; ValueError if this is not our protocol."""
        self._data += piece
        found = []
        while len(self._data) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._data)
            if length > _MAX_MESSAGE:
                raise ValueError("not a message")
            if len(self._data) < _HEAD.size + length:
                break
            body = bytes(memoryview(self._data)[_HEAD.size : _HEAD.size + length])
            del self._data[: _HEAD.size + length]
            found.append(_load(body))
        return found


def _load(body: bytes) -> Any:
    try:
        return pickle.loads(body)
    except Exception as error:
        raise ValueError("not a message") from error
