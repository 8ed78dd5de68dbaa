"""Plots as SVG text, for markdown (as data URIs) and for the HTML report.

In: numbers.  Out: self-contained SVG that reads well on white and on dark ground and in print.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from flows.text import milliseconds

if TYPE_CHECKING:
    from db.values import RoundInfo
    from flows.progress import Snapshot

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 28, 40
_COLOURS = ("#2f6fdd", "#d9822b", "#2d9a5f", "#a14fc4", "#c2413b", "#5b7083")
_LEGEND_ROW = 75
"""Characters beside the title of a plot."""
_TEXT = "font-family='sans-serif' font-size='12' fill='#667'"


def line_plot(
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    title: str,
    x_label: str,
    y_label: str,
) -> str:
    """Steps through (x, y) points, one line a series; "" if there is no point."""
    points = [p for _, values in series for p in values if math.isfinite(p[1])]
    if not points:
        return ""
    x_high = max(max(x for x, _ in points), 1e-9)
    y_high = max(max(y for _, y in points), 1e-9) * 1.05
    parts = [_frame(title, x_label, y_label), *_x_ticks(x_high), *_y_ticks(y_high)]
    for i, (_, values) in enumerate(series):
        colour = _COLOURS[i % len(_COLOURS)]
        path, before = "", None
        for x, y in values:
            if not math.isfinite(y):
                continue
            px, py = _x(x, x_high), _y(y, y_high)
            path += f"M{px:.1f},{py:.1f}h0" if before is None else f"H{px:.1f}V{py:.1f}"
            before = y
        parts.append(
            f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='2' "
            "stroke-linecap='round'/>"
        )
    return _svg([*parts, *_legend([name for name, _ in series])], HEIGHT)


def _legend(names: Sequence[str]) -> list[str]:
    """The names in their colours: in the row of the title, or below each other if there are many.

    Those stand at the lower left, where lines that fall leave room.
    """
    font = "font-family='sans-serif' font-size='12' stroke='#fff' stroke-width='4'"
    halo = f"{font} paint-order='stroke'"
    colours = [_COLOURS[i % len(_COLOURS)] for i in range(len(names))]
    pairs = list(zip(names, colours, strict=True))
    if sum(map(len, names)) + 2 * len(names) <= _LEGEND_ROW:
        row = "".join(f"<tspan dx='12' fill='{c}'>{escape(name)}</tspan>" for name, c in pairs)
        return [f"<text x='{WIDTH - _RIGHT - 6}' y='18' text-anchor='end' {halo}>{row}</text>"]
    top = HEIGHT - _BOTTOM - 8 - 15 * (len(names) - 1)
    return [
        f"<text x='{_LEFT + 8}' y='{top + 15 * i}' {halo} fill='{colour}'>{escape(name)}</text>"
        for i, (name, colour) in enumerate(pairs)
    ]


def bar_plot(bars: Sequence[tuple[str, float]], title: str, unit: str) -> str:
    """Horizontal bars, longest value to the right end; "" if there is none."""
    if not bars:
        return ""
    step, label = 18, 300
    high = max(max(v for _, v in bars), 1e-9)
    height = _TOP + step * len(bars) + 16
    parts = [f"<text x='8' y='18' {_TEXT} font-weight='bold'>{escape(title)}</text>"]
    for i, (name, value) in enumerate(bars):
        y = _TOP + step * i
        width = max((WIDTH - label - 90) * value / high, 0.5)
        short = name if len(name) <= 46 else name[:45] + "…"
        parts.append(
            f"<text x='{label - 6}' y='{y + 12}' text-anchor='end' {_TEXT} >{escape(short)}</text>"
            f"<rect x='{label}' y='{y + 2}' width='{width:.1f}' height='13' fill='{_COLOURS[0]}'/>"
            f"<text x='{label + width + 5:.1f}' y='{y + 12}' {_TEXT}>"
            f"{value:g} {escape(unit)}</text>"
        )
    return _svg(parts, height)


def latency_plot(rounds: Sequence[RoundInfo]) -> str:
    """Each network's estimated latency in percent of its first one, against the time since the
    first round: big and small networks share the axis."""
    if not rounds:
        return ""
    began = rounds[0].started
    unit, length = _time_unit(rounds[-1].finished - began)
    series = []
    for name in sorted({name for r in rounds for name in r.estimates}):
        points = [(r.finished - began, r.estimates[name]) for r in rounds if name in r.estimates]
        first, last = points[0][1], points[-1][1]
        label = f"{name} {milliseconds(last)} ms"
        series.append((label, [(x / length, 100 * y / first) for x, y in points]))
    return line_plot(series, "Estimated latency", unit, "% of the first estimate")


def _time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which so long a time is told, and its seconds."""
    if seconds < 120:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 7200 else ("hours", 3600.0)


def allocation_plot(last: Snapshot) -> str:
    """Trials of each search task."""
    bars = [(f"{row.id}: {row.name}", float(row.trials)) for row in last.rows]
    return bar_plot(bars, "Trials of each search task", "trials")


def data_uri(svg: str) -> str:
    """For `![title](...)` in markdown; Prefect's interface shows no raw SVG."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def markdown_image(svg: str, title: str) -> str:
    """A markdown image, "" for an empty plot."""
    return f"![{title}]({data_uri(svg)})" if svg else ""


def plots_markdown(rounds: Sequence[RoundInfo], last: Snapshot) -> str:
    """Estimated latency against time and the trials of each task, as markdown images."""
    images = [
        markdown_image(latency_plot(rounds), "Estimated latency"),
        markdown_image(allocation_plot(last), "Trials of each search task"),
    ]
    return "\n\n".join(image for image in images if image)


def _svg(parts: Sequence[str], height: int) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        f"width='{WIDTH}' height='{height}' role='img'>"
        f"<rect width='{WIDTH}' height='{height}' fill='#fff'/>{''.join(parts)}</svg>"
    )


def _frame(title: str, x_label: str, y_label: str) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    return (
        f"<text x='8' y='18' {_TEXT} font-weight='bold'>{escape(title)}, {escape(y_label)}</text>"
        f"<path d='M{_LEFT},{_TOP}V{bottom}H{right}' fill='none' stroke='#889'/>"
        f"<text x='{right}' y='{HEIGHT - 6}' text-anchor='end' {_TEXT}>{escape(x_label)}</text>"
    )


def _x_ticks(high: float) -> list[str]:
    parts = []
    for value in _nice(high):
        x = _x(value, high)
        parts.append(
            f"<text x='{x:.1f}' y='{HEIGHT - _BOTTOM + 16}' text-anchor='middle' {_TEXT}>"
            f"{value:g}</text>"
        )
    return parts


def _y_ticks(high: float) -> list[str]:
    parts = []
    for value in _nice(high):
        y = _y(value, high)
        parts.append(
            f"<path d='M{_LEFT},{y:.1f}H{WIDTH - _RIGHT}' stroke='#dde' stroke-width='0.7'/>"
            f"<text x='{_LEFT - 6}' y='{y + 4:.1f}' text-anchor='end' {_TEXT}>{value:g}</text>"
        )
    return parts


def _nice(high: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to `high`."""
    raw = high / count
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(s * scale for s in (1, 2, 5, 10) if s * scale >= raw)
    return [i * step for i in range(int(high / step + 1e-9) + 1)]


def _x(value: float, high: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / high


def _y(value: float, high: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / high
