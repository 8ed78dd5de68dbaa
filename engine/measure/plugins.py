"""What builds and what runs candidates: two tables and how a row is found.

A builder is `build(problem, schedule) -> Built`; a runner is a class that fulfils `Runner`.  Adding
one is a file and a row here; tests/measure/test_plugins.py runs over both tables.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.errors import NoctuneError
from engine.measure.protocol import Built, Problem
from engine.records import ErrorKind, Schedule

BUILDERS: dict[str, str] = {"llvm": "engine.measure.build:build"}
RUNNERS: dict[str, str] = {"native": "engine.measure.native:NativeRunner"}


class CandidateError(Exception):
    """A candidate failed in a way that has a name; becomes the record's error."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Sample:
    """Some calls in a row: seconds timed in all, wall and CPU seconds of the whole.

    `median` is that of one call, 0.0 if calls were not timed singly.
    """

    seconds: float
    wall: float
    cpu: float
    median: float = 0.0


class Builder(Protocol):
    """Compiles one candidate; raises ScheduleError for an illegal schedule."""

    def __call__(self, problem: Problem, schedule: Schedule) -> Built: ...


class Runner(Protocol):
    """Loads, checks and times candidates inside the measuring worker."""

    def __init__(self, options: Mapping[str, Any], cores: tuple[int, ...]) -> None: ...

    def prepare(self, problem: Problem, reference: Any) -> Any:
        """Turn to a problem; gives its reference result, equal to `reference` if that is known."""

    def load(self, number: int, schedule: Schedule, built: Built) -> tuple[float, float]:
        """Load and run once; (relative error, seconds).  CandidateError if it is wrong."""

    def sample(self, number: int, calls: int) -> Sample:
        """Time that many calls."""

    def check(self, number: int) -> None:
        """After timing: CandidateError if the candidate has done damage."""

    def drop(self, number: int) -> None:
        """Forget a candidate."""

    def held_bytes(self) -> int:
        """Bytes of constants kept for the loaded candidates."""

    def probe(self) -> float:
        """Seconds of a fixed piece of work that tells whether the machine is quiet."""


def find(name: str, table: Mapping[str, str]) -> Any:
    """The object behind a key of the table, "module:name" or "file.py:name"."""
    place, _, attribute = table.get(name, name).rpartition(":")
    if not place:
        raise NoctuneError(f"unknown plug-in '{name}'", fix=f"Use one of {', '.join(table)}.")
    module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    return getattr(module, attribute)


def _from_file(path: Path) -> Any:
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
