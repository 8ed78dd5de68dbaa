"""How fast the record store is when it holds millions of records.

    python -m benchmarks.db --url URL --records 5000000

In: a database of its own, filled first (what it holds already is kept).  Out: a table on the
terminal, and in `benchmarks/DATABASE.md` the section of that kind of database anew.  A figure is
the median of its repeats; the best one stands beside it, for the machine may be busy.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.db.figures import FIGURES, Figure
from benchmarks.db.fill import fill
from db.store import open_store

PAGE = Path(__file__).parents[1] / "DATABASE.md"
HEAD = """# Figures of the database

Made by `python -m benchmarks.db --url URL --records N`, through the interface that the program
uses. Records are made up but of the size of real ones: ten knobs, three repeats, 32 features, one
in ten failed. They are those of 24 networks of 30 tasks, three kinds of CPU with one and two
threads, and one run of 100 rounds a night. Times are on the clock, medians of several repeats; the
best repeat is given beside them.

- *stored in rounds of 64*: each round with its table of tasks, one transaction a round, on the disk
  before the next begins
- *best records of 30 tasks*: those of one network, another one each time
- *history for the cost model*: the newest trials of a scope, until features and latencies stand in
  arrays
- *resume of a run*: from nothing open to everything read: networks registered, the run opened with
  its rounds, all records of its tasks, and the history for the cost model
"""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.db", description=__doc__)
    parser.add_argument("--url", required=True, help="a database of its own; a path is SQLite")
    parser.add_argument("--records", type=int, default=200_000, help="records to hold at least")
    parser.add_argument("--repeats", type=int, default=7)
    names = [figure.name for figure in FIGURES]
    parser.add_argument("--rows", nargs="+", choices=names, default=names, help="figures to take")
    parser.add_argument(
        "--note", default="", help="a sentence for the page, such as of the machine"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write, or - for none")
    return parser


def section(url: str, runs: int, chosen: Sequence[Figure], repeats: int) -> tuple[str, str]:
    """Heading and text of a database's part of the page."""
    lines = ["| what | goal | median | best |", "|---|---|---|---|"]
    for figure in chosen:
        found = figure.measure(url, runs, repeats)
        cells = (figure.show(statistics.median(found)), figure.show(min(found)))
        lines.append(f"| {figure.what} | {figure.goal} | {cells[0]} | {cells[1]} |")
        print(lines[-1], flush=True)
    with open_store(url) as store:
        stats = store.stats()
    kind = "PostgreSQL" if url.startswith("postgres") else "SQLite"
    text = (
        f"{stats.records:,} records, {stats.rounds:,} rounds, {stats.runs:,} runs, "
        f"{stats.size_bytes / 2**30:.1f} GiB; {time.strftime('%Y-%m-%d')}, "
        f"Python {platform.python_version()}.\n\n" + "\n".join(lines) + "\n"
    )
    return f"## {kind}", text


def merged(page: str, heading: str, text: str) -> str:
    """The page with the part under `heading` replaced, or added at the end."""
    head, *parts = page.split("\n## ") if page else [HEAD.rstrip("\n") + "\n"]
    known = {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}
    known[heading.removeprefix("## ")] = "\n" + text
    rest = "".join(f"\n## {name}\n{body.rstrip()}\n" for name, body in known.items())
    return head.rstrip("\n") + "\n" + rest


def main() -> None:
    options = arguments().parse_args()
    runs = fill(options.url, options.records, lambda line: print(line, file=sys.stderr, flush=True))
    chosen = [figure for figure in FIGURES if figure.name in options.rows]
    heading, text = section(options.url, runs, chosen, options.repeats)
    text += f"\n{options.note}\n" if options.note else ""
    print(f"\n{heading}\n\n{text}")
    if str(options.page) != "-":
        old = options.page.read_text(encoding="utf-8") if options.page.exists() else ""
        options.page.write_text(merged(old, heading, text), encoding="utf-8")


if __name__ == "__main__":
    main()
