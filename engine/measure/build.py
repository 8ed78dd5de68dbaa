"""The builder that everybody uses: schedule -> LLVM IR -> object code.

Many schedules share regions (the transforms of minimal filtering have no knobs), so that a builder
remembers the object code of the last regions by their text.
"""

from __future__ import annotations

import time
from functools import lru_cache

from engine import codegen
from engine.measure.protocol import Built, Problem
from engine.records import Schedule
from engine.space import find_sketch
from engine.target import Target


def build(problem: Problem, schedule: Schedule) -> Built:
    """Compile one candidate; ScheduleError if the schedule is illegal."""
    start = time.perf_counter()
    kernel = codegen.generate(problem.workload, schedule, problem.target, threads=problem.threads)
    code = tuple(_compiled(function, problem.target) for function in kernel.functions)
    sketch = find_sketch(problem.workload, schedule, problem.target, problem.threads)
    assert sketch is not None  # generate found it
    derived = {p.name: p.derive for p in sketch.dag.placeholders if p.derive is not None}
    return Built(kernel.without_ir(), code, time.perf_counter() - start, derived)


@lru_cache(maxsize=64)
def _compiled(function: str, target: Target) -> bytes:
    return codegen.compile_ir(codegen.module([function], target), target)
