"""The builder that everybody uses: schedule -> LLVM IR -> object code."""

from __future__ import annotations

import time
from dataclasses import replace

from engine import codegen
from engine.measure.protocol import Built, Problem
from engine.records import Schedule


def build(problem: Problem, schedule: Schedule) -> Built:
    """Compile one candidate; ScheduleError if the schedule is illegal."""
    start = time.perf_counter()
    kernel = codegen.generate(
        problem.dag, schedule, problem.target, problem.layouts, threads=problem.threads
    )
    code = codegen.compile_ir(codegen.module([kernel], problem.target), problem.target)
    return Built(replace(kernel, ir=""), code, time.perf_counter() - start)
