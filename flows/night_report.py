"""The night's report: rows and markdown, from plain results.

In: a `NightReport` and the last snapshot of the tuning.  Out: what the artifact and the HTML file
show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flows.plots import plots_markdown
from flows.progress import HEADERS, Snapshot, table_cells, totals
from flows.text import clock, markdown, milliseconds

if TYPE_CHECKING:
    from db.values import RoundInfo
    from flows.nightly import NightReport
    from tasks.night import NightResult

RESULT_HEADERS = (
    "network", "outcome", "median ms", "beside the published one", "beside peers", "last night ms",
    "estimated ms", "why",
)  # fmt: skip
_SHOWN = len(RESULT_HEADERS) - 2
"""Columns that fit into an artifact; the reasons stand below, the estimates with the tasks."""


def result_cells(result: NightResult) -> tuple[str, ...]:
    """One network's row."""
    timing = result.timing
    mine = timing.get("noctune", {}).get("median_ms")
    unchanged = str(result.outcome) == "unchanged"
    peers = [f"{ratio:.2f}x {name}" for name, ratio in timing.get("ratio", {}).items()]
    return (
        result.network,
        str(result.outcome),
        _number(mine),
        "same file" if unchanged else _compared(timing.get("published_ratio")),
        ", ".join(peers) or "-",
        _number(result.last_night_ms),
        milliseconds(result.estimated),
        result.reason,
    )


def sentence(text: str) -> str:
    """The text with a full stop."""
    return text if text.endswith((".", "!", "?")) else text + "."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _compared(ratio: Any) -> str:
    """ "1.08x (better)": our speed against the published network's, timed in the same run."""
    if not isinstance(ratio, float):
        return "-"
    word = "better" if ratio > 1.02 else "worse" if ratio < 0.98 else "same"
    return f"{ratio:.2f}x ({word})"


def headline(report: NightReport) -> str:
    """ "3 published, 1 failed; 1200 trials in 1:02:03"."""
    counts: dict[str, int] = {}
    for result in report.results:
        counts[str(result.outcome)] = counts.get(str(result.outcome), 0) + 1
    parts = ", ".join(f"{n} {word}" for word, n in counts.items()) or "nothing to do"
    return f"{parts}; {report.trials} trials in {clock(report.seconds)}"


def night_markdown(
    report: NightReport, last: Snapshot | None, rounds: Sequence[RoundInfo], title: str
) -> str:
    """Networks, failures with their next steps, links to the files, plots, the task table."""
    lines = [f"# {title}", "", headline(report), ""]
    rows = [result_cells(r)[:_SHOWN] for r in report.results]
    lines += [markdown(RESULT_HEADERS[:_SHOWN], rows), ""]
    failed = report.failed
    others = [r for r in report.results if r not in failed]
    lines += [f"- **{r.network}** {r.outcome}: {sentence(r.reason)} {r.next_step}" for r in others]
    lines.append("")
    if failed:
        lines += ["## Failures", ""]
        lines += [f"- **{r.network}**: {sentence(r.reason)} {r.next_step}" for r in failed]
        lines.append("")
    files = [r for r in report.results if r.file]
    if files:
        lines += ["## Published files", ""]
        lines += [f"- {r.network}: `{r.file}`" for r in files] + [""]
    if last is not None:
        lines += [plots_markdown(rounds, last), ""]
        lines += ["## Search tasks", "", *(f"- {line}" for line in totals(last)), ""]
        lines.append(markdown(HEADERS, table_cells(last.rows)))
    return "\n".join(lines)
