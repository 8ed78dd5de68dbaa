"""Operators that the engine has never seen, tuned and set against what this machine allows.

    python -m benchmarks.search.unseen [--trials 64] [--threads 1] [--only NAME] [--write]

In: computations declared with `engine.expr` alone; nothing in the project knows of them.  Out: the
best latency after so many trials from nothing, and its share of the bound of `bounds.py`.  Trials
are built, verified and timed as in a tuning run, without a database; at the end the best few are
timed once more in turns, and the machine before and after.  --write makes benchmarks/UNSEEN.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.search.bounds import (
    Bound,
    Cost,
    Peaks,
    bound,
    cost_of,
    formula_rate,
    peaks_of,
)
from engine.expr import Axis, ComputeDag, Placeholder, Read, Stage, row_major, var, workload_key
from engine.expr.nodes import Binary
from engine.graph.task import SearchTask, Workload
from engine.measure import MeasureOptions, Measurer
from engine.measure.lock import machine_lock
from engine.measure.machine import measure_machine
from engine.records import MeasureRecord
from engine.target import Target, host
from tasks.machine import machine_info
from tasks.searching import Searching
from tasks.table import anchor_record

FINALISTS = 5
"""Best candidates that are timed once more at the end."""
_REPORT = Path(__file__).resolve().parent.parent / "UNSEEN.md"


def locally_connected(channels: int = 32, size: int = 16, window: int = 3) -> ComputeDag:
    """A convolution with weights of its own at every place: each weight is used once.

    local[oc, oh, ow] += data[ic, oh + kh, ow + kw] * weight[oc, oh, ow, ic, kh, kw]
    """
    wide = size + window - 1
    at = (var("ic"), var("oh") + var("kh"), var("ow") + var("kw"))
    own = (var("oc"), var("oh"), var("ow"), var("ic"), var("kh"), var("kw"))
    axes = (Axis("oc", channels), Axis("oh", size), Axis("ow", size))
    inner = (Axis("ic", channels), Axis("kh", window), Axis("kw", window))
    return _dag(
        Stage("local", axes, Read("data", at) * Read("weight", own), inner, "sum"),
        Placeholder("data", (channels, wide, wide)),
        Placeholder("weight", tuple(a.extent for a in axes + inner), constant=True),
    )


def squared_distances(rows: int = 512, columns: int = 512, depth: int = 128) -> ComputeDag:
    """Every row of one matrix against every row of another.

    distance[i, j] += (a[i, k] - b[j, k]) * (a[i, k] - b[j, k])
    """
    gap = Read("a", (var("i"), var("k"))) - Read("b", (var("j"), var("k")))
    axes = (Axis("i", rows), Axis("j", columns))
    return _dag(
        Stage("distance", axes, gap * gap, (Axis("k", depth),), "sum"),
        Placeholder("a", (rows, depth)), Placeholder("b", (columns, depth)),
    )  # fmt: skip


def codebook_distances(rows: int = 512, columns: int = 512, depth: int = 128) -> ComputeDag:
    """The same against the fixed entries of a codebook, as in vector quantisation."""
    dag = squared_distances(rows, columns, depth)
    a, b = dag.placeholders
    return replace(dag, placeholders=(a, replace(b, constant=True)))


def tropical_product(rows: int = 384, columns: int = 384, depth: int = 128) -> ComputeDag:
    """A matrix product of the max-plus semiring: longest paths.

    tropical[i, j] max= a[i, k] + b[k, j]
    """
    way = Read("a", (var("i"), var("k"))) + Read("b", (var("k"), var("j")))
    axes = (Axis("i", rows), Axis("j", columns))
    return _dag(
        Stage("tropical", axes, way, (Axis("k", depth),), "max"),
        Placeholder("a", (rows, depth)), Placeholder("b", (depth, columns)),
    )  # fmt: skip


def cost_volume(
    height: int = 16, width: int = 64, channels: int = 256, shifts: int = 32
) -> ComputeDag:
    """How alike the features of a stereo pair are for every shift between the two images.

    volume[h, w, d] += left[h, w, c] * right[h, w + d, c]       right is wider by the shifts
    """
    pair = Read("left", (var("h"), var("w"), var("c"))) * Read(
        "right", (var("h"), var("w") + var("d"), var("c"))
    )
    axes = (Axis("h", height), Axis("w", width), Axis("d", shifts))
    return _dag(
        Stage("volume", axes, pair, (Axis("c", channels),), "sum"),
        Placeholder("left", (height, width, channels)),
        Placeholder("right", (height, width + shifts - 1, channels)),
    )


def bilinear_form(outputs: int = 64, left: int = 128, right: int = 128) -> ComputeDag:
    """A matrix of its own between two vectors for each output.

    bilinear[o] += (x[i] * y[j]) * weight[o, i, j]
    """
    pair = Binary("mul", Read("x", (var("i"),)), Read("y", (var("j"),)))
    body = pair * Read("weight", (var("o"), var("i"), var("j")))
    return _dag(
        Stage("bilinear", (Axis("o", outputs),), body, (Axis("i", left), Axis("j", right)), "sum"),
        Placeholder("x", (left,)), Placeholder("y", (right,)),
        Placeholder("weight", (outputs, left, right), constant=True),
    )  # fmt: skip


OPERATORS: dict[str, Callable[[], ComputeDag]] = {
    "locally connected layer": locally_connected,
    "squared distances": squared_distances,
    "squared distances to a codebook": codebook_distances,
    "max-plus matrix product": tropical_product,
    "stereo cost volume": cost_volume,
    "bilinear form": bilinear_form,
}


def _dag(stage: Stage, *placeholders: Placeholder) -> ComputeDag:
    return ComputeDag(placeholders, (stage,), (stage.name,))


def search_task(dag: ComputeDag, target: Target, threads: int) -> SearchTask:
    """A declaration as something to tune; inputs and outputs lie row by row."""
    names = [p.name for p in dag.placeholders if not p.constant] + list(dag.outputs)
    layouts = {name: row_major(dag.shapes[name]) for name in names}
    workload = Workload(workload_key(dag), dag, layouts, dag.anchor.name)
    return SearchTask(workload, target, threads=threads)


def tune(task: SearchTask, measurer: Measurer, trials: int, size: int) -> list[MeasureRecord]:
    """Records of at most `trials` trials in rounds of `size`, from nothing; fewer if the space
    ends."""
    search = Searching([task], task.target, (), 0)
    own: list[MeasureRecord] = []
    while len(own) < trials:
        proposals = search.propose(task, own, min(size, trials - len(own)), len(own) // size)
        if not proposals:
            break
        records = measurer.measure(
            task, [p.schedule for p in proposals], round_index=len(own) // size,
            predicted=[p.predicted for p in proposals], anchor=anchor_record(own),
        )  # fmt: skip
        search.add(records)
        own += records
    return own


@dataclass(frozen=True, slots=True)
class Result:
    """One operator: its trials, the best one's seconds, and what the machine would allow."""

    name: str
    threads: int
    trials: int
    failed: int
    seconds: float
    cost: Cost
    peaks: Peaks
    bound: Bound
    schedule: str

    @property
    def share(self) -> float:
        """Of the bound; 1 is as fast as the machine allows."""
        return self.bound.seconds / self.seconds

    @property
    def gflops(self) -> float:
        return self.cost.flops / self.seconds / 1e9

    @property
    def gbytes(self) -> float:
        """10^9 bytes of all tensors, each once, a second."""
        return (self.cost.constant_bytes + self.cost.variable_bytes) / self.seconds / 1e9


