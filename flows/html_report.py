"""The night's report as one HTML file without links to anything outside of its folder.

In: a `NightReport`, the last snapshot, the rounds in the database.  Out: FOLDER/report-DATE.html
and FOLDER/report.html (the newest).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from db.values import RoundInfo
from engine.files import replacing
from flows.night_report import (
    RESULT_HEADERS,
    headline,
    largest_error,
    notice,
    result_cells,
    sentence,
)
from flows.plots import allocation_plot, latency_plot
from flows.progress import HEADERS, Snapshot, table_cells, totals

if TYPE_CHECKING:
    from flows.nightly import NightReport
    from tasks.night import NightResult

KEPT_REPORTS = 30
_DATED = re.compile(r"report-\d{4}-\d\d-\d\dT\d{6}\.html")
_COMPLETE = "<meta name='noctune-night' content='complete'>"
_NUMBERS = {"median ms", "estimated ms", "largest error"} | set(HEADERS) - {"search task"}
"""Columns that are aligned to the right."""
_WIDE = {"beside peers", "files", "why"}
_HEADERS = (*RESULT_HEADERS[:-1], "largest error", "files", RESULT_HEADERS[-1])
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #223; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dde; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; }
th.w { min-width: 9rem; }
p.notice { background: #fff3cd; padding: .5rem .8rem; }
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
    earlier: str = "",
) -> Path:
    """Write both files and return the dated one; old ones go.  Raises OSError.

    `earlier` is the path of the last complete report, if this one is not.
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    text = report_html(folder, report, last, rounds, title, earlier)
    path = home / f"report-{time.strftime('%Y-%m-%dT%H%M%S')}.html"
    for goal in (path, home / "report.html"):
        with replacing(goal) as temporary:
            temporary.write_text(text, encoding="utf-8")
    for old in _dated(home)[:-KEPT_REPORTS]:
        if str(old) != earlier:
            with suppress(OSError):
                old.unlink()
    return path


def last_complete(folder: str) -> str:
    """Path of the newest report of a night that was complete, "" if there is none."""
    for path in reversed(_dated(Path(folder))):
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            if _COMPLETE in file.read(500):
                return str(path)
    return ""


def _dated(home: Path) -> list[Path]:
    return sorted(path for path in home.glob("report-*.html") if _DATED.fullmatch(path.name))


def report_html(
    folder: str,
    report: NightReport,
    last: Snapshot | None,
    rounds: Sequence[RoundInfo],
    title: str,
    earlier: str = "",
) -> str:
    """The whole page; links are relative to `folder`."""
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'>{_COMPLETE * report.complete}",
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>",
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1>",
    ]
    if not report.complete:
        link = _link(folder, earlier) if earlier else ""
        parts.append(f"<p class='notice'>{escape(notice(report, earlier))} {link}</p>")
    parts.append(f"<p>{escape(headline(report))}</p><p>{escape(report.about)}</p>")
    rows = [(str(r.outcome), _cells(folder, r)) for r in report.results]
    parts.append(_table(_HEADERS, rows))
    for head, found in (
        ("Failures", report.failed),
        ("Next steps", [r for r in report.results if r.next_step and r not in report.failed]),
    ):
        if found:
            parts.append(f"<h2>{head}</h2><ul>{''.join(map(_item, found))}</ul>")
    parts.append(latency_plot(rounds))
    if last is not None:
        parts.append(allocation_plot(last))
        lines = "".join(f"<li>{escape(line)}</li>" for line in totals(last))
        parts.append(f"<h2>Search tasks</h2><ul>{lines}</ul>")
        parts.append(_table(HEADERS, [("", _escaped(cells)) for cells in table_cells(last.rows)]))
    return "\n".join(parts) + "</html>\n"


def _cells(folder: str, result: NightResult) -> list[str]:
    *cells, why = _escaped(result_cells(result))
    return [*cells, largest_error(result), _files(folder, result), why]


def _item(result: NightResult) -> str:
    why = f"{sentence(result.reason)} {sentence(result.next_step)}"
    return f"<li><b>{escape(result.network)}</b>: {escape(why)}</li>"


def _files(folder: str, result: NightResult) -> str:
    """Links to the published network and what was noted with it."""
    if not result.file:
        return "-"
    report = str(Path(result.file).with_name("report.json"))
    return f"{_link(folder, result.file)} {_link(folder, report)}"


def _link(folder: str, path: str) -> str:
    where = quote(os.path.relpath(path, folder))
    return f"<a href='{where}'>{escape(os.path.basename(path))}</a>"


def _escaped(cells: Sequence[object]) -> list[str]:
    return [escape(str(cell)) for cell in cells]


def _table(headers: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Rows are a class and cells in HTML."""
    kinds = [" class=n" if h in _NUMBERS else " class=w" if h in _WIDE else "" for h in headers]
    head = "".join(f"<th{k}>{escape(h)}</th>" for k, h in zip(kinds, headers, strict=True))
    body = ""
    for kind, cells in rows:
        inner = "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, cells, strict=True))
        body += f"<tr class='{escape(kind)}'>{inner}</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"
