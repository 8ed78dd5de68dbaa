"""Targets: the CPU that code is generated for.

Out: a frozen `Target` that records, workload scopes and the code generator share.  `host()` reads
the machine (features as the operating system offers them, cores as affinity and cgroup quota allow,
cache sizes); `named()` gives a fixed feature level.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from engine.errors import TargetError

LEVELS: dict[str, tuple[str, tuple[str, ...], int, int]] = {
    # name: (LLVM CPU, features that must be there, vector bits, vector registers)
    "sse42": ("x86-64-v2", ("sse4.2",), 128, 16),
    "avx2": ("x86-64-v3", ("avx2", "fma"), 256, 16),
    "avx512": ("x86-64-v4", ("avx512f", "avx512vl", "avx512dq", "avx512bw"), 512, 32),
}

_DATAPATH = {"znver4": 256}
"""CPUs whose units are narrower than their registers: a 512-bit instruction takes two turns."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU: LLVM triple, CPU name and features, vector width, cores, cache sizes in bytes."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    cores: int
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 32 << 20

    @property
    def lanes(self) -> int:
        """float32 values in a vector register."""
        return self.vector_bits // 32

    @property
    def fmas_per_cycle(self) -> float:
        """Vector multiply-adds that a core starts in a cycle; it loads as many vectors."""
        width = _DATAPATH.get(self.cpu, self.vector_bits)
        return 2.0 * min(width, self.vector_bits) / self.vector_bits

    @property
    def feature_string(self) -> str:
        """LLVM's form: "+avx2,+fma,-avx512f"."""
        return ",".join(self.features)

    @property
    def key(self) -> str:
        """Equal for machines whose records may be compared: CPU, vector width and features."""
        digest = hashlib.sha256(self.feature_string.encode()).hexdigest()[:8]
        return f"{self.triple.split('-')[0]}-{self.cpu}-v{self.vector_bits}-{digest}"

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i386", "i686"))


@cache
def _host_cpu() -> tuple[str, str, dict[str, bool]]:
    from llvmlite import binding

    binding.initialize_native_target()
    return (
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        dict(binding.get_host_cpu_features()),
    )


def usable_cores(
    affinity: int | None = None, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")
) -> int:
    """Cores this process may really use: affinity, cut by the cgroup's CPU quota (v2 or v1)."""
    count = affinity if affinity is not None else len(os.sched_getaffinity(0))
    quota = _quota(root, proc)
    return max(1, count if quota is None else min(count, int(quota)))


def _quota(root: Path, proc: Path) -> float | None:
    """CPUs granted by the cgroup, None if unlimited; the tightest level of the hierarchy counts."""
    found: list[float] = []
    for folder in (root, *_own_groups(root, proc)):
        try:
            limit, period = (folder / "cpu.max").read_text().split()
            if limit != "max":
                found.append(int(limit) / int(period))
        except (OSError, ValueError):
            pass
    for folder in (root / "cpu", root / "cpu,cpuacct"):
        try:
            limit_us = int((folder / "cpu.cfs_quota_us").read_text())
            period_us = int((folder / "cpu.cfs_period_us").read_text())
            if limit_us > 0:
                found.append(limit_us / period_us)
        except (OSError, ValueError):
            pass
    return min(found) if found else None


def _own_groups(root: Path, proc: Path) -> list[Path]:
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        if line.startswith("0::"):
            path = root / line[3:].strip().lstrip("/")
            groups += [path, *path.parents]
    return [g for g in groups if root in g.parents]


def _cache_size(level: int, default: int) -> int:
    for index in range(5):
        folder = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        try:
            if int((folder / "level").read_text()) != level:
                continue
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            text = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
        return int(text.rstrip("KM")) * scale
    return default


@cache
def host(cores: int | None = None) -> Target:
    """This machine; `cores` defaults to all that the process may use."""
    triple, cpu, features = _host_cpu()
    flags = tuple(sorted(("+" if on else "-") + name for name, on in features.items()))
    bits, registers = 128, 16 if triple.startswith("x86_64") else 32
    for need, level_bits, level_registers in (
        (LEVELS[n][1], LEVELS[n][2], LEVELS[n][3]) for n in ("avx2", "avx512")
    ):
        if all(features.get(f, False) for f in need):
            bits, registers = level_bits, level_registers
    return Target(
        "host", triple, cpu, flags, bits, registers, cores or usable_cores(),
        _cache_size(1, 32 << 10), _cache_size(2, 512 << 10), _cache_size(3, 32 << 20),
    )  # fmt: skip


def named(name: str, cores: int | None = None) -> Target:
    """Target `host`, `avx512`, `avx2` or `sse42`; TargetError for any other name."""
    base = host(cores)
    if name == "host":
        return base
    if name not in LEVELS:
        raise TargetError(f"unknown target '{name}'", fix=f"Use host, {', '.join(LEVELS)}.")
    cpu, _, bits, registers = LEVELS[name]
    triple = base.triple if base.is_x86 else "x86_64-unknown-linux-gnu"
    return replace(
        base, name=name, triple=triple, cpu=cpu, features=(), vector_bits=bits,
        vector_registers=registers,
    )  # fmt: skip


def missing_features(target: Target) -> tuple[str, ...]:
    """What this machine lacks to run code for `target`; empty if it can."""
    triple, _, features = _host_cpu()
    if triple.split("-")[0] != target.triple.split("-")[0]:
        return (target.triple.split("-")[0],)
    needed = [f[1:] for f in target.features if f.startswith("+")]
    if target.name in LEVELS:
        needed = list(LEVELS[target.name][1])
    return tuple(f for f in needed if not features.get(f, False))
