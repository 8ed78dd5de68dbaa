"""Options of measuring, with their units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How candidates are built, run and timed."""

    timeout_s: float = 10.0
    """Seconds that one job of the measuring worker may take: load, verify and time a candidate."""
    compile_timeout_s: float = 15.0
    """Seconds that one compilation may take."""
    prepare_timeout_s: float = 300.0
    """Seconds for the inputs and the reference result of a search task."""
    start_timeout_s: float = 60.0
    """Seconds until a new worker must have answered."""
    longest_pause_s: float = 60.0
    """Seconds that a stopped worker is waited for (by hand, or by SIGSTOP of a candidate)."""
    passes: int = 2
    """Interleaved passes over a batch; the minimum over all of them is the latency."""
    repeat: int = 1
    """Repeats of each candidate in each pass."""
    min_repeat_ms: float = 2.0
    """Milliseconds that one repeat lasts at least; calls are added until it does."""
    finalists: int = 4
    """Best candidates of a batch that are measured again at its end."""
    final_passes: int = 4
    """Interleaved passes over the finalists."""
    prune_factor: float = 1.3
    """A candidate slower than the best of its batch by this factor is timed in one pass only."""
    tolerance: float = 1e-3
    """Largest error allowed, relative to the largest value of the output."""
    seed: int = 0
    """Seed of the input data."""
    noise_limit: float = 0.10
    """A pass is noisy if the probe kernel is slower than its best by more than this share."""
    compile_workers: int | None = None
    """Compiling processes; by default one for each core.  They rest while candidates are timed."""
    memory_limit: int | None = None
    """Bytes a worker may use; by default 8 GiB, or 60% of the machine's memory if that is less."""
    resident_bytes: int = 3 << 29
    """Packed constants that the measuring worker keeps between passes."""
    recycle_after: int = 3000
    """Candidates after which the measuring worker is replaced (linked code is never freed)."""
    lock_path: str | None = None
    """File that serialises tuners on this machine; by default one for all users, in /tmp."""
    scratch: str | None = None
    """Folder for the workers' temporary folders; by default the system's."""
    progress_s: float = 30.0
    """Seconds between progress lines."""
    builder: str = "llvm"
    """Key of `plugins.BUILDERS`, or "module:function", or "file.py:function"."""
    runner: str = "native"
    """Key of `plugins.RUNNERS`, or "module:class", or "file.py:class"."""
