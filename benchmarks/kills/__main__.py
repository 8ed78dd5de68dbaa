"""Kills tuning runs and nights at random moments, runs them again, and checks what is left.

`python -m benchmarks.kills --kills 200 --db sqlite` prints a line for each kill and a summary; the
exit code is 1 if anything was lost, measured twice, left over or damaged.  The faults are signals
to the command, SIGKILL of its workers and of Prefect's server, and what can happen to a database:
a stopped server and dropped connections on PostgreSQL, another writer on SQLite.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import numpy as np

from benchmarks.kills.campaign import Campaign, Verdict
from benchmarks.kills.faults import FAULTS, deck


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.kills")
    parser.add_argument("--kills", type=int, default=200, help="how many (200)")
    parser.add_argument("--db", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0, help="seed of moments and faults")
    parser.add_argument("--only", default="", help="faults, separated by commas (all)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after these")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    if unknown := sorted(set(names) - set(FAULTS)):
        parser.error(f"unknown fault {unknown[0]}; there are: {', '.join(FAULTS)}")
    rng = np.random.default_rng(options.seed)
    cards = deck(options.db, options.kills, rng)
    cards = [names[i % len(names)] for i in range(options.kills)] if names else cards
    end, verdicts = time.monotonic() + options.minutes * 60, list[Verdict]()
    with Campaign(options.db, options.seed) as campaign:
        for verdict in campaign.run(cards):
            print(verdict.line(), flush=True)
            verdicts.append(verdict)
            if time.monotonic() > end and verdict.ended_well:
                break
    print(summary(verdicts, options.db))
    return int(any(v.violations for v in verdicts))


def summary(verdicts: list[Verdict], kind: str) -> str:
    """Counts by fault, as a table in Markdown."""
    kills = Counter(v.fault for v in verdicts)
    bad = Counter(v.fault for v in verdicts if v.violations)
    lines = ["", f"| fault ({kind}) | kills | violations |", "|---|---|---|"]
    lines += [f"| {name} | {count} | {bad[name]} |" for name, count in sorted(kills.items())]
    lines.append(f"| all | {len(verdicts)} | {sum(bad.values())} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
