"""The worker process: `python -m engine.measure.worker REQUEST_FD REPLY_FD PARENT_PID`.

In: a `Setup`, then jobs on the request pipe.  Out: `Done` or `Failed` for each.  It dies with its
parent, lives under memory limits, and imports neither the user's script nor anything that needs
Prefect, SQL, ONNX or LightGBM.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from engine.measure import confine, protocol
from engine.measure.plugins import BUILDERS, RUNNERS, CandidateError, find
from engine.measure.protocol import Compile, Done, Failed, Setup, problem_of
from engine.records import ErrorKind

MACHINE_ERRNOS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EAGAIN,
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ESTALE,
})  # fmt: skip
"""What the system answers when the machine, not the candidate, is at fault."""


def main(arguments: list[str]) -> None:
    request, reply, parent = (int(a) for a in arguments)
    confine.die_with(parent)
    os.set_inheritable(request, False)
    os.set_inheritable(reply, False)
    try:
        setup: Setup = protocol.receive(request)
        handle = _handler(setup)
        confine.limit(setup.memory_limit, small_stack=setup.role == "measure")
        confine.lock_in(os.path.dirname(setup.folder))
        protocol.send(reply, Done(os.getpid()))
        while True:
            message = protocol.receive(request)
            _enter(setup.folder)
            protocol.send(reply, answer(handle, message))
            _tidy(setup.folder)
    except (EOFError, BrokenPipeError):
        pass
    os._exit(0)


def _handler(setup: Setup) -> Callable[[Any], Any]:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, setup.cores)
    if setup.role == "compile":
        build = find(setup.plugin, BUILDERS)
        gc.freeze()
        gc.set_threshold(100_000)  # building makes many small objects and hardly a cycle
        return lambda job: _compile(build, job)
    from engine.measure.session import Session

    runner = find(setup.plugin, RUNNERS)(setup.options, setup.cores)
    gc.freeze()
    return Session(runner, setup.options).handle


def _compile(build: Any, job: Compile) -> Any:
    return build(problem_of(job.problem), job.schedule)


def answer(handle: Callable[[Any], Any], message: Any) -> Done | Failed:
    """The outcome of a job; every exception becomes an error kind."""
    try:
        return Done(handle(message))
    except CandidateError as error:
        return Failed(error.kind, str(error))
    except MemoryError as error:
        return Failed(ErrorKind.OUT_OF_MEMORY, f"out of memory: {error}")
    except OSError as error:
        kind = ErrorKind.MACHINE_FAULT if error.errno in MACHINE_ERRNOS else None
        return Failed(kind or _default_kind(message), f"{type(error).__name__}: {error}")
    except Exception as error:
        illegal = any(c.__name__ == "ScheduleError" for c in type(error).__mro__)
        kind = ErrorKind.INVALID_SCHEDULE if illegal else _default_kind(message)
        return Failed(kind, f"{type(error).__name__}: {error}"[:2000])


def _default_kind(message: Any) -> ErrorKind:
    if isinstance(message, protocol.Prepare | protocol.Probe):
        return ErrorKind.MACHINE_FAULT
    return ErrorKind.COMPILE_ERROR if isinstance(message, Compile) else ErrorKind.CRASH


def _enter(folder: str) -> None:
    """Work in our own folder, again if somebody has removed it."""
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)


def _tidy(folder: str) -> None:
    """Leave no file of this job to the next."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


if __name__ == "__main__":
    main(sys.argv[1:])
