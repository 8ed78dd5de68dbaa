"""Code generation: a workload and a schedule to LLVM IR and object code.

Importing this package loads neither NumPy-heavy nor LLVM code until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from engine.codegen.kernel import Kernel, Packing
from engine.codegen.lower import lower
from engine.codegen.module import assembly, compile_ir, module, target_machine
from engine.expr import Layout
from engine.graph.task import Workload
from engine.records import Schedule
from engine.space.sketch import Sketch, find, sketches
from engine.target import Target

__all__ = [
    "Kernel", "Packing", "ScheduleError", "assembly", "compile_ir", "generate", "module",
    "target_machine",
]  # fmt: skip


class ScheduleError(ValueError):
    """A schedule that no sketch of the workload knows."""


@lru_cache(maxsize=64)
def _sketches(key: str, holder: _Holder, target: Target, threads: int) -> tuple[Sketch, ...]:
    return sketches(holder.workload, target, threads, accuracy="fast")


class _Holder:
    """Lets workloads, which hold dictionaries, be looked up in a cache by their key."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __hash__(self) -> int:
        return hash(self.workload.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder) and (
            other.workload.key == self.workload.key
            and other.workload.dag.outputs == self.workload.dag.outputs
        )


def generate(
    workload: Workload,
    schedule: Schedule,
    target: Target,
    layouts: Mapping[str, Layout] | None = None,
    name: str = "kernel",
    threads: int = 1,
) -> Kernel:
    """The kernel of a schedule, for the canonical layouts or for those given.

    Raises ScheduleError if no sketch of the workload has this name and these knobs.
    """
    sketch = find(_sketches(workload.key, _Holder(workload), target, threads), schedule)
    if sketch is None:
        raise ScheduleError(f"no sketch of {workload.anchor} takes the schedule {schedule.key}")
    fused = any(f in ("+fma", "+avx512f") for f in target.features) or target.vector_bits > 128
    fused = fused or not target.is_x86
    return lower(
        sketch.program(schedule), {**workload.layouts, **(layouts or {})}, name, fused=fused
    )
