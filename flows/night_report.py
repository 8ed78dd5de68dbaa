"""The night's report: rows and markdown, from plain results.

In: a `NightReport` and the last snapshot of the tuning.  Out: what the artifact and the HTML file
show.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.plots import plots_markdown
from flows.progress import HEADERS, Snapshot, table_cells, totals
from flows.text import clock, literal, markdown, milliseconds

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

_NOISE = 0.02
"""Times that differ by less are called the same."""

_ENGINES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def result_cells(result: NightResult) -> tuple[str, ...]:
    """One network's row."""
    timing = result.timing
    mine = timing.get("noctune", {}).get("median_ms")
    unchanged = str(result.outcome) == "unchanged"
    peers = [
        f"{ratio:.2f}x as fast as {_ENGINES.get(name, name)}"
        for name, ratio in timing.get("ratio", {}).items()
    ]
    return (
        result.network,
        str(result.outcome),
        _number(mine),
        "same file" if unchanged else _compared(timing.get("published_ratio")),
        ", ".join(peers) or "-",
        _beside_last(result.last_night_ms, mine),
        milliseconds(result.estimated),
        result.reason,
    )


def sentence(text: str) -> str:
    """The text with a full stop."""
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _compared(ratio: Any) -> str:
    """ "1.08x (better)": our speed against the published network's, timed in the same run."""
    return f"{ratio:.2f}x ({_word(ratio)})" if isinstance(ratio, float) else "-"


def _beside_last(last: float | None, mine: float | None) -> str:
    """ "1.900 (now better)": another run's time is told, and no ratio of two runs."""
    if last is None or mine is None:
        return _number(last)
    return f"{last:.3f} (now {_word(last / mine)})"


def _word(ratio: float) -> str:
    return "better" if ratio > 1 + _NOISE else "worse" if ratio < 1 - _NOISE else "same"


def largest_error(result: NightResult) -> str:
    """The verification's, "-" without one."""
    error = result.verification.get("max_rel_error")
    return "-" if error is None else f"{error:.1e}"


def headline(report: NightReport) -> str:
    """ "3 published, 1 failed; 1200 trials in 1:02:03"."""
    counts: dict[str, int] = {}
    for result in report.results:
        counts[str(result.outcome)] = counts.get(str(result.outcome), 0) + 1
    parts = ", ".join(f"{n} {word}" for word, n in counts.items()) or "nothing to do"
    return f"{parts}; {report.trials} trials in {clock(report.seconds)}"


def notice(report: NightReport, earlier: str) -> str:
    """What is to be known before anything else; "" for a night that was complete."""
    if report.complete:
        return ""
    what = "was interrupted" if report.interrupted else "brought no network"
    return f"This night {what}." + (" The last complete report:" if earlier else "")


def night_markdown(
    report: NightReport,
    last: Snapshot | None,
    rounds: Sequence[RoundInfo],
    title: str,
    earlier: str = "",
) -> str:
    """Networks, failures with their next steps, the files, plots, the task table.

    `earlier` is the path of the last complete report, if this one is not.
    """
    lines = [f"# {title}", ""]
    if not report.complete:
        where = literal(Path(earlier).absolute()) if earlier else ""
        lines += [f"**{notice(report, earlier)}** {where}", ""]
    lines += [headline(report), "", literal(report.about), ""]
    rows = [result_cells(r)[:_SHOWN] for r in report.results]
    lines += [markdown(RESULT_HEADERS[:_SHOWN], rows), ""]
    others = [r for r in report.results if r not in report.failed]
    lines += [_line(r, f" {r.outcome}{_verified(r)}") for r in others] + [""]
    if report.failed:
        lines += ["## Failures", "", *(_line(r, "") for r in report.failed), ""]
    files = [r for r in report.results if r.file]
    if files:
        lines += [f"## Published files on {literal(report.about.partition(':')[0] or 'disk')}", ""]
        lines += [f"- {literal(r.network)}: {literal(Path(r.file).absolute())}" for r in files]
        lines.append("")
    if last is not None:
        lines += [plots_markdown(rounds, last), ""]
        lines += ["## Search tasks", "", *(f"- {literal(line)}" for line in totals(last)), ""]
        lines.append(markdown(HEADERS, table_cells(last.rows)))
    return "\n".join(lines)


def _line(result: NightResult, what: str) -> str:
    why = f"{sentence(result.reason)} {sentence(result.next_step)}".strip()
    return f"- **{literal(result.network)}**{what}: {literal(why)}"


def _verified(result: NightResult) -> str:
    error = largest_error(result)
    return "" if error == "-" else f", largest error {error}"
