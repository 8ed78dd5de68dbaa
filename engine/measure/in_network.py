"""The last choice is made inside the network: candidates timed as layers of the whole.

In: a lowered network and the few best schedules of each workload.  Out: seconds of each of them as
a layer.  Variant r of the network uses everyone's r-th schedule; the variants run in turns, and the
driver's clock tells the layers apart, so a handful of compilations compares all workloads at once.
The fastest of several is also the luckiest, so the winners are put together and timed once more, in
turns with the first variant: their seconds are those of the second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.graph.task import LoweredGraph
from engine.records import Schedule
from engine.runtime.build import compile_network
from engine.runtime.network import CompiledNetwork
from engine.runtime.program import KernelStep

Timed = Sequence[tuple[Schedule, float]]
Samples = dict[tuple[str, str], list[float]]
"""Seconds of all runs by workload and key of the schedule."""

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
) -> Mapping[str, Timed]:
    """Workload key -> (schedule, seconds) of its different candidates, fastest first.

    Seconds are the median over the layers of that workload and over all runs.  `turns` times every
    variant is run `repeat` times.  `too_long(seconds)` says whether there is no time for a step of
    that length: fewer candidates of each workload are tried then, in fewer turns, and the winners
    are not timed again.
    """
    began = time.monotonic()
    variants = _variants(lowered, candidates, threads, jobs, too_long)
    if not variants:
        return {}
    compiling = (time.monotonic() - began) / len(variants)
    run = _Runs(threads, turns, repeat, too_long)
    found = ranked(run(variants), candidates)
    winners = {key: pairs[0][0] for key, pairs in found.items()}
    if all(winners[key] == candidates[key][0] for key in winners) or too_long(compiling + run.took):
        return found
    final = compile_network(lowered, winners, threads=threads, jobs=jobs)
    again = ranked(run([variants[0], final]), candidates)
    return {key: corrected(pairs, again[key]) for key, pairs in found.items()}


@dataclass
class _Runs:
    """Runs variants in turns, each `repeat` times."""

    threads: int
    turns: int
    repeat: int
    too_long: Callable[[float], bool]
    took: float = 0.0
    """Seconds of the last turn."""

    def __call__(self, variants: Sequence[CompiledNetwork]) -> Samples:
        samples: Samples = {}
        feeds = variants[0].sample_inputs()
        for turn in range(self.turns):
            if turn and self.too_long(self.took):
                break
            began = time.monotonic()
            for variant in variants:
                for timed in variant.profile(feeds, repeat=self.repeat, threads=self.threads):
                    if isinstance(timed.step, KernelStep):
                        key = timed.step.workload_key, timed.step.schedule.key
                        samples.setdefault(key, []).append(timed.seconds)
            self.took = time.monotonic() - began
        return samples


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


def ranked(
    samples: Samples, candidates: Mapping[str, Sequence[Schedule]]
) -> dict[str, list[tuple[Schedule, float]]]:
    """Medians by workload, fastest first."""
    found: dict[str, list[tuple[Schedule, float]]] = {}
    for key, schedules in candidates.items():
        pairs = [(s, float(np.median(samples[key, s.key]))) for s in schedules
                 if (key, s.key) in samples]  # fmt: skip
        if pairs:
            found[key] = sorted(pairs, key=lambda p: p[1])
    return found


def corrected(
    pairs: Sequence[tuple[Schedule, float]], again: Sequence[tuple[Schedule, float]]
) -> list[tuple[Schedule, float]]:
    """`again` holds the second times of the winner and perhaps of another; the rest are scaled as
    the winner's changed, so that they stay behind it."""
    fresh = {schedule.key: seconds for schedule, seconds in again}
    winner, seconds = pairs[0]
    scale = fresh[winner.key] / seconds
    return sorted(((s, fresh.get(s.key, scale * t)) for s, t in pairs), key=lambda p: p[1])
