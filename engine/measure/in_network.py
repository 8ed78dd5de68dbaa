"""The last choice is made inside the network: candidates timed as layers of the whole.

In: a lowered network and the few best schedules of each workload.  Out: seconds of each of them as
a layer.  Variant r of the network uses everyone's r-th schedule; the variants run in turns, and the
driver's clock tells the layers apart, so a handful of compilations compares all workloads at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engine.graph.task import LoweredGraph
from engine.records import Schedule
from engine.runtime.build import compile_network
from engine.runtime.network import CompiledNetwork
from engine.runtime.program import KernelStep

Timed = tuple[tuple[Schedule, float], ...]

TURNS, REPEAT = 5, 5


def patient(_ahead: float) -> bool:
    """There is time for everything."""
    return False


def time_in_network(
    lowered: LoweredGraph,
    candidates: Mapping[str, Sequence[Schedule]],
    threads: int,
    *,
    turns: int = TURNS,
    repeat: int = REPEAT,
    jobs: int = 1,
    too_long: Callable[[float], bool] = patient,
) -> dict[str, Timed]:
    """Workload key -> (schedule, seconds) of its candidates, fastest first.

    Seconds are the median over the layers of that workload and over all runs.  `turns` times every
    variant is run `repeat` times.  `too_long(seconds)` says whether there is no time for a step of
    that length: fewer candidates of each workload are tried then, in fewer turns.
    """
    variants = _variants(lowered, candidates, threads, jobs, too_long)
    if not variants:
        return {}
    samples: dict[tuple[str, str], list[float]] = {}
    schedules: dict[str, Schedule] = {}
    feeds = variants[0].sample_inputs()
    took = 0.0
    for turn in range(turns):
        if turn and too_long(took):
            break
        began = time.monotonic()
        for variant in variants:
            for timed in variant.profile(feeds, repeat=repeat, threads=threads):
                if isinstance(timed.step, KernelStep):
                    schedule = timed.step.schedule
                    schedules[schedule.key] = schedule
                    key = (timed.step.workload_key, schedule.key)
                    samples.setdefault(key, []).append(timed.seconds)
        took = time.monotonic() - began
    return _ranked(samples, schedules, candidates)


def _variants(
    lowered: LoweredGraph,
    candidates: Mapping[str, Sequence[Schedule]],
    threads: int,
    jobs: int,
    too_long: Callable[[float], bool],
) -> list[CompiledNetwork]:
    """The network with everyone's r-th schedule, for as many r as there is time."""
    depth = max((len(found) for found in candidates.values()), default=0)
    variants: list[CompiledNetwork] = []
    took = 0.0
    for rank in range(depth):
        if too_long(took):
            break
        began = time.monotonic()
        chosen = {
            key: found[min(rank, len(found) - 1)] for key, found in candidates.items() if found
        }
        variants.append(compile_network(lowered, chosen, threads=threads, jobs=jobs))
        took = time.monotonic() - began
    return variants


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
