"""Efficiency curves: best so far, relative to the best known, against trials and seconds.

    python -m benchmarks.search.curves --record FILE [--replay] [--tasks resnet-50:2,mobilenet:5]

Every search runs with several seeds.  At the end the candidates that the searches would have chosen
after 1, 4, 8 ... trials are timed once more, all of a task in turns, together with the best that a
long search has found: on a shared machine latencies from different minutes do not compare.  With
--record every answer is written to a file; --replay answers from it alone, without timing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.search.oracle import Measure, Oracle
from benchmarks.search.strategies import STRATEGIES, Problem, propose
from engine.graph.task import SearchTask
from engine.measure import MeasureOptions, Measurer
from engine.records import MeasureRecord, Schedule
from engine.search import TaskSpace, task_name
from engine.search.pretrained import pretrained
from engine.space import sketches
from engine.target import host
from tasks.networks import load_network, merge_tasks

TWELVE = (
    "resnet-50:0,resnet-50:2,resnet-50:10,resnet-50:16,resnet-50:24,resnet-50:27,mobilenet:5,"
    "mobilenet:14,bert-base:1,bert-base:5,inception_v3:26,resnet3d-18:14"
)
"""Network and number of the search task, one of each family."""
MARKS = (1, 4, 8, 16, 24, 32, 48, 64, 128, 256)
_FINALISTS = 5
"""Best candidates of the long search that are timed again."""

Curves = dict[str, dict[str, list["Curve"]]]
"""Strategy -> problem -> one curve a seed."""


@dataclass(frozen=True)
class Curve:
    """One search: its trials in order, and elapsed seconds (search, measuring) after each."""

    records: tuple[MeasureRecord, ...]
    seconds: tuple[float, ...]

    @property
    def best(self) -> tuple[float, ...]:
        """Smallest latency after each trial."""
        found = [r.latency if r.valid else np.inf for r in self.records]
        return tuple(np.minimum.accumulate(found).tolist())

    def pick(self, at: int) -> Schedule:
        """The schedule that the search would choose after `at` trials."""
        return min(self.records[:at], key=lambda r: r.latency if r.valid else np.inf).schedule


def run(
    strategy: str, problem: Problem, oracle: Oracle, trials: int, size: int, seed: int
) -> Curve:
    """One search of `trials` trials in rounds of `size`."""
    own: list[MeasureRecord] = []
    elapsed: list[float] = []
    started = time.perf_counter()
    while len(own) < trials:
        schedules = propose(strategy, problem, own, min(size, trials - len(own)), seed)
        if not schedules:
            break
        own += oracle.records(problem.task, schedules, len(own) // size)
        elapsed += [time.perf_counter() - started] * (len(own) - len(elapsed))
    return Curve(tuple(own), tuple(elapsed))


def compare(
    problems: Sequence[Problem],
    oracle: Oracle,
    *,
    trials: int = 32,
    size: int = 8,
    seeds: int = 5,
    strategies: Sequence[str] = STRATEGIES,
) -> Curves:
    """Every strategy on every problem with every seed."""
    return {
        s: {p.name: [run(s, p, oracle, trials, size, seed) for seed in range(seeds)]
            for p in problems}
        for s in strategies
    }  # fmt: skip


def settle(
    found: Curves, problems: Sequence[Problem], oracle: Oracle, marks: Sequence[int] = MARKS
) -> None:
    """Times all picks of each problem once more, in turns, beside the best on record."""
    for p in problems:
        curves = [curve for by in found.values() for curve in by[p.name]]
        picks = [curve.pick(at) for curve in curves for at in marks]
        wanted = {s.key: s for s in (*picks, *oracle.fastest(p.task, _FINALISTS))}
        oracle.settle(p.task, list(wanted.values()))


def excess(problem: Problem, curves: Sequence[Curve], oracle: Oracle, at: int) -> float:
    """Median over the seeds of (pick after `at` trials) / best known."""
    best = oracle.best(problem.task)
    return float(np.median([oracle.seconds(problem.task, c.pick(at)) / best for c in curves]))


def report(found: Curves, problems: Sequence[Problem], oracle: Oracle) -> str:
    """A markdown table: a row a problem and strategy, columns of trials; then their medians."""
    longest = max(len(c.records) for by in found.values() for cs in by.values() for c in cs)
    marks = [m for m in MARKS if m <= longest]
    lines = ["| task | search | " + " | ".join(f"{m} trials" for m in marks) + " | seconds |"]
    lines.append("|---|---|" + "---:|" * (len(marks) + 1))
    table = {
        (p.name, s): [excess(p, by[p.name], oracle, m) for m in marks]
        + [float(np.median([c.seconds[-1] for c in by[p.name]]))]
        for p in problems
        for s, by in found.items()
    }
    for s in found:
        rows = np.array([table[p.name, s] for p in problems])
        table["median of the tasks", s] = np.median(rows, 0).tolist()
    for (name, strategy), (*cells, spent) in table.items():
        shown = " | ".join(f"{cell:.3f}" for cell in cells)
        lines.append(f"| {name} | {strategy} | {shown} | {spent:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", default=TWELVE, help="network:number,... (twelve families)")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--round", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--long", type=int, default=256, help="trials of the long search (256)")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    options = parser.parse_args()
    problems = _problems(options.tasks.split(","))
    with ExitStack() as stack:
        oracle = Oracle(options.record, *([None] * 2 if options.replay else _live(stack, problems)))
        stack.callback(oracle.save)
        for p in problems:
            if options.long:
                run("model", p, oracle, options.long, 16, seed=2000)
            oracle.save()
        _give_histories(problems, oracle, options)
        found = compare(
            problems, oracle, trials=options.trials, size=options.round, seeds=options.seeds,
            strategies=options.strategies.split(","),
        )  # fmt: skip
        settle(found, problems, oracle, [m for m in MARKS if m <= options.trials])
    print(report(found, problems, oracle))


def _live(stack: ExitStack, problems: Sequence[Problem]) -> list[Measure]:
    """Measuring as in a tuning run, and in more passes over all that is to be compared."""
    mode, cores = problems[0].task.timing_mode, host().cores
    careful = MeasureOptions(passes=9, prune_factor=100.0, finalists=1)

    def measure(options: MeasureOptions) -> Measure:
        measurer = stack.enter_context(Measurer(host(), cores, mode, options))
        return lambda task, schedules, anchor: measurer.measure(task, schedules, anchor=anchor)

    return [measure(MeasureOptions()), measure(careful)]


def _problems(names: Sequence[str]) -> list[Problem]:
    target = host()
    wanted = [(net, int(number)) for net, number in (name.split(":") for name in names)]
    known = {
        net: merge_tasks([load_network(net, target)], target.cores)
        for net in dict.fromkeys(net for net, _ in wanted)
    }
    spaces: dict[str, TaskSpace] = {}

    def problem(net: str, task: SearchTask) -> Problem:
        made = sketches(task.workload, target, target.cores)
        spaces[task.key] = TaskSpace(made, target.cores)
        return Problem(
            f"{net}: {task_name(task.workload)[:44]}", task, spaces[task.key],
            pretrained(target), spaces.get, net,
        )  # fmt: skip

    return [problem(net, known[net][number]) for net, number in wanted]


def _give_histories(
    problems: Sequence[Problem], oracle: Oracle, options: argparse.Namespace
) -> None:
    """Every problem gets what one search from nothing measured on tasks of the other networks."""
    if "history" not in options.strategies:
        return
    runs = {
        p.name: run("model", p, oracle, options.trials, options.round, seed=1000) for p in problems
    }
    for p in problems:
        others = [q for q in problems if q.network != p.network]
        p.others = tuple(r for q in others for r in runs[q.name].records)


if __name__ == "__main__":
    main()