def evaluate(
    name: str, dag: ComputeDag, measurers: tuple[Measurer, Measurer], trials: int, size: int
) -> Result:
    """Tune one operator with the first measurer, time its best again with the second."""
    quick, careful = measurers
    target, threads = quick.target, quick.threads
    task = search_task(dag, target, threads)
    before = _machine(dag, target, threads)
    own = tune(task, quick, trials, size)
    good = sorted((r for r in own if r.valid), key=lambda r: r.latency)[:FINALISTS]
    last = careful.measure(task, [r.schedule for r in good])
    peaks = _faster(before, _machine(dag, target, threads))
    best = min(last, key=lambda r: r.latency)
    return Result(
        name, threads, len(own), sum(not r.valid for r in own), best.latency, cost_of(dag), peaks,
        bound(cost_of(dag), peaks), best.schedule.key,
    )  # fmt: skip


def _machine(dag: ComputeDag, target: Target, threads: int) -> Peaks:
    """Cores do not share vector units: what one can, each can.  Nobody else measures meanwhile."""
    with machine_lock(None, print):
        points = threads * formula_rate(dag.stages[0], target, 1)
        machine = measure_machine(target, threads)
    return peaks_of(cost_of(dag), points, machine, target)


def _faster(one: Peaks, other: Peaks) -> Peaks:
    """The better figures of both: a peak that a neighbour on the host held back is none."""
    return Peaks(
        max(one.points, other.points), max(one.memory, other.memory), max(one.cache, other.cache),
        one.level,
    )  # fmt: skip


