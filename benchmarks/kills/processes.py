"""Commands under test as real processes, and what of them is still there.

In: a command line and its environment.  Out: its lines as they come, its exit code, and the
processes of its family.  Members of the family are found as descendants while it runs, and by a
marker in their environment where that can be read, so that one that lost its parent is found too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKER = "NOCTUNE_KILLS"
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be mistaken for a later one of the same number."""

    pid: int
    started: int
    """Clock ticks since boot."""
    parent: int
    state: str

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.started


def processes() -> dict[int, Process]:
    """All processes that are no zombies."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path(entry.path, "stat").read_text(errors="replace")
                fields = text.rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    pid = int(entry.name)
                    found[pid] = Process(pid, int(fields[19]), int(fields[1]), fields[0])
    return found


def descendants(root: int, among: Mapping[int, Process]) -> list[Process]:
    """The process itself, its children, theirs and so on."""
    family, found = {root}, [among[root]] if root in among else []
    grown = True
    while grown:
        more = [p for p in among.values() if p.parent in family and p.pid not in family]
        family.update(p.pid for p in more)
        found += more
        grown = bool(more)
    return found


def command_line(pid: int) -> str:
    """The command of a process, "" if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return ""


def _is_marked(pid: int, marker: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARKER}={marker}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


class Command:
    """A running command in a session of its own; lines of both its streams are kept."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], folder: Path, marker: str
    ) -> None:
        self._marker = marker
        self.process = subprocess.Popen(
            list(arguments), env={**env, MARKER: marker}, cwd=folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.lines: list[str] = []
        self._family: set[tuple[int, int]] = set()
        self._news = threading.Condition()
        self._ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.decode(errors="replace").rstrip())
                self._news.notify_all()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.look()

    def look(self) -> list[Process]:
        """Note who belongs to the family now."""
        found = descendants(self.process.pid, processes())
        self._family.update(p.identity for p in found)
        return found

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_lines(self, count: int, timeout_s: float) -> bool:
        """Wait for so many lines; False if the command has ended or taken too long before."""
        end = time.monotonic() + timeout_s
        while self.running and time.monotonic() < end:
            with self._news:
                if len(self.lines) >= count:
                    return True
                self._news.wait(0.1)
        return False

    def pause(self, seconds: float) -> bool:
        """Let it run on; False if it has ended meanwhile."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.running

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code; None (and it is killed) if it does not end in time."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(timeout_s)
        if code is None:
            self.signal(signal.SIGKILL, group=True)
            self.process.wait()
        self._ended.set()
        self._watcher.join()
        return code

    def signal(self, number: int, *, group: bool = False) -> None:
        """Signal the command, or its whole group as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process.pid, number)

    def workers(self) -> list[int]:
        """Its measuring and compiling processes."""
        found = (p.pid for p in self.look() if p.pid != self.process.pid)
        return [pid for pid in found if "engine.measure.worker" in command_line(pid)]

    def servers(self) -> list[int]:
        """Prefect's temporary server."""
        return [p.pid for p in self.look() if "prefect.server.api" in command_line(p.pid)]

    def survivors(self, grace_s: float = 5.0) -> list[str]:
        """Command lines of the family's processes that are still there after a while."""
        end = time.monotonic() + grace_s
        while True:
            left = [p for p in processes().values() if self._belongs(p)]
            if not left or time.monotonic() > end:
                return [f"{p.pid} {command_line(p.pid)[:120]}" for p in left]
            time.sleep(0.1)

    def _belongs(self, process: Process) -> bool:
        return process.identity in self._family or _is_marked(process.pid, self._marker)

    def end_all(self) -> None:
        """Kill whatever is left of the family."""
        for process in processes().values():
            if self._belongs(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
