"""The campaign: start a command, strike it at a random moment, check, run it again, check.

In: names of faults, a kind of database, a seed.  Out: a `Verdict` for each kill.  A kill counts
only if it hit a command that was running; else it is tried again at another moment.  The run that
follows a kill may be struck, too: after three kills in a row at most, the command runs undisturbed.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.kills import checks
from benchmarks.kills.faults import FAULTS, Fault, Scene
from benchmarks.kills.jobs import Job, jobs, write_models
from benchmarks.kills.processes import Command
from benchmarks.kills.servers import DurableServer, PrefectServer, clean_environment, postgresql

_KILLS_A_DATABASE = 12
_KILLS_A_SERVER = 40
_RUN_S = 240.0
"""A command that is not disturbed must end within this time, however busy the machine is."""
_EARLY = 0.12
"""Share of the kills that come before the command has said anything."""
_START_S = 4.0
_TRIES = 10
_ROW = 3
_STRIKE_AGAIN = 0.7
"""How often the run after a kill is struck as well, as long as `_ROW` permits."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a kill did; `violations` is empty if all held."""

    number: int
    fault: str
    job: str
    moment: str
    what: str
    exit_code: int | None
    kept: int
    new: int
    seconds: float
    ended_well: bool
    """The command did its work, in spite of the kill or when it ran again; else it is still to."""
    violations: tuple[str, ...]

    def line(self) -> str:
        """One line for people."""
        verdict = "ok" if self.ended_well else "ok so far, struck again next"
        verdict = "; ".join(self.violations) or verdict
        return (
            f"{self.number:4} {self.fault:16} {self.job:5} {self.moment:22} {self.what:34} "
            f"exit {self.exit_code!s:>4}  {self.kept:4} rows kept, {self.new:3} new, "
            f"{self.seconds:5.1f} s  {verdict}"
        )


