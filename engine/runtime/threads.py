"""The process-wide fork-join pool.

In: nothing; made at first use for the host.  Out: `pool().address("noctune_parallel")`, which is
`void noctune_parallel(ptr fn, ptr args, i64 threads, i64 units)` with `void fn(ptr args, i64
thread, i64 first, i64 past)`, which does the units from `first` to before `past`.  The calling
thread is number 0; all units are done when it returns.

Workers start when first needed, one for each further core: worker i is pinned to the i-th core
after the one the first caller ran on, each physical core before any second hyperthread.  The
caller's own affinity belongs to the host program and is never changed; `enter` only moves a caller
off a worker's core.  A waiting worker spins for SPIN_SECONDS, then sleeps in the kernel.  Workers
block all signals and flush denormals to zero, as the caller does while a region runs.  After a fork
the child starts workers of its own.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

from engine.runtime.jit import Code, emit_object, load_object
from engine.runtime.pool_ir import EXPORTS, MAX_CPUS, pool_ir
from engine.target import host

CPUS = Path("/sys/devices/system/cpu")
SPIN_SECONDS = 50e-6
SYMBOLS = ("noctune_parallel", "noctune_enter", "noctune_fp_enter", "noctune_fp_leave")
"""What generated code may call."""

_lock = threading.Lock()
_pool: ThreadPool | None = None


class ThreadPool:
    """The loaded pool; use `pool()`, there is one in a process."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._parallel = code.function(
            "noctune_parallel", None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2
        )
        self._workers = code.function("noctune_pool_workers", ctypes.c_int64)
        self._reset = code.function("noctune_pool_reset", None)

    def address(self, symbol: str = "noctune_parallel") -> int:
        return self._code.address(symbol)

    @property
    def symbols(self) -> dict[str, int]:
        """Addresses of all that generated code may call."""
        return {name: self._code.address(name) for name in SYMBOLS}

    @property
    def workers(self) -> int:
        """Worker threads started so far in this process."""
        return int(self._workers())

    def parallel(self, function: int, args: int | None, threads: int, units: int) -> None:
        """Run all units of the region at address `function` with `args` on `threads` threads."""
        self._parallel(function, args, threads, units)

    def reset(self) -> None:
        """Forget the workers; only for a forked child, which has none."""
        self._reset()


def pool() -> ThreadPool:
    """The pool of this process, made at the first call."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = _start()
    return _pool


def _start() -> ThreadPool:
    target = host()
    image = emit_object(pool_ir(target), target.cpu, target.feature_string)
    code = load_object(image, EXPORTS)
    code.keep_forever()
    _describe_cores(code)
    _set_spin(code)
    made = ThreadPool(code)
    _reset_after_fork(code, made)
    return made


def _describe_cores(code: Code) -> None:
    cpus = core_order(sorted(os.sched_getaffinity(0)), _current_cpu())[:MAX_CPUS]
    cpus = [cpu for cpu in cpus if cpu < MAX_CPUS]
    table = (ctypes.c_int32 * MAX_CPUS).from_address(code.address("noctune_cpus"))
    cores = (ctypes.c_int32 * MAX_CPUS).from_address(code.address("noctune_core_of"))
    for place, cpu in enumerate(cpus):
        table[place] = cpu
    for cpu in range(MAX_CPUS):
        cores[cpu] = physical_core(cpu) if cpu in cpus else -1 - cpu
    ctypes.c_int64.from_address(code.address("noctune_cpu_count")).value = len(cpus)


def _current_cpu() -> int:
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except AttributeError:
        return -1


def core_order(cpus: list[int], first: int, root: Path = CPUS) -> list[int]:
    """The CPUs in the order in which threads take them.

    Starts at `first` (if it is one of them) and goes round; a second hyperthread of a core comes
    after every core has one.
    """
    start = cpus.index(first) if first in cpus else 0
    turned = cpus[start:] + cpus[:start]
    seen: dict[int, int] = {}
    ranks = []
    for cpu in turned:
        core = physical_core(cpu, root)
        ranks.append(seen.get(core, 0))
        seen[core] = ranks[-1] + 1
    return [cpu for _, _, cpu in sorted(zip(ranks, range(len(turned)), turned, strict=True))]


def physical_core(cpu: int, root: Path = CPUS) -> int:
    """The lowest CPU that shares a core with `cpu`; `cpu` itself if the system does not tell."""
    try:
        text = (root / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        return int(text.replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return cpu


def _set_spin(code: Code) -> None:
    spin = code.function("noctune_pool_spin", None, ctypes.c_int64)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        spin(500)
        best = min(best, time.perf_counter() - start)
    limit = max(20, int(SPIN_SECONDS / (best / 500)))
    ctypes.c_int64.from_address(code.address("noctune_spin")).value = limit


def _reset_after_fork(code: Code, made: ThreadPool) -> None:
    """By libc where it can, which also sees forks that Python did not make."""
    libc = ctypes.CDLL(None)
    handler = ctypes.c_void_p(code.address("noctune_pool_reset"))
    for name, extra in (("pthread_atfork", ()), ("__register_atfork", (None,))):
        register = getattr(libc, name, None)
        if register is not None and register(None, None, handler, *extra) == 0:
            return
    os.register_at_fork(after_in_child=made.reset)
