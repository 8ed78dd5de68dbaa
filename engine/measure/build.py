"""The builder that everybody uses: schedule -> LLVM IR -> object code."""

from __future__ import annotations

import time
from dataclasses import replace

from engine import codegen
from engine.measure.protocol import Built, Problem
from engine.records import Schedule
from engine.space import find_sketch


def build(problem: Problem, schedule: Schedule) -> Built:
    """Compile one candidate; ScheduleError if the schedule is illegal."""
    start = time.perf_counter()
    kernel = codegen.generate(problem.workload, schedule, problem.target, threads=problem.threads)
    code = codegen.compile_ir(codegen.module([kernel], problem.target), problem.target)
    sketch = find_sketch(problem.workload, schedule, problem.target, problem.threads)
    assert sketch is not None  # generate found it
    derived = {p.name: p.derive for p in sketch.dag.placeholders if p.derive is not None}
    return Built(replace(kernel, ir=""), code, time.perf_counter() - start, derived)
