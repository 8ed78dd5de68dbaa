"""Reports in Prefect's interface: keys of artifacts, and markdown made of plain values.

A report that fails is logged and never ends a run: the records are in the database by then.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flows.progress import HEADERS, Snapshot, table_cells, totals
from flows.text import clock, literal, markdown, milliseconds

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("noctune.report")


def artifact_key(*parts: str) -> str:
    """Lower-case letters, digits and dashes, as Prefect demands.

    "tasks", "ResNet_50 v1.5" --> "tasks-resnet-50-v1-5"
    """
    text = "-".join(parts).lower()
    return re.sub(r"[^a-z0-9]+", "-", text)[:200].strip("-") or "noctune"


def tuning_markdown(now: Snapshot, title: str) -> str:
    """The task table and the totals."""
    lines = [f"# {literal(title)}", "", *(f"- {literal(line)}" for line in totals(now)), ""]
    lines.append(markdown(HEADERS, table_cells(now.rows)))
    return "\n".join(lines)


def evaluation_rows(timing: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(engine, median ms, minimum ms, peer's median by ours) for each engine."""
    mine = timing["noctune"]
    rows = [("noctune", f"{mine['median_ms']:.3f}", f"{mine['min_ms']:.3f}", "")]
    for name, peer in timing["peers"].items():
        ratio = f"{timing['ratio'][name]:.2f}x"
        rows.append((name, f"{peer['median_ms']:.3f}", f"{peer['min_ms']:.3f}", ratio))
    return rows


def evaluation_markdown(
    timing: Mapping[str, Any], verification: Mapping[str, Any], title: str
) -> str:
    """Times beside the peers, and whether the outputs agree (if they were verified)."""
    lines = [f"# {literal(title)}", ""]
    if verification:
        verdict = "agree with" if verification["ok"] else "**differ from**"
        lines.append(
            f"- Outputs {verdict} {verification['reference']}: largest error "
            f"{verification['max_rel_error']:.2e} of the largest output"
        )
    lines += [
        f"- {timing['threads']} threads, engines interleaved in one run",
        "",
        markdown(
            ("engine", "median ms", "minimum ms", "noctune faster by"), evaluation_rows(timing)
        ),
    ]
    return "\n".join(lines)


def publish(key: str, text: str, description: str = "") -> bool:
    """Make a markdown artifact; returns whether it worked."""
    from prefect.artifacts import create_markdown_artifact

    try:
        create_markdown_artifact(markdown=text, key=key, description=literal(description) or None)
    except Exception as error:
        log.warning("the report %s could not be made: %s", key, error)
        return False
    return True


class ProgressBar:
    """A progress artifact that is renewed at most every few seconds."""

    def __init__(self, key: str, description: str, every: float = 5.0) -> None:
        self._key, self._description, self._every = key, description, every
        self._last = 0.0
        self._id: UUID | None = None

    def show(self, now: Snapshot) -> None:
        """Percentage of the budget that is used; without a budget there is no bar."""
        share = _share(now)
        if share is None or (share < 1 and time.monotonic() - self._last < self._every):
            return
        self._last = time.monotonic()
        self._write(round(share * 100, 1), literal(f"{self._description}: {progress_text(now)}"))

    def _write(self, percent: float, text: str) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        try:
            if self._id is None:
                found: Any = create_progress_artifact(percent, key=self._key, description=text)
                self._id = found
            else:
                update_progress_artifact(self._id, percent, description=text)
        except Exception as error:
            log.warning("the progress bar %s could not be renewed: %s", self._key, error)


def progress_text(now: Snapshot) -> str:
    """ "estimated 1.234 ms, 48 trials, 2:05 left"."""
    estimate = "no estimate yet" if now.total is None else f"estimated {milliseconds(now.total)} ms"
    return f"{estimate}, {now.trials} trials, {clock(now.time_left)} left"


def _share(now: Snapshot) -> float | None:
    if now.time_left is None:
        return None
    return min(now.used / max(now.used + now.time_left, 1e-9), 1.0)
