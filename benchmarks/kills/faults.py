"""The faults: what is done to a running command, and how it may end then.

In: a command and the servers.  Out: one row a fault; adding one is a function and a row.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from benchmarks.kills.processes import Command
from benchmarks.kills.servers import DurableServer, PrefectServer


@dataclass(frozen=True, slots=True)
class Scene:
    """A command that runs, and what it runs on."""

    command: Command
    rng: np.random.Generator
    prefect: PrefectServer
    postgresql: DurableServer | None
    sqlite: str


@dataclass(frozen=True, slots=True)
class Fault:
    """`strike` does it and says what, or "" if there was nothing to strike.

    `ends_in` is how many seconds later the command must have ended, `goes_on` whether it must have
    done its work in spite of it.
    """

    strike: Callable[[Scene], str]
    share: int
    ends_in: float
    goes_on: bool = False
    own_server: bool = False
    """The command runs with Prefect's temporary server."""
    tuning: bool = False
    """It strikes while candidates are measured."""
    only: str = ""
    """The kind of database that it needs."""


def _interrupt(scene: Scene) -> str:
    scene.command.signal(signal.SIGINT, group=True)
    return "Ctrl-C"


def _interrupt_twice(scene: Scene) -> str:
    scene.command.signal(signal.SIGINT, group=True)
    gap = float(scene.rng.uniform(0.02, 0.6))
    if scene.command.pause(gap):
        scene.command.signal(signal.SIGINT, group=True)
    return f"Ctrl-C, again after {gap:.2f} s"


def _terminate(scene: Scene) -> str:
    scene.command.signal(signal.SIGTERM)
    return "SIGTERM"


def _kill(scene: Scene) -> str:
    scene.command.signal(signal.SIGKILL)
    return "SIGKILL"


def _kill_one(pids: Sequence[int], scene: Scene, what: str) -> str:
    if not pids:
        return ""
    pid = pids[int(scene.rng.integers(len(pids)))]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return f"SIGKILL of {what}"
    return ""


def _kill_worker(scene: Scene) -> str:
    return _kill_one(scene.command.workers(), scene, "a worker process")


def _kill_own_server(scene: Scene) -> str:
    return _kill_one(scene.command.servers(), scene, "the temporary server")


def _kill_server(scene: Scene) -> str:
    """Its supervisor starts it again."""
    scene.prefect.kill()
    seconds = float(scene.rng.uniform(0.1, 3.0))
    scene.command.pause(seconds)
    scene.prefect.start()
    return f"Prefect's server killed, {seconds:.1f} s"


def _end_server(scene: Scene) -> str:
    """It comes back when the command has ended."""
    scene.prefect.kill()
    return "Prefect's server killed for good"


def _stop_database(scene: Scene) -> str:
    assert scene.postgresql is not None
    scene.postgresql.stop("immediate")
    seconds = float(scene.rng.uniform(0.1, 4.0))
    scene.command.pause(seconds)
    scene.postgresql.start()
    return f"PostgreSQL stopped for {seconds:.1f} s"


def _drop_connections(scene: Scene) -> str:
    assert scene.postgresql is not None
    count = scene.postgresql.drop_connections()
    return f"{count} connections dropped" if count else ""


def _lock_database(scene: Scene) -> str:
    """Somebody else writes for a while."""
    seconds = float(scene.rng.uniform(0.5, 5.0))
    if not os.path.exists(scene.sqlite):
        return ""
    other = sqlite3.connect(scene.sqlite, timeout=30, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        scene.command.pause(seconds)
        other.execute("ROLLBACK")
    finally:
        other.close()
    return f"locked for {seconds:.1f} s"


FAULTS: dict[str, Fault] = {
    "sigkill": Fault(_kill, 5, 10),
    "sigint": Fault(_interrupt, 3, 60),
    "sigint-twice": Fault(_interrupt_twice, 3, 10),
    "sigterm": Fault(_terminate, 3, 60),
    "worker": Fault(_kill_worker, 4, 120, goes_on=True, tuning=True),
    "prefect": Fault(_kill_server, 2, 300),
    "prefect-gone": Fault(_end_server, 1, 300),
    "own-sigkill": Fault(_kill, 1, 10, own_server=True),
    "own-sigint-twice": Fault(_interrupt_twice, 1, 10, own_server=True),
    "own-server": Fault(_kill_own_server, 1, 120, own_server=True),
    "locked": Fault(_lock_database, 2, 120, goes_on=True, only="sqlite"),
    "stopped": Fault(_stop_database, 4, 120, only="postgresql"),
    "dropped": Fault(_drop_connections, 3, 120, goes_on=True, tuning=True, only="postgresql"),
}
"""`share` is how often a fault comes up among others."""


def deck(kind: str, count: int, rng: np.random.Generator) -> list[str]:
    """Names of `count` faults for a kind of database, in their shares, shuffled."""
    once = [n for n, f in FAULTS.items() if f.only in ("", kind) for _ in range(f.share)]
    cards: list[str] = []
    while len(cards) < count:
        cards += [once[i] for i in rng.permutation(len(once))]
    return cards[:count]
