"""The tuning flow: rounds of trials on the search tasks of one or several networks.

In: models and a budget.  Out: records in the database; how the networks stand.  The loop over the
rounds stands here, one Prefect task a round.  Resuming is running again: every round starts from
the history in the database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from db.values import RunStatus
from engine.errors import NoctuneError
from engine.measure.lock import BusyError
from engine.search import Choice
from flows.budget import Budget
from flows.interrupts import insisting_on_termination, stop_event
from flows.parameters import TuneParameters, run_parameters
from flows.plots import plots_markdown
from flows.progress import Outlook, Progress, Snapshot, snapshot, watcher
from flows.report import ProgressBar, artifact_key, publish, tuning_markdown
from tasks.selection import selection_seconds
from tasks.session import RoundOutcome, SessionOptions, TuningSession
from tasks.stages import load_network_task, prepare_task, select_task, tune_round_task

SELECTION_SHARE = 0.25
"""The selection inside the networks gets at most this share of a run's time."""

FAILURES_IN_A_ROW = 3
"""So many search tasks that fail one after the other are no matter of a task: the run ends."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """How a run ended; seconds, None while a network has no estimate; `outlook` says what further
    time would probably bring."""

    run_id: str
    db: str
    trials: int
    valid: int
    seconds: float
    interrupted: bool
    estimates: dict[str, float | None]
    table: tuple[dict[str, Any], ...]
    outlook: Outlook | None = None


def tune_run_name() -> str:
    """ "tune resnet-18 for 600 s": the name of a flow run."""
    job = run_parameters()
    models = ", ".join(m.rsplit("/", 1)[-1] for m in job["models"])
    limits = []
    if job["trials"]:
        limits.append(f"{job['trials']} trials")
    if job["seconds"]:
        limits.append(f"{job['seconds']:g} s")
    return f"tune {models[:80]}" + (f" for {' or '.join(limits)}" if limits else "")


@flow(name="tune", flow_run_name=tune_run_name, persist_result=False)
def tune(job: TuneParameters) -> TuneResult:
    """Tune networks until the budget is spent; run it again to go on."""
    progress = watcher()
    budget = Budget(job.trials, job.seconds)
    options = SessionOptions(
        job.db,
        job.target,
        job.threads,
        job.seed,
        job.run_id or str(flow_run.id or ""),
        job.accuracy,
    )
    with insisting_on_termination(), TuningSession(options, progress.say) as session:
        session.stop = stop_event()
        _open(session, job, progress)
        budget.already, budget.earlier = session.new_trials, session.earlier
        last = tune_session(session, budget, progress)
        return _close(session, budget, progress, last)


def tune_session(session: TuningSession, budget: Budget, progress: Progress) -> Snapshot:
    """Rounds, then the selection inside the networks, all within the budget; closes the run."""
    status, message = RunStatus.FAILED, "ended by an error"
    try:
        session.too_long = lambda seconds: budget.left - budget.reserve <= seconds
        last = tuning_rounds(session, budget, progress)
        session.too_long = lambda seconds: budget.left <= seconds
        select_candidates(session, progress)
        status, message = _ending(session)
    except BaseException as error:
        status, message = describe_failure(error)
        raise
    finally:
        session.finish(status, message)
    return replace(last, used=budget.used, time_left=None)


def describe_failure(error: BaseException) -> tuple[RunStatus, str]:
    """What the database notes of a run that an exception ended; a signal is no failure."""
    if isinstance(error, Exception):
        return RunStatus.FAILED, " ".join(str(error).split()) or type(error).__name__
    return RunStatus.CANCELLED, "cancelled"


def _open(session: TuningSession, job: TuneParameters, progress: Progress) -> None:
    options = {"shapes": {k: tuple(v) for k, v in job.shapes.items()}, "batch": job.batch}
    for model in job.models:
        name = load_network_task(session, model, options)
        progress.say(f"Loaded {name}")
    count = prepare_task(session)
    known = sum(len(found) for found in session.history.values())
    progress.say(
        f"{count} search tasks for {session.target.cpu} ({session.threads} threads), "
        f"{known} trials on record in {session.store.url}"
    )


def tuning_rounds(session: TuningSession, budget: Budget, progress: Progress) -> Snapshot:
    """Rounds until the budget is spent, the search is exhausted or somebody asks to stop.

    A search task whose round fails in spite of retries is given up; the others go on.
    """
    names = [network.name for network in session.networks]
    bar = ProgressBar(artifact_key("progress", *names), f"Tuning {', '.join(names)}")
    last: RoundOutcome | None = None
    failures = 0
    while True:
        budget.reserve = reserve(selection_seconds(session), budget.seconds)
        choice = session.choose()
        now = snapshot(session, budget, choice, last)
        progress.update(now)
        bar.show(now)
        unmeasured = sum(not row.trials for row in now.rows)
        size = budget.next_round(len(now.rows), unmeasured)
        if choice is None or size == 0 or session.stop.is_set():
            return now
        label = _label(session, choice)
        try:
            last = tune_round_task(session, choice.index, choice.reason, size, label)
        except BusyError as error:
            progress.say(f"Round {session.round_index} was not begun: {error.what}")
            return now
        except NoctuneError:
            raise
        except Exception as error:
            failures += 1
            if failures == FAILURES_IN_A_ROW:
                raise
            session.give_up(choice)
            progress.say(f"{label}: given up after {type(error).__name__}: {error}")
            continue
        failures = 0
        budget.spend(last.trials, last.seconds)


def reserve(needed: float, window: float | None) -> float:
    """Seconds of the window that are held back for the selection."""
    return 0.0 if window is None else min(needed, SELECTION_SHARE * window)


def select_candidates(session: TuningSession, progress: Progress) -> None:
    """The best few of each task are tried inside the network, while there is time."""
    if session.give_up_waiting():
        return
    progress.say("Trying the best candidates inside the network")
    found = select_task(session)
    for network in session.networks:
        seconds = found.get(network.name)
        if seconds is None:
            progress.say(f"{network.name}: not tried; nothing valid to try, or no time left")
        else:
            progress.say(f"{network.name}: {seconds * 1e3:.3f} ms in its layers")


def _label(session: TuningSession, choice: Choice) -> str:
    """ "resnet-18 round 12: task 3 Conv": the name of a task run."""
    task = session.search_tasks[choice.index]
    owners = [name for name, weights in session.weights.items() if task.key in weights]
    more = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
    anchor = task.workload.anchor
    return f"{owners[0]}{more} round {session.round_index}: task {choice.index} {anchor}"


def _ending(session: TuningSession) -> tuple[RunStatus, str]:
    if session.stop.is_set():
        return RunStatus.CANCELLED, "stopped on request"
    return RunStatus.FINISHED, ""


def _close(
    session: TuningSession, budget: Budget, progress: Progress, last: Snapshot
) -> TuneResult:
    progress.close(last)
    names = [network.name for network in session.networks]
    title = f"Search tasks of {', '.join(names)}"
    plots = plots_markdown(session.store.rounds(session.run_id), last)
    text = f"{tuning_markdown(last, title)}\n\n{plots}"
    publish(artifact_key("search-tasks", *names), text, title)
    _warn_untuned(last, progress)
    return TuneResult(
        run_id=session.run_id,
        db=session.store.url,
        trials=session.new_trials,
        valid=sum(r.valid for found in session.history.values() for r in found),
        seconds=budget.used,
        interrupted=session.stop.is_set(),
        estimates={name: seconds for name, (seconds, _) in session.estimates().items()},
        table=tuple(row.to_json() for row in last.rows),
        outlook=last.outlook,
    )


def _warn_untuned(now: Snapshot, progress: Progress) -> None:
    failing = [row for row in now.rows if row.trials and row.latency is None]
    for row in failing:
        progress.say(
            f"Task {row.id} ({row.name}): all {row.trials} trials failed; it gets the default "
            "schedule. `noctune records list --errors` shows why."
        )
