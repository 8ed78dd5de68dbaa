"""The nightly flow: tune, compile, check and publish many networks within a time window.

In: models, a window or a number of trials, a folder.  Out: published networks, a report.  All
search tasks of all networks share the time; one broken model never stops the others; a network
replaces the published one only if it is verified and at least as fast beside it in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from db.store import open_store
from db.values import RoundInfo
from engine.errors import ModelError, NoctuneError, StoreError
from engine.measure.folders import Scratch
from engine.runtime.network import load
from flows.budget import Budget, Window
from flows.html_report import last_complete, write_report
from flows.interrupts import insisting_on_termination, stop_event
from flows.night_report import night_markdown
from flows.parameters import NightlyParameters, run_parameters
from flows.progress import Progress, Snapshot, watcher
from flows.report import artifact_key, publish
from flows.text import noctune_version
from flows.tune import tune_session
from tasks.finding import find_models, network_names
from tasks.machine import machine_info, night_lock
from tasks.networks import is_builtin
from tasks.night import Candidate, NightResult, Outcome, measured_last
from tasks.peers import is_installed
from tasks.publishing import Published, check_folder, check_name, current
from tasks.session import SessionOptions, TuningSession
from tasks.stages import (
    bench_task,
    compile_task,
    distill_task,
    load_network_task,
    note_night_task,
    prepare_task,
    settle_task,
    verify_task,
)

CLOSING_SHARE, CLOSING_FIRST, CLOSING_EACH = 0.4, 20.0, 25.0
"""Time held back for compiling and checking: seconds for all and for each network, and at most this
share of the window."""

AT_LEAST = 2.0
"""No network is begun with less than these seconds, or than the slowest of the night has taken."""


@dataclass(frozen=True, slots=True)
class NightReport:
    """What a night brought; `report` is the path of the HTML file, `about` names the machine."""

    run_id: str
    results: tuple[NightResult, ...]
    trials: int
    seconds: float
    interrupted: bool
    report: str
    about: str = ""

    @property
    def complete(self) -> bool:
        """Whether it was not interrupted and brought a network to its end."""
        idle = (Outcome.SKIPPED, Outcome.FAILED)
        return not self.interrupted and any(r.outcome not in idle for r in self.results)

    @property
    def failed(self) -> tuple[NightResult, ...]:
        return tuple(r for r in self.results if r.outcome is Outcome.FAILED)


def nightly_run_name() -> str:
    """ "nightly 2026-11-30: models": the name of a flow run."""
    names = ", ".join(m.rstrip("/").rsplit("/", 1)[-1] for m in run_parameters()["models"])
    return f"nightly {time.strftime('%Y-%m-%d')}: {names[:80]}"


@flow(name="nightly", flow_run_name=nightly_run_name, persist_result=False)
def nightly(job: NightlyParameters) -> NightReport:
    """Tune many networks in one window, then compile, verify, time and publish each."""
    window, progress = Window(job.seconds), watcher()
    if stop_event().is_set():
        return NightReport("", (), 0, 0.0, True, "")
    check_folder(job.folder)
    with insisting_on_termination(), night_lock():
        options = SessionOptions(
            job.db, job.target, job.threads, job.seed, str(flow_run.id or ""), job.accuracy
        )
        with TuningSession(options, progress.say) as session:
            session.stop = stop_event()
            failures = _load(session, job, progress)
            last = _tune(session, job, window, progress) if session.networks else None
            names = {n.name: (n.source, n.content_hash) for n in session.networks}
            run_id, trials = session.run_id, session.new_trials
            estimates = session.estimates() if session.networks else {}
            about = _about(session)
        results, longest = [*failures], AT_LEAST
        for name, (model, digest) in names.items():
            if session.stop.is_set() or window.left < longest:
                why = "stopped on request" if session.stop.is_set() else "no time left"
                results.append(_skipped(name, model, why))
                progress.say(f"{name}: skipped: {why}")
                continue
            before = window.used
            found = _finish(job, name, model, digest, run_id, estimates.get(name, (None, 0))[0])
            longest = max(longest, window.used - before)
            progress.say(f"{name}: {found.outcome}: {found.reason}")
            results.append(found)
        if job.keep_records and window.left and not session.stop.is_set():
            distill_task(job.db, keep=job.keep_records, spread=job.keep_records * 7)
        stopped = session.stop.is_set()
        report = NightReport(run_id, tuple(results), trials, window.used, stopped, "", about)
        return _report(job, report, last, progress)


def _load(session: TuningSession, job: NightlyParameters, progress: Progress) -> list[NightResult]:
    """Load every model that can be loaded; the others become failures."""
    failures = []
    options = {"shapes": {k: tuple(v) for k, v in job.shapes.items()}, "batch": job.batch}
    for model, name in network_names(find_models(job.models)).items():
        try:
            check_name(name)
            alias = "" if is_builtin(model) else name
            progress.say(f"Loaded {load_network_task(session, model, options, alias)}")
        except Exception as error:
            found = _failure(name, model, error)
            progress.say(f"{model}: left out: {found.reason}")
            failures.append(found)
    return failures


def _about(session: TuningSession) -> str:
    """ "host: CPU, 8 cores; target host, 8 threads; noctune 0.1.0"."""
    machine = machine_info(session.target)
    return (
        f"{machine.hostname}: {machine.cpu_model}, {machine.cores} cores; "
        f"target {session.target.name}, {session.threads} threads; noctune {noctune_version()}"
    )


def _tune(
    session: TuningSession, job: NightlyParameters, window: Window, progress: Progress
) -> Snapshot:
    prepare_task(session)
    window.began_before(session.age)
    seconds = None
    if job.seconds is not None:
        held = closing_seconds(job.seconds, len(session.networks))
        seconds = max(window.left - held, 0.0)
    budget = Budget(job.trials, seconds, already=session.new_trials)
    last = tune_session(session, budget, progress)
    progress.close(last)
    return last


def closing_seconds(window: float, networks: int) -> float:
    """Seconds of the window that are held back for what follows the tuning."""
    return min(CLOSING_FIRST + CLOSING_EACH * networks, CLOSING_SHARE * window)


def _finish(
    job: NightlyParameters,
    name: str,
    model: str,
    digest: str,
    run_id: str,
    estimated: float | None,
) -> NightResult:
    """Compile, verify, time and publish one network; an error is a result."""
    try:
        with closing(Scratch()) as scratch:
            return _settle(job, name, model, digest, run_id, estimated, str(scratch.path))
    except Exception as error:
        return replace(_failure(name, model, error), estimated=estimated)


def _settle(
    job: NightlyParameters,
    name: str,
    model: str,
    digest: str,
    run_id: str,
    estimated: float | None,
    scratch: str,
) -> NightResult:
    shapes = {key: tuple(shape) for key, shape in job.shapes.items()}
    file = str(Path(scratch) / f"{name}.net")
    built = compile_task(
        model, file, db=job.db, target=job.target, threads=job.threads, shapes=shapes,
        batch=job.batch, accuracy=job.accuracy, check=False, register=False,
    )  # fmt: skip
    checked = verify_task(file, model, shapes=shapes, threads=built.threads)
    old = current(job.folder, name)
    timing = bench_task(
        file, against=[p for p in job.against if is_installed(p)], model=model,
        threads=built.threads, repeat=job.repeat, min_repeat_ms=job.min_repeat_ms,
        published=_runnable(old),
    )  # fmt: skip
    before = measured_last(job.db, name, timing["threads"])
    candidate = Candidate(name, file, built.file_hash, digest, timing, checked)
    found = settle_task(candidate, job.folder, job.keep_versions, model, estimated)
    note_night_task(job.db, found, built, run_id)
    return replace(found, last_night_ms=before)


def _runnable(old: Published | None) -> str | None:
    """The published file; None if it is missing, damaged or of a format of another version of
    noctune: a new one replaces it."""
    if old is None:
        return None
    try:
        load(old.file)
    except ModelError:
        return None
    return str(old.file)


def _skipped(name: str, model: str, why: str) -> NightResult:
    step = "Its records are stored; the next run goes on, or `noctune compile` now."
    return NightResult(name, Outcome.SKIPPED, why, model, next_step=step)


def _failure(name: str, model: str, error: Exception) -> NightResult:
    """What went wrong, and what to do about it."""
    if isinstance(error, NoctuneError):
        reason = str(NoctuneError(error.what, where=error.where, why=error.why))
        mend = "Mend or remove the model; the others are not affected."
        step = error.fix or (mend if isinstance(error, ModelError) else "The next run tries again.")
    else:
        reason = f"unexpected {type(error).__name__}: {error}"
        step = "See the task run's log; the others are not affected."
    return NightResult(name, Outcome.FAILED, " ".join(reason.split())[:500], model, next_step=step)


def _report(
    job: NightlyParameters, report: NightReport, last: Snapshot | None, progress: Progress
) -> NightReport:
    """The artifact and the HTML file; neither may end the night."""
    title = f"Night of {time.strftime('%Y-%m-%d')}"
    rounds: Sequence[RoundInfo] = ()
    try:
        if report.run_id:
            with open_store(job.db) as store:
                rounds = store.rounds(report.run_id)
    except StoreError as error:
        progress.say(f"The report has no plot of the latencies: {error}")
    earlier = "" if report.complete else last_complete(job.folder)
    publish(artifact_key("nightly"), night_markdown(report, last, rounds, title, earlier), title)
    try:
        path = write_report(job.folder, report, last, rounds, title, earlier)
    except (OSError, NoctuneError) as error:
        progress.say(f"The report could not be written: {error}")
        return report
    progress.say(f"Report: {path}")
    return replace(report, report=str(path))
