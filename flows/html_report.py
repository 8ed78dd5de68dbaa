"""The night's report as one HTML file without links to anything outside.

In: a `NightReport`, the last snapshot, the rounds in the database.  Out: FOLDER/report-DATE.html
and FOLDER/report.html (the newest).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from db.values import RoundInfo
from engine.files import replacing
from flows.night_report import RESULT_HEADERS, headline, result_cells, sentence
from flows.plots import allocation_plot, latency_plot
from flows.progress import HEADERS, Snapshot, table_cells

if TYPE_CHECKING:
    from flows.nightly import NightReport

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #223; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dde; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.failed td { background: #fdecea; } tr.published td { background: #edf7ef; }
svg { max-width: 100%; height: auto; }
@media print { body { margin: 0; max-width: none; } tr { break-inside: avoid; } }
"""


def write_report(
    folder: str,
    report: NightReport,
    last: Snapshot | None,
    rounds: Sequence[RoundInfo],
    title: str,
) -> Path:
    """Write both files and return the dated one.  Raises OSError."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    text = report_html(report, last, rounds, title)
    path = home / f"report-{time.strftime('%Y-%m-%dT%H%M%S')}.html"
    for goal in (path, home / "report.html"):
        with replacing(goal) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return path


def report_html(
    report: NightReport, last: Snapshot | None, rounds: Sequence[RoundInfo], title: str
) -> str:
    """The whole page."""
    rows = [(str(r.outcome), result_cells(r)) for r in report.results]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>",
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1><p>{escape(headline(report))}</p>",
        _table(RESULT_HEADERS, rows),
    ]
    if report.failed:
        items = "".join(
            f"<li><b>{escape(r.network)}</b>: {escape(sentence(r.reason))} "
            f"{escape(r.next_step)}</li>"
            for r in report.failed
        )
        parts.append(f"<h2>Failures</h2><ul>{items}</ul>")
    parts.append(latency_plot(rounds))
    if last is not None:
        parts.append(allocation_plot(last))
        parts.append("<h2>Search tasks</h2>")
        parts.append(_table(HEADERS, [("", cells) for cells in table_cells(last.rows)]))
    return "\n".join(parts) + "</html>\n"


def _table(headers: Sequence[str], rows: Sequence[tuple[str, Sequence[object]]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in headers)
    body = ""
    for kind, cells in rows:
        inner = "".join(
            f"<td{' class=n' if _is_number(c) else ''}>{escape(str(c))}</td>" for c in cells
        )
        body += f"<tr class='{escape(kind)}'>{inner}</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"


def _is_number(cell: object) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True