def report(results: Sequence[Result]) -> str:
    """A markdown table, a row an operator."""
    lines = [
        "| operator | threads | trials | failed | ms | GFLOP/s | GB/s | limit | bound ms | share |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|---:|",
    ]
    for r in results:
        lines.append(
            f"| {r.name} | {r.threads} | {r.trials} | {r.failed} | {1e3 * r.seconds:.3f} | "
            f"{r.gflops:.1f} | {r.gbytes:.1f} | {r.bound.limit} | {1e3 * r.bound.seconds:.3f} | "
            f"{r.share:.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--round", type=int, default=8)
    parser.add_argument("--threads", default="1", help="one number or several: 1,2")
    parser.add_argument("--only", default="", help="operators whose name holds this")
    parser.add_argument("--write", action="store_true", help=f"write {_REPORT.name}")
    parser.add_argument("--schedules", action="store_true", help="show the best schedules, too")
    options = parser.parse_args()
    results = []
    for threads in map(int, options.threads.split(",")):
        careful = MeasureOptions(passes=9, prune_factor=100.0, finalists=1)
        with Measurer(host(), threads) as quick, Measurer(host(), threads, options=careful) as slow:
            for name, declare in OPERATORS.items():
                if options.only in name:
                    found = evaluate(name, declare(), (quick, slow), options.trials, options.round)
                    results.append(found)
                    print(report([found]).splitlines()[-1], flush=True)
                    if options.schedules:
                        print(f"    {found.schedule}\n    {found.peaks}", flush=True)
    if options.write:
        _REPORT.write_text(page(results), encoding="utf-8")


def page(results: Sequence[Result]) -> str:
    """UNSEEN.md."""
    about = machine_info(host())
    return (
        "# Operators never seen before\n\n"
        "Made by `python -m benchmarks.search.unseen --write` on "
        f"{time.strftime('%Y-%m-%d')}: {about.cpu_model}, {about.cores} cores.\n\n"
        f"{_TEXT}\n{report(results)}\n"
    )


_TEXT = """No operator of the project computes these: each is declared in
`benchmarks/search/unseen.py` by its formula alone, and tuned from nothing.

*Limit* is what binds the operator on this machine, *bound ms* the least time that it allows:
arithmetic as fast as the vector units take the formula's instructions from registers, constants
once from memory (they are cold), or inputs and outputs once from the cache that holds them all.
*Share* is the bound divided by the best candidate's time. The best five candidates were timed once
more in turns after the last trial, and the machine before the first and after that; a share above
100% says that both of these were disturbed.
"""


if __name__ == "__main__":
    main()
