"""Code generation: a workload and a schedule to LLVM IR and object code.

Importing this package loads neither NumPy-heavy nor LLVM code until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.codegen.kernel import Kernel, Packing
from engine.codegen.lower import lower
from engine.codegen.module import assembly, compile_ir, module, target_machine
from engine.expr import Layout
from engine.graph.task import Workload
from engine.records import Schedule
from engine.space.sketch import find_sketch
from engine.target import Target

__all__ = [
    "Kernel", "Packing", "ScheduleError", "assembly", "compile_ir", "generate", "module",
    "target_machine",
]  # fmt: skip


class ScheduleError(ValueError):
    """A schedule that no sketch of the workload knows."""


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
    sketch = find_sketch(workload, schedule, target, threads)
    if sketch is None:
        raise ScheduleError(f"no sketch of {workload.anchor} takes the schedule {schedule.key}")
    fused = any(f in ("+fma", "+avx512f") for f in target.features) or target.vector_bits > 128
    fused = fused or not target.is_x86
    return lower(
        sketch.program(schedule), {**workload.layouts, **(layouts or {})}, name, fused=fused
    )
