"""Is the estimate of remaining gain right?  Replays recorded runs and measures nothing.

    python -m benchmarks.search.gain --db FILE [--db FILE] [--network NAME] [--write]

In: databases, which are only read.  Out: for points of each run, from the first on at which every
search task has a latency: the share of the estimated time that further trials were expected to save
by what was on record then, beside the share that they did save.  All of it twice: with latencies as
recorded, and as they were measured (`extra.scale` taken out).  With --write it becomes
benchmarks/GAIN.md; what its text says stands in benchmarks/search/gain_notes.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.search.replay import Run, copy_of, replays
from engine.search import predict_total

POINTS = (0.0, 0.15, 0.25, 0.4, 0.6)
"""Shares of a run's trials behind its warm-up."""
HORIZONS = (100, 200, 400, None)
"""Further trials (rounded up to whole rounds); None: all that followed."""
FEWEST = 30
"""Further trials below which nothing is asked."""
TINY, TINY_SAID = 0.01, 0.02
"""A gain below the first is judged right if less than the second was expected."""
GOAL = Path(__file__).resolve().parents[1] / "GAIN.md"
NOTES = Path(__file__).with_name("gain_notes.md")


@dataclass(frozen=True, slots=True)
class Check:
    """One prediction: after `trials` of the run, for `more`; shares of the estimated time."""

    network: str
    run: int
    threads: int
    trials: int
    more: int
    said: float
    came: float

    @property
    def ratio(self) -> float:
        """Predicted by actual gain."""
        return self.said / self.came if self.came > 0 else float("inf")

    @property
    def tiny(self) -> bool:
        return self.came < TINY

    @property
    def right(self) -> bool:
        """Within a factor of two, or rightly called tiny."""
        return self.said < TINY_SAID if self.tiny else 0.5 <= self.ratio <= 2.0


def checks(run: Run) -> Iterator[Check]:
    """Every point and horizon of a run; none if it never got past its warm-up."""
    ends = run.warm
    points = {_at(ends, ends[0] + p * (ends[-1] - ends[0])) for p in POINTS} if ends else set()
    for now in sorted(points):
        cost, known = run.cost(now), run.histories(now)
        goals = {_at(ends, ends[-1] if h is None else now + h) for h in HORIZONS}
        for then in sorted(goals - {-1}):
            if then - now < FEWEST:
                continue
            said = predict_total(cost, known, then - now) / cost.sum()
            came = 1.0 - run.cost(then).sum() / cost.sum()
            yield Check(
                run.network, run.number, run.threads, now - run.ends[0], then - now, said, came
            )


def _at(ends: Sequence[int], count: float) -> int:
    """The first of `ends` that is not below `count`, -1 if none is."""
    return next((end for end in ends if end >= count), -1)


def summary(name: str, found: Sequence[Check]) -> str:
    """One row: how many of the checks came out right."""
    large, tiny = [c for c in found if not c.tiny], [c for c in found if c.tiny]
    ratio = f"{median(c.ratio for c in large):.2f}" if large else "-"
    return (
        f"| {name} | {sum(c.right for c in large)} of {len(large)} | {_share(large)} | {ratio} "
        f"| {sum(c.right for c in tiny)} of {len(tiny)} |"
    )


def _share(found: Sequence[Check]) -> str:
    return f"{sum(c.right for c in found) / len(found):.0%}" if found else "-"


def report(views: dict[str, Sequence[Check]]) -> str:
    """Summaries of each view, then all checks in full."""
    lines = [
        "| latencies | runs | within a factor of two | share | median predicted / actual "
        "| gain below 1%, predicted below 2% |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for view, found in views.items():
        for group, part in _groups(found):
            lines.append(f"| {view} " + summary(group, part))
    for view, found in views.items():
        lines += [
            "", f"Latencies {view}:", "",
            "| run | after trials | further trials | predicted | actual | predicted / actual |",
            "|---|---:|---:|---:|---:|---:|",
        ]  # fmt: skip
        lines += [
            f"| {c.run} {c.network} | {c.trials} | {c.more} | {c.said:.1%} | {c.came:.1%} "
            f"| {c.ratio:.2f} |"
            for c in found
        ]
    return "\n".join(lines)


def _groups(found: Sequence[Check]) -> Iterator[tuple[str, Sequence[Check]]]:
    yield "all", found
    for threads in sorted({c.threads for c in found}):
        yield f"threads: {threads}", [c for c in found if c.threads == threads]
    for name, low, high in (("up to 150 further trials", 0, 150), ("151 to 300", 150, 300),
                            ("more than 300", 300, 10**9)):  # fmt: skip
        yield name, [c for c in found if low < c.more <= high]


def replay_files(files: Iterable[Path], network: str, *, scaled: bool) -> list[Check]:
    """The checks of all runs in the databases."""
    found: list[Check] = []
    for path in files:
        with copy_of(path) as store:
            for run in replays(store, network, scaled=scaled):
                found += checks(run)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", type=Path, action="append", required=True, help="SQLite file")
    parser.add_argument("--network", default="")
    parser.add_argument("--write", action="store_true", help=f"write {GOAL.name}")
    options = parser.parse_args()
    views = {
        name: replay_files(options.db, options.network, scaled=scaled)
        for name, scaled in (("as recorded", True), ("as measured", False))
    }
    text = report(views)
    if options.write:
        GOAL.write_text(f"{NOTES.read_text().rstrip()}\n\n{text}\n")
    print(text)


if __name__ == "__main__":
    main()
