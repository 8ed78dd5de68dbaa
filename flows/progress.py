"""What people see while a run goes on: one line a round, or a live table in a terminal.

In: snapshots of a session.  Out: text.  A flow reports to the `Progress` of its context; without
one it writes lines to Prefect's log.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from flows.budget import Budget
from flows.json_lines import json_line
from flows.text import clock, milliseconds, table

if TYPE_CHECKING:
    from rich.console import Group

    from engine.search import Choice
    from tasks.session import RoundOutcome, TuningSession
    from tasks.table import TaskRow

HEADERS = ("ID", "search task", "weight", "latency ms", "GFLOPS", "trials", "failed")


OUTLOOK_S = 600.0
"""Further seconds for which the expected gain is told."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What `seconds` more at the present rate would probably bring: `gain` is the share (0 to 1) of
    the networks' estimated latency that `trials` more would save."""

    seconds: float
    trials: int
    gain: float

    def __str__(self) -> str:
        share = f"about {self.gain:.0%}" if self.gain >= 0.01 else "less than 1%"
        return f"Further {self.seconds / 60:g} min would probably bring {share}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How a run stands; latencies and times in seconds."""

    rows: tuple[TaskRow, ...]
    estimates: dict[str, tuple[float | None, int]]
    trials: int
    known_trials: int
    used: float
    rate: float
    time_left: float | None
    next_id: int | None
    reason: str
    last: RoundOutcome | None = None
    outlook: Outlook | None = None

    @property
    def total(self) -> float | None:
        """Sum of the networks' estimates; None while no task has a latency."""
        known = [seconds for seconds, _ in self.estimates.values() if seconds is not None]
        return sum(known) if known else None

    @property
    def untuned(self) -> int:
        """Search tasks without a valid record."""
        return sum(row.latency is None for row in self.rows)


def snapshot(
    session: TuningSession, budget: Budget, choice: Choice | None, last: RoundOutcome | None
) -> Snapshot:
    """How the session stands, with the task that comes next."""
    rows = session.rows()
    return Snapshot(
        rows=rows,
        estimates=session.estimates(),
        trials=session.new_trials,
        known_trials=sum(row.trials for row in rows),
        used=budget.used,
        rate=budget.rate,
        time_left=budget.time_left,
        next_id=None if choice is None else choice.index,
        reason="" if choice is None else choice.reason,
        last=last,
        outlook=outlook(session, budget.rate),
    )


def outlook(session: TuningSession, rate: float) -> Outlook | None:
    """What further time would bring at `rate` trials a second; None while that is unknown."""
    trials = round(rate * OUTLOOK_S)
    gain = session.expected_gain(trials) if trials else None
    return None if gain is None else Outlook(OUTLOOK_S, trials, gain)


def table_cells(rows: tuple[TaskRow, ...]) -> list[tuple[object, ...]]:
    """The task table's cells, without markup."""
    return [
        (
            row.id, row.name, row.weight, milliseconds(row.latency),
            "-" if row.gflops is None else f"{row.gflops:.2f}", row.trials, row.failed,
        )
        for row in rows
    ]  # fmt: skip


def task_table(rows: tuple[TaskRow, ...]) -> str:
    """The task table in plain text."""
    return table(HEADERS, table_cells(rows), left=2)


def totals(now: Snapshot) -> list[str]:
    """The lines under the table."""
    lines = []
    for name, (seconds, untuned) in now.estimates.items():
        if seconds is None:
            lines.append(f"Estimated latency of {name}: none, no search task has a record yet")
            continue
        more = f" (without {untuned} search tasks that have no record yet)" if untuned else ""
        lines.append(f"Estimated latency of {name}: {milliseconds(seconds)} ms{more}")
    if len(now.estimates) > 1 and now.total is not None:
        lines.append(f"Estimated total latency: {milliseconds(now.total)} ms")
    parts = [
        f"Trials: {now.trials}" + _known(now),
        f"Used time: {clock(now.used)}",
        f"{now.rate:.1f} trials/s",
    ]
    if now.time_left is not None:
        parts.append(f"Time left: {clock(now.time_left)}")
    lines.append("   ".join(parts))
    if now.outlook is not None:
        lines.append(str(now.outlook))
    if now.next_id is not None:
        lines.append(f"Next ID: {now.next_id} ({now.reason})")
    return lines


def _known(now: Snapshot) -> str:
    return f" ({now.known_trials} on record)" if now.known_trials != now.trials else ""


