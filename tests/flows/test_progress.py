"""What a run shows: lines, the live table, the end."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from engine.search import Choice
from flows.prefect_run import _warnings
from flows.progress import (
    LineProgress,
    LiveProgress,
    LogProgress,
    Outlook,
    Snapshot,
    outlook,
    round_line,
    terminal_progress,
    totals,
    watcher,
    watching,
)
from tasks.session import RoundOutcome
from tasks.table import TaskRow

ROWS = (
    TaskRow(0, "conv2d 1x7x7x512", 2, 0.001, 231.2, 40, 0, "[a]"),
    TaskRow(1, "dense 1x512", 1, None, None, 8, 8, "[b]"),
)
DONE = RoundOutcome(4, Choice(1, "why"), 8, 6, 0.002, 0.001, "crash: signal 11", 2.5)
NOW = Snapshot(
    ROWS, {"one": (0.002, 1), "two": (None, 2)}, 48, 60, 125.0, 12.34, 35.0, 1, "why", DONE
)


def test_a_round_is_one_line() -> None:
    line = round_line(NOW)
    assert "\n" not in line
    for part in (
        "round 4: ID 1 2.000 ->", "1.000 ms", "8 trials", "2 failed (crash: signal 11)",
        "total 2.000 ms", "48 trials", "12.3/s", "2:05 used", "35 s left",
    ):  # fmt: skip
        assert part in line
    assert round_line(replace(NOW, last=None)) == ""
    empty = replace(DONE, trials=0, valid=0)
    assert "nothing new to try" in round_line(replace(NOW, last=empty))


def test_totals_say_what_is_missing() -> None:
    text = "\n".join(totals(NOW))
    assert "Estimated latency of one: 2.000 ms (without 1 search tasks" in text
    assert "Estimated latency of two: none, no search task has a record yet" in text
    assert "Estimated total latency: 2.000 ms" in text
    assert "Trials: 48 (60 on record)" in text and "Next ID: 1 (why)" in text


def test_lines_then_the_table() -> None:
    out = StringIO()
    progress = LineProgress(out)
    progress.update(replace(NOW, last=None))
    assert out.getvalue() == ""
    progress.update(NOW)
    assert out.getvalue().count("\n") == 1
    progress.close(NOW)
    assert "conv2d 1x7x7x512" in out.getvalue() and "231.20" in out.getvalue()


def test_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    progress = terminal_progress(log_json=True)
    progress.update(replace(NOW, last=None))
    progress.say("two\nlines")
    progress.update(NOW)
    progress.close(NOW)
    printed = capsys.readouterr()
    news, done = map(json.loads, printed.err.splitlines())
    assert printed.out == "" and news["msg"] == "two\nlines" and news["created"] > 0
    assert (news["levelname"], news["name"]) == ("INFO", "noctune")
    assert done["msg"] == round_line(NOW) and (done["round"], done["task"]) == (4, 1)
    assert (done["latency"], done["estimates"]) == (0.001, {"one": 0.002, "two": None})


def test_warnings_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    with _warnings(log_json=True):
        logging.getLogger("noctune.report").warning("no %s", "report")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["msg"] for line in found] == ["no report", "DeprecationWarning: old"]
    assert {line["levelname"] for line in found} == {"WARNING"}


def test_live_picture_has_the_totals_above_the_table() -> None:
    out = StringIO()
    Console(file=out, width=120).print(LiveProgress()._picture(NOW))
    text = out.getvalue()
    assert text.index("Next ID") < text.index("GFLOPS") < text.index("dense 1x512")


def test_live_news_come_and_go(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LiveProgress()
    progress.say("before")
    progress.update(NOW)
    progress.say("waiting for another tuner")
    assert progress._news
    progress.update(NOW)
    assert not progress._news
    progress.close(NOW)
    printed = capsys.readouterr().out
    assert printed.startswith("before") and "Estimated total latency" in printed


def test_flows_report_to_whoever_watches() -> None:
    assert isinstance(watcher(), LogProgress)
    mine = LineProgress(StringIO())
    with watching(mine):
        assert watcher() is mine
    assert isinstance(watcher(), LogProgress)


def test_what_further_time_would_bring() -> None:
    assert str(Outlook(600, 7400, 0.034)) == "Further 10 min would probably bring about 3%"
    assert str(Outlook(600, 7400, 0.002)).endswith("would probably bring less than 1%")
    now = replace(NOW, outlook=Outlook(600, 7400, 0.034))
    assert "Further 10 min would probably bring about 3%" in totals(now)
    out = StringIO()
    Console(file=out, width=120).print(LiveProgress()._picture(now))
    assert "Further 10 min" in out.getvalue()
    assert not any("Further" in line for line in totals(NOW))


class Expecting:
    """A session of which only the expected gain is asked."""

    def __init__(self, gain: float | None) -> None:
        self.gain, self.asked = gain, list[int]()

    def expected_gain(self, more: int) -> float | None:
        self.asked.append(more)
        return self.gain


def test_the_outlook_is_for_the_trials_of_ten_minutes() -> None:
    session = Expecting(0.25)
    assert outlook(session, 2.0) == Outlook(600, 1200, 0.25)  # type: ignore[arg-type]
    assert session.asked == [1200]
    assert outlook(session, 0.0) is None  # type: ignore[arg-type]
    assert outlook(Expecting(None), 2.0) is None  # type: ignore[arg-type]