class Campaign:
    """Use as a context manager; everything lies in one temporary folder."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed = kind, seed
        self._rng = np.random.default_rng([seed, len(kind)])
        self._stack = ExitStack()
        self._postgresql: DurableServer | None = None
        self._databases = 0
        self._marker = 0
        self._row = 0
        self._job: Job | None = None

    def __enter__(self) -> Campaign:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started with & by a script
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.folder = Path(tempfile.mkdtemp(prefix="noctune-kills-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self._tmp = self.folder / "tmp"
            self._tmp.mkdir()
            if self._kind == "postgresql":
                self._postgresql = self._stack.enter_context(postgresql())
            self._prefect = PrefectServer(self.folder)
            self._stack.callback(self._prefect.kill)
            self._prefect.start(fresh=True)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, names: Sequence[str]) -> Iterator[Verdict]:
        """Strike once for each name."""
        for number, name in enumerate(names):
            if number % _KILLS_A_DATABASE == 0:
                self._new_database()
            if number and number % _KILLS_A_SERVER == 0:
                self._prefect.kill()
            is_last = number + 1 == len(names) or (number + 1) % _KILLS_A_DATABASE == 0
            yield self._one(number + 1, name, FAULTS[name], is_last)

    def _new_database(self) -> None:
        self._databases += 1
        self._work = self.folder / f"work-{self._databases}"
        self._work.mkdir()
        write_models(self._work)
        self._sqlite = str(self._work / "records.sqlite")
        new = self._postgresql.new_database() if self._postgresql else self._sqlite
        self._database = checks.Database(new)
        self._jobs = jobs(new)

    # -- one kill ---------------------------------------------------------------------------------

    def _one(self, number: int, name: str, fault: Fault, is_last: bool) -> Verdict:
        began = time.monotonic()
        job = self._job or self._jobs[int(self._rng.choice(len(self._jobs), p=(0.6, 0.4)))]
        for _ in range(_TRIES):
            self._make_ready()
            start = self._database.contents()
            command = self._start(job, fault.own_server)
            moment = self._wait(command, job, fault)
            before = self._database.contents()
            what = ""
            if command.running:
                scene = Scene(command, self._rng, self._prefect, self._postgresql, self._sqlite)
                what = fault.strike(scene)
            code = command.wait(fault.ends_in if what else _RUN_S)
            if what:
                break
        else:
            raise RuntimeError(f"{name} never hit a running command: {command.lines[-5:]}")
        self._make_ready()
        after = self._database.contents()
        wrong = self._after_kill(command, fault, code, start, before, after)
        is_done = code == 0
        if not is_done and (is_last or self._rests()):
            wrong += self._again(job, after)
            is_done = True
        if is_done:
            wrong += self._at_rest(job)
            self._row = 0
        self._job = None if is_done else job
        return Verdict(
            number, name, job.name, moment, what, code, len(after), len(after) - len(before),
            time.monotonic() - began, is_done, tuple(wrong),
        )  # fmt: skip

    def _rests(self) -> bool:
        """Whether the command may now run undisturbed."""
        self._row += 1
        return self._row >= _ROW or bool(self._rng.random() > _STRIKE_AGAIN)

    def _make_ready(self) -> None:
        """Both servers are there again."""
        if not self._prefect.answers():
            self._prefect.kill()
            self._prefect.start(fresh=True)

    def _start(self, job: Job, own_server: bool = False) -> Command:
        self._marker += 1
        home = self.folder / ("prefect-own" if own_server else "prefect-client")
        extra = {"TMPDIR": str(self._tmp), "PREFECT_HOME": str(home)}
        if not own_server:
            extra["PREFECT_API_URL"] = self._prefect.url
        marker = f"{self._seed}-{self.folder.name}-{self._marker}"
        return Command(job.arguments, clean_environment(extra), self._work, marker)

    def _wait(self, command: Command, job: Job, fault: Fault) -> str:
        """Let the command come to a random moment; says which."""
        if self._rng.random() < _EARLY and not (fault.own_server or fault.tuning):
            seconds = float(self._rng.uniform(0.05, _START_S))
            command.pause(seconds)
            return f"{seconds:.2f} s after start"
        first, last = job.tuning if fault.tuning else (1, job.lines)
        line = int(self._rng.integers(first, last + 1))
        seconds = float(self._rng.uniform(0.0, 0.8))
        command.wait_lines(line, _RUN_S)
        command.pause(seconds)
        return f"line {line} + {seconds:.2f} s"

    # -- what must hold ---------------------------------------------------------------------------

    def _after_kill(
        self,
        command: Command,
        fault: Fault,
        code: int | None,
        start: checks.Contents,
        before: checks.Contents,
        after: checks.Contents,
    ) -> list[str]:
        wrong = [f"left over: {line}" for line in command.survivors()]
        command.end_all()
        if code is None:
            wrong.append(f"did not end within {fault.ends_in:g} s: {command.lines[-1:]}")
        if fault.goes_on and code != 0:
            wrong.append(f"did not go on: exit {code}: {command.lines[-1:]}")
        wrong += _tracebacks(command.lines)[:1]
        missing = checks.told(command.lines) - (after.trials - start.trials)
        if missing > 0:
            wrong.append(f"{missing} trials that were reported as stored are not there")
        wrong += checks.lost(before, after) + checks.inconsistent(after)
        wrong += checks.held_locks(self._tmp)
        return wrong + checks.damaged_networks(self._work / "published")

    def _again(self, job: Job, after: checks.Contents) -> list[str]:
        """The same command, undisturbed; it must do its work and lose nothing."""
        command = self._start(job)
        code = command.wait(_RUN_S)
        wrong = [f"left over: {line}" for line in command.survivors()]
        command.end_all()
        if code != 0:
            wrong.append(f"run again: exit {code}: {command.lines[-1:]}")
        contents = self._database.contents()
        if contents.trials == after.trials:
            wrong.append("run again: no new trials")
        return wrong + checks.lost(after, contents) + checks.inconsistent(contents)

    def _at_rest(self, job: Job) -> list[str]:
        """What a command that has ended well leaves: nothing but its results."""
        published = self._work / "published"
        wrong = checks.left_behind(self._tmp) + checks.held_locks(self._tmp)
        wrong += self._database.damage() + checks.damaged_networks(published)
        if job.name == "night":
            wrong += checks.half_published(published)
            wrong += checks.unpublished(published, ("first", "second"))
        return wrong


def _tracebacks(lines: Sequence[str]) -> list[str]:
    """What announces each traceback, and the exception at its end."""
    found = []
    for at, line in enumerate(lines):
        if _TRACE in line:
            end = next((x for x in lines[at + 1 :] if x and not x.startswith(" ")), "")
            found.append(f"traceback: {lines[at - 1] if at else ''} | {end}")
    return found


_TRACE = "Traceback (most recent call last)"