def round_line(now: Snapshot) -> str:
    """One line that says what the last round brought."""
    done = now.last
    if done is None:
        return ""
    if not done.trials:
        return f"round {done.round_index}: ID {done.choice.index}: nothing new to try"
    after = f"{milliseconds(done.after)} ms"
    change = after if not done.improved else f"{milliseconds(done.before)} -> {after}"
    failed = done.trials - done.valid
    problem = f", {failed} failed ({done.first_error[:120]})" if failed else ""
    left = f", {clock(now.time_left)} left" if now.time_left is not None else ""
    part = f" for {len(now.rows) - now.untuned} of {len(now.rows)} tasks" if now.untuned else ""
    return (
        f"round {done.round_index}: ID {done.choice.index} {change}, {done.trials} trials{problem};"
        f" total {milliseconds(now.total)} ms{part}, {now.trials} trials, {now.rate:.1f}/s, "
        f"{clock(now.used)} used{left}"
    )


class Progress(Protocol):
    """Whoever watches a run."""

    def say(self, text: str) -> None:
        """One line of news."""

    def update(self, now: Snapshot) -> None:
        """The run stands like this, before its next round."""

    def close(self, now: Snapshot | None) -> None:
        """The run has ended; `now` is None if it never got to a round."""


class LineProgress:
    """Lines to a text stream: one a round, the table at the end."""

    def __init__(self, stream: TextIO | None = None, *, final_table: bool = True) -> None:
        self._stream = stream or sys.stdout
        self._final_table = final_table

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def update(self, now: Snapshot) -> None:
        line = round_line(now)
        if line:
            self.say(line)

    def close(self, now: Snapshot | None) -> None:
        if now is not None and self._final_table:
            self.say("\n".join(["", task_table(now.rows), "", *totals(now)]))


class JsonProgress(LineProgress):
    """Lines of JSON on standard error; those of rounds have the numbers, too."""

    def __init__(self) -> None:
        super().__init__(sys.stderr, final_table=False)

    def say(self, text: str) -> None:
        super().say(json_line(text))

    def update(self, now: Snapshot) -> None:
        done = now.last
        if done is None:
            return
        estimates = {name: seconds for name, (seconds, _) in now.estimates.items()}
        numbers = {
            "round": done.round_index, "task": done.choice.index, "trials": done.trials,
            "valid": done.valid, "latency": done.after, "estimates": estimates,
        }  # fmt: skip
        super().say(json_line(round_line(now), **numbers))


class LiveProgress(LineProgress):
    """The task table, redrawn in place; plain lines before and after.

    The totals stand above the table: a terminal that is too small cuts off the end.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self._live: object | None = None
        self._news = ""
        self._now: Snapshot | None = None

    def say(self, text: str) -> None:
        if self._live is None or self._now is None:
            super().say(text)
        else:
            self._news = text
            self._draw(self._now)

    def update(self, now: Snapshot) -> None:
        self._now, self._news = now, ""
        self._draw(now)

    def _draw(self, now: Snapshot) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                self._picture(now), auto_refresh=False, transient=True, vertical_overflow="crop"
            )
            self._live.start()
        assert isinstance(self._live, Live)
        self._live.update(self._picture(now), refresh=True)

    def close(self, now: Snapshot | None) -> None:
        from rich.live import Live

        if isinstance(self._live, Live):
            self._live.stop()
        self._live = None
        super().close(now)

    def _picture(self, now: Snapshot) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        picture = Table(box=None, pad_edge=False, header_style="bold")
        for i, header in enumerate(HEADERS):
            picture.add_column(
                header, justify="left" if i == 1 else "right", no_wrap=True,
                overflow="ellipsis", ratio=1 if i == 1 else None,
            )  # fmt: skip
        for row, cells in zip(now.rows, table_cells(now.rows), strict=True):
            style = "bold green" if row.id == now.next_id else ""
            picture.add_row(*map(str, cells), style=style)
        head = [*totals(now), round_line(now), self._news]
        return Group(*(Text(line) for line in head if line), Text(""), picture)


class LogProgress:
    """Lines to Prefect's log of the run."""

    def say(self, text: str) -> None:
        from prefect.logging import get_run_logger

        get_run_logger().info(text)

    def update(self, now: Snapshot) -> None:
        line = round_line(now)
        if line:
            self.say(line)

    def close(self, now: Snapshot | None) -> None:
        if now is not None:
            self.say("\n".join([task_table(now.rows), *totals(now)]))


_watcher: ContextVar[Progress | None] = ContextVar("noctune_progress", default=None)


@contextmanager
def watching(progress: Progress) -> Iterator[Progress]:
    """Flows that are called inside report to `progress`."""
    token = _watcher.set(progress)
    try:
        yield progress
    finally:
        _watcher.reset(token)


def watcher() -> Progress:
    """The context's progress, or Prefect's log."""
    return _watcher.get() or LogProgress()


def terminal_progress(json: bool = False, log_json: bool = False) -> Progress:
    """For the command line: live in a terminal, lines elsewhere, on standard error beside JSON."""
    if log_json:
        return JsonProgress()
    if json:
        return LineProgress(sys.stderr, final_table=False)
    return LiveProgress() if sys.stdout.isatty() else LineProgress()
