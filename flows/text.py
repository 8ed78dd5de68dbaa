"""Plain text for people: aligned tables and numbers of a fit length."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1) -> str:
    """Aligned columns, the first `left` ones to the left and the others to the right."""
    cells = [[str(h) for h in headers], *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        parts = [
            c.ljust(w) if i < left else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * w for w in widths), *map(line, cells[1:])])


def milliseconds(seconds: float | None) -> str:
    """ "1.234" from 0.001234; "-" for none."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    value = seconds * 1e3
    return f"{value:.4f}" if value < 1 else f"{value:.3f}"


def clock(seconds: float | None) -> str:
    """ "7 s", "2:05", "1:02:03"; "-" for none."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def dims(shape: Sequence[int] | None) -> str:
    """ "1x3x224x224"; "-" for none."""
    return "x".join(map(str, shape)) if shape else "-"


def literal(text: object) -> str:
    """The text so that markdown and HTML in it show as they are.

    "a|b *x* <b>" --> "a\\|b \\*x\\* &lt;b&gt;"
    """
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escape(str(text), quote=False))


def markdown(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join(map(literal, row)) + " |" for row in rows]
    return "\n".join(lines)


def noctune_version() -> str:
    """ "0.1.0"."""
    try:
        return version("noctune")
    except PackageNotFoundError:
        return "(not installed)"
