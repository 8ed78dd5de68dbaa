"""Efficiency curves: best so far, relative to the best known, against trials and seconds.

    python -m benchmarks.search.curves --model resnet-18 --tasks 3,9,14 --record FILE [--replay]

With --record every latency is written to a file; --replay answers from it alone, without timing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.search.oracle import Oracle
from benchmarks.search.strategies import STRATEGIES, Problem, propose
from engine.records import MeasureRecord
from engine.search import TaskSpace, task_name


@dataclass(frozen=True)
class Curve:
    """One search: best seconds and elapsed seconds (search, measuring) after each trial."""

    best: tuple[float, ...]
    seconds: tuple[float, ...]
    records: tuple[MeasureRecord, ...]


def run(
    strategy: str, problem: Problem, oracle: Oracle, trials: int, size: int, seed: int
) -> Curve:
    """One search of `trials` trials in rounds of `size`."""
    own: list[MeasureRecord] = []
    best: list[float] = []
    elapsed: list[float] = []
    started = time.perf_counter()
    while len(own) < trials:
        schedules = propose(strategy, problem, own, min(size, trials - len(own)), seed)
        if not schedules:
            break
        own += oracle.records(problem.task, schedules, len(own) // size)
        seconds = [r.latency if r.valid else np.inf for r in own]
        best = np.minimum.accumulate(seconds).tolist()
        elapsed += [time.perf_counter() - started] * (len(own) - len(elapsed))
    return Curve(tuple(best), tuple(elapsed), tuple(own))


def compare(
    problems: Sequence[Problem],
    oracle: Oracle,
    *,
    trials: int = 32,
    size: int = 8,
    seeds: int = 5,
    strategies: Sequence[str] = STRATEGIES,
) -> dict[str, dict[str, list[Curve]]]:
    """Strategy -> problem -> one curve a seed."""
    return {
        s: {p.name: [run(s, p, oracle, trials, size, seed) for seed in range(seeds)]
            for p in problems}
        for s in strategies
    }  # fmt: skip


def excess(curves: Sequence[Curve], best: float, at: int) -> float:
    """Median over the seeds of (best after `at` trials) / best known."""
    return float(np.median([c.best[min(at, len(c.best)) - 1] / best for c in curves]))


def report(
    found: dict[str, dict[str, list[Curve]]], problems: Sequence[Problem], oracle: Oracle
) -> str:
    """A markdown table: a row a problem and strategy, columns of trials."""
    longest = max(len(c.best) for by in found.values() for cs in by.values() for c in cs)
    marks = [m for m in (1, 4, 8, 16, 24, 32, 48, 64, 128, 256) if m <= longest]
    lines = ["| task | search | " + " | ".join(f"{m} trials" for m in marks) + " | seconds |"]
    lines.append("|---|---|" + "---:|" * (len(marks) + 1))
    for p in problems:
        best = oracle.best(p.task)
        for strategy, by in found.items():
            cells = [f"{excess(by[p.name], best, m):.3f}" for m in marks]
            spent = np.median([c.seconds[-1] for c in by[p.name]])
            lines.append(f"| {p.name} | {strategy} | {' | '.join(cells)} | {spent:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="resnet-18")
    parser.add_argument("--tasks", default="3,6,9,14,19,22", help="numbers of the search tasks")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--round", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    options = parser.parse_args()
    problems, measurer = _problems(options.model, [int(t) for t in options.tasks.split(",")])
    with nullcontext() if options.replay else measurer as live:
        oracle = Oracle(options.record, None if live is None else live.measure)
        strategies = options.strategies.split(",")
        _give_histories(problems, oracle, options)
        found = compare(
            problems, oracle, trials=options.trials, size=options.round, seeds=options.seeds,
            strategies=strategies,
        )  # fmt: skip
        oracle.save()
    print(report(found, problems, oracle))


def _problems(model: str, numbers: Sequence[int]) -> tuple[list[Problem], object]:
    from engine.measure import MeasureOptions, Measurer
    from engine.space import prior, sketches
    from engine.target import host
    from tasks.networks import load_network, merge_tasks

    target = host()
    tasks = merge_tasks([load_network(model, target)], target.cores)
    spaces = {
        tasks[i].key: TaskSpace(sketches(tasks[i].workload, target, target.cores), target.cores)
        for i in numbers
    }
    problems = [
        Problem(
            f"{i} {task_name(tasks[i].workload)[:44]}", tasks[i], spaces[tasks[i].key],
            partial(prior, target=target), spaces.get,
        )
        for i in numbers
    ]  # fmt: skip
    measurer = Measurer(target, target.cores, tasks[0].timing_mode, MeasureOptions())
    return problems, measurer


def _give_histories(
    problems: Sequence[Problem], oracle: Oracle, options: argparse.Namespace
) -> None:
    """Every problem gets what one search from nothing measured on each of the others."""
    if "history" not in options.strategies or len(problems) < 2:
        return
    runs = {
        p.name: run("model", p, oracle, options.trials, options.round, seed=1000) for p in problems
    }
    for p in problems:
        p.others = tuple(r for q in problems if q is not p for r in runs[q.name].records)


if __name__ == "__main__":
    main()
