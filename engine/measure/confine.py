"""What a worker process may do to its machine: limits, and no way out of its folder.

In: the folder and the memory limit.  Where the kernel has Landlock (Linux 5.13; for the network
6.7) the process can change files in the tuner's folder only and opens no TCP connection;
elsewhere the limits alone hold.  Nothing here needs privileges.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _PATH_BENEATH = 1, 1
_FILE_LIMIT = 64 << 20
_STACK_LIMIT = 2 << 20
_HEADROOM = 4 << 30
"""Address space beyond the memory limit: libraries, stacks and guards that are never touched."""

_WRITE_FILE, _REMOVE_AND_MAKE = 1 << 1, sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP = 0b11
"""Access rights by Landlock version: 1 the first line, 2 refer, 3 truncate, 4 TCP."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def die_with(parent: int) -> None:
    """The kernel ends us when our parent ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def limit(memory: int, small_stack: bool) -> None:
    """No core dumps, bounded files and memory; the kernel's memory killer takes us first."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    _lower(resource.RLIMIT_CORE, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # a piped core pattern ignores the limit
    _lower(resource.RLIMIT_FSIZE, _FILE_LIMIT)
    _lower(resource.RLIMIT_AS, memory + _HEADROOM)
    if small_stack:
        _lower(resource.RLIMIT_STACK, _STACK_LIMIT)


def _lower(what: int, bound: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        bound = min(bound, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (bound, hard))


def lock_in(folder: str) -> bool:
    """Forbid this process to change files outside of `folder` or to use TCP; False if it cannot."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION)
    if version < 1:
        return False
    rights = _WRITE_FILE | _REMOVE_AND_MAKE
    rights |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(rights, _TCP if version >= 4 else 0)
    size = ctypes.c_size_t(16 if version >= 4 else 8)
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return False
    try:
        _allow(ruleset, folder, rights)
        for device in _DEVICES:
            with contextlib.suppress(OSError):
                _allow(ruleset, device, rights & (_WRITE_FILE | _TRUNCATE))
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return not _libc.syscall(_RESTRICT_SELF, ruleset, 0)
    except OSError:
        return False
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        beneath = _Beneath(rights, place)
        if _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(beneath), 0):
            raise OSError(ctypes.get_errno(), "landlock_add_rule")
    finally:
        os.close(place)
