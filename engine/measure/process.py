"""One worker process as its parent sees it: start, send a job, watch, kill.

In: a `Setup` and jobs.  Out: `Done` or `Failed` for each job, whatever the process does.  Workers
are fresh interpreters (never forks, never importing the user's script), in their own session,
with their standard error kept in memory so that its end can stand in a record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.measure.protocol import Done, Failed, Inbox, Setup, pack
from engine.records import ErrorKind

_TAIL = 1500
_PIPE = 1 << 20
_GRACE_EXIT_S = 2.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
MODULE = "engine.measure.worker"


class _Spawner:
    """Starts processes from a thread that lives as long as this process.

    The kernel sends the parent-death signal when the *thread* that started a child ends, so workers
    started from a short-lived thread of a task runner would die with it.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="noctune-spawner", daemon=True).start()

    def _serve(self) -> None:
        while True:
            arguments, options, answer = self._jobs.get()
            try:
                answer.put(subprocess.Popen(arguments, **options))
            except Exception as error:
                answer.put(error)

    def popen(self, arguments: list[str], options: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._jobs.put((arguments, options, answer))
        result = answer.get()
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, subprocess.Popen)
        return result


_guard = threading.Lock()
_spawner: _Spawner | None = None


def _spawn(arguments: list[str], options: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    global _spawner
    with _guard:
        if _spawner is None or _spawner.pid != os.getpid():
            _spawner = _Spawner()
    return _spawner.popen(arguments, options)


def _environment(folder: str) -> dict[str, str]:
    """The parent's, with one thread for NumPy's libraries and the parent's import path."""
    path = os.pathsep.join(os.path.abspath(p) for p in sys.path)
    own = {"PYTHONPATH": path, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(threads, "1"), **own}


@dataclass(slots=True)
class _Job:
    token: object
    message_kind: str
    seconds: float
    started: float
    deadline: float
    pause_ends: float


class Worker:
    """A worker process and its current job; `poll`-driven, never blocking for long."""

    def __init__(self, setup: Setup, start_timeout_s: float) -> None:
        self.setup, self._start_timeout = setup, start_timeout_s
        self.generation = 0
        self.job: _Job | None = None
        self.ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = -1
        self._inbox, self._outbox = Inbox(), memoryview(b"")
        self.reader = self._writer = -1

    @property
    def idle(self) -> bool:
        return self.ready and self.job is None

    @property
    def unsent(self) -> int:
        """The request pipe if a part of the job is still to be written, else -1."""
        return self._writer if self.running and self._outbox else -1

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process; OSError if the machine cannot."""
        request, self._writer = os.pipe()
        self.reader, reply = os.pipe()
        self._errors = os.memfd_create("noctune-stderr")
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)
        options = {
            "pass_fds": (request, reply), "stdin": subprocess.DEVNULL, "cwd": "/",
            "stdout": subprocess.DEVNULL, "stderr": self._errors, "start_new_session": True,
            "env": _environment(self.setup.folder),
        }  # fmt: skip
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", MODULE]
        try:
            self._process = _spawn([*command, str(request), str(reply), str(os.getpid())], options)
        except OSError:
            self._close_pipes()
            raise
        finally:
            os.close(request)
            os.close(reply)
        for descriptor in (self.reader, self._writer):
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE)
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        self._inbox, self._outbox = Inbox(), memoryview(b"")
        self.generation += 1
        self.ready = False
        self._begin(None, "start", self._start_timeout, self.setup)

    def submit(self, token: object, message: object, seconds: float) -> None:
        """Give an idle worker its next job; the answer comes with `token`."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._errors, 0)
        self._begin(token, type(message).__name__, seconds, message)

    def _begin(self, token: object, kind: str, seconds: float, message: object) -> None:
        now = time.monotonic()
        self.job = _Job(token, kind, seconds, now, now + seconds, now + self.setup.longest_pause_s)
        self._outbox = memoryview(pack(message))
        self._write()

    def _write(self) -> None:
        try:
            while self._outbox:
                self._outbox = self._outbox[os.write(self._writer, self._outbox) :]
        except (BlockingIOError, BrokenPipeError):
            pass  # a full pipe is tried again; a broken one shows at the reader

    def pump(self) -> tuple[object, Done | Failed] | None:
        """Move bytes; gives (token, outcome) when the job has ended in any way."""
        if self._process is None or self.job is None:
            self._bury()
            return None
        self._write()
        try:
            piece = os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return self._overdue()
        try:
            messages = self._inbox.feed(piece) if piece else []
        except ValueError:
            return self._end(ErrorKind.CRASH, "garbled the protocol")
        if not piece:
            return self._died()
        if not messages:
            return None
        token, self.job, self.ready = self.job.token, None, True
        return token, messages[0]

    def _bury(self) -> None:
        """An idle process that somebody else ended is no longer running."""
        with contextlib.suppress(BlockingIOError):
            if self._process is not None and not os.read(self.reader, 1):
                self.kill(_GRACE_EXIT_S)

    def _overdue(self) -> tuple[object, Failed] | None:
        assert self.job is not None
        if self._rss() > self.setup.memory_limit:
            limit = self.setup.memory_limit >> 20
            return self._end(ErrorKind.OUT_OF_MEMORY, f"used more than {limit} MiB")
        now = time.monotonic()
        paused = self._stopped()
        if not paused:
            self.job.pause_ends = now + self.setup.longest_pause_s
        elif now < self.job.pause_ends:  # once it goes on it has all its time again
            self.job.deadline = now + self.job.seconds
        if now < self.job.deadline:
            return None
        timeouts = {"Compile": ErrorKind.COMPILE_TIMEOUT, "Time": ErrorKind.RUN_TIMEOUT}
        kind = timeouts.get(self.job.message_kind, ErrorKind.MACHINE_FAULT)
        why = ", it was stopped" if paused else ""
        return self._end(kind, f"no answer in {self.job.seconds:g} s{why}")

    def postpone(self, seconds: float) -> None:
        """Time in which the processes were stopped does not count."""
        if self.job is not None:
            self.job.deadline += seconds
            self.job.pause_ends += seconds

    def _stopped(self) -> bool:
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
        return False

    def _rss(self) -> int:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE
        return 0

    def _end(self, kind: ErrorKind, message: str) -> tuple[object, Failed]:
        """Kill the process; its job failed for this reason."""
        assert self.job is not None
        token, tail = self.job.token, self.tail()
        self.kill()
        return token, Failed(kind, _with_tail(message, tail))

    def _died(self) -> tuple[object, Failed]:
        assert self.job is not None
        job, tail = self.job, self.tail()
        kind, message, extra = explain_exit(*self.kill(_GRACE_EXIT_S), self.setup.memory_limit)
        if job.message_kind == "Compile" and kind is ErrorKind.CRASH:
            kind = ErrorKind.COMPILE_ERROR
        if job.message_kind not in ("Compile", "Time"):
            kind = ErrorKind.MACHINE_FAULT
        return job.token, Failed(kind, _with_tail(message, tail), extra)

    def tail(self) -> str:
        """The end of what the process wrote to its standard error."""
        with contextlib.suppress(OSError):
            size = os.fstat(self._errors).st_size
            data = os.pread(self._errors, _TAIL, max(0, size - _TAIL))
            return data.decode(errors="replace").replace("\0", "").strip()
        return ""

    def kill(self, grace_s: float = 0.0) -> tuple[int | None, int]:
        """End the process and all its children; gives (exit code, peak bytes).

        Waits up to `grace_s` for it to end by itself; the code is None if it did not.
        """
        process, self._process = self._process, None
        self.job, self.ready = None, False
        if process is None:
            return None, 0
        outcome = _reap(process.pid, grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if outcome is None:
            _reap(process.pid, float("inf"))
        process.returncode = 0  # reaped here; Popen must not wait again
        self._close_pipes()
        return outcome or (None, 0)

    def _close_pipes(self) -> None:
        for descriptor in (self._writer, self.reader, self._errors):
            if descriptor >= 0:
                os.close(descriptor)
        self._writer = self.reader = self._errors = -1


def _reap(pid: int, seconds: float) -> tuple[int, int] | None:
    """(exit code, peak bytes) of a child that ends in time, None if it does not.

    The peak is 0 where it cannot be told from this process's own.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            done, status, usage = os.wait4(pid, 0 if seconds == float("inf") else os.WNOHANG)
        except ChildProcessError:
            return 0, 0
        if done:
            peak = usage.ru_maxrss << 10
            return os.waitstatus_to_exitcode(status), 0 if peak <= _own_peak() else peak
        if time.monotonic() >= end:
            return None
        time.sleep(0.002)


def _own_peak() -> int:
    """This process's peak bytes: a child's figure starts there, as it counts from before exec."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def explain_exit(code: int | None, peak: int, limit: int) -> tuple[ErrorKind, str, dict[str, Any]]:
    """Error kind, text and details of a worker that ended by itself with this exit code.

    SIGKILL that we did not send is the kernel's out-of-memory killer; a crash close to the memory
    limit is taken for a failed allocation.
    """
    if code is None:
        return ErrorKind.CRASH, "the worker closed its pipes", {}
    if code >= 0:
        return ErrorKind.CRASH, f"the worker exited with code {code}", {"exit_code": code}
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    message, extra = f"the worker died by {name}", {"signal": name}
    if -code == signal.SIGKILL:
        return ErrorKind.OUT_OF_MEMORY, message + " (out of memory, or killed by hand)", extra
    if peak > 0.9 * limit:
        return ErrorKind.OUT_OF_MEMORY, f"{message} at {peak >> 20} MiB", extra
    return ErrorKind.CRASH, message, extra


def _with_tail(message: str, tail: str) -> str:
    return f"{message}; its last words: {tail}" if tail else message
