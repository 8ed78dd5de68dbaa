"""The last choice is made inside the network: candidates timed as layers of the whole.

In: a lowered network and the few best schedules of each workload.  Out: seconds of each of them as
a layer.  Variant r of the network uses everyone's r-th schedule; the variants run in turns, and the
driver's clock tells the layers apart, so a handful of compilations compares all workloads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.graph.task import LoweredGraph
from engine.records import Schedule
from engine.runtime.build import compile_network
from engine.runtime.program import KernelStep

Timed = tuple[tuple[Schedule, float], ...]


def time_in_network(
    lowered: LoweredGraph,
    candidates: Mapping[str, Sequence[Schedule]],
    threads: int,
    *,
    turns: int = 5,
    repeat: int = 5,
    jobs: int = 1,
) -> dict[str, Timed]:
    """Workload key -> (schedule, seconds) of its candidates, fastest first.

    Seconds are the median over the layers of that workload and over all runs.  `turns` times every
    variant is run `repeat` times.
    """
    depth = max((len(found) for found in candidates.values()), default=0)
    variants = [
        compile_network(
            lowered,
            {key: found[min(rank, len(found) - 1)] for key, found in candidates.items() if found},
            threads=threads, jobs=jobs,
        )
        for rank in range(depth)
    ]  # fmt: skip
    samples: dict[tuple[str, str], list[float]] = {}
    schedules: dict[str, Schedule] = {}
    feeds = variants[0].sample_inputs() if variants else {}
    for _ in range(turns):
        for variant in variants:
            for timed in variant.profile(feeds, repeat=repeat, threads=threads):
                if isinstance(timed.step, KernelStep):
                    schedule = timed.step.schedule
                    schedules[schedule.key] = schedule
                    key = (timed.step.workload_key, schedule.key)
                    samples.setdefault(key, []).append(timed.seconds)
    return _ranked(samples, schedules, candidates)


def _ranked(
    samples: Mapping[tuple[str, str], Sequence[float]],
    schedules: Mapping[str, Schedule],
    candidates: Mapping[str, Sequence[Schedule]],
) -> dict[str, Timed]:
    found: dict[str, list[tuple[Schedule, float]]] = {}
    for (workload, schedule), seconds in samples.items():
        if workload in candidates:
            pair = (schedules[schedule], float(np.median(seconds)))
            found.setdefault(workload, []).append(pair)
    return {key: tuple(sorted(pairs, key=lambda p: p[1])) for key, pairs in found.items()}
