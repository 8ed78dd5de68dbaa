"""The Prefect tasks: one for each stage, thin around functions of `tasks`, `engine` and `db`.

None caches or persists its result: the database is the only memory.  Live objects travel inside a
`TuningSession`; everything else that crosses a task is a path, a name or a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from engine.errors import NoctuneError, StoreError
from engine.search import Choice
from tasks import building, evaluation, night, selection, upkeep
from tasks.logs import one_line_errors
from tasks.session import RoundOutcome, TuningSession

one_line_errors()

P = ParamSpec("P")
R = TypeVar("R")


def worth_retrying(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """Whether the failure may pass: bad input fails again, a busy machine or database may not."""
    try:
        state.result()
    except StoreError:
        return True
    except NoctuneError:
        return False
    except Exception:
        return True
    return False


def load_network(
    session: TuningSession, model: str, options: Mapping[str, Any], name: str = ""
) -> str:
    """Load one network into the session, under another `name` if one is given; returns its name."""
    return session.load(model, name=name, **options).name


def prepare(session: TuningSession) -> int:
    """Extract the search tasks and read their history; returns how many there are."""
    session.prepare()
    return len(session.search_tasks)


def tune_round(
    session: TuningSession, index: int, reason: str, size: int, label: str
) -> RoundOutcome:
    """Propose, measure and commit one round on search task `index`."""
    return session.run_round(Choice(index, reason), size)


load_network_task = task(
    name="load network",
    task_run_name="load {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=worth_retrying,
)(load_network)

prepare_task = task(
    name="extract search tasks",
    task_run_name="extract search tasks",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=worth_retrying,
)(prepare)

tune_round_task = task(
    name="tuning round",
    task_run_name="{label}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[2, 15],
    retry_condition_fn=worth_retrying,
)(tune_round)

select_task = task(
    name="select in the network",
    task_run_name="select in the network",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=1,
    retry_delay_seconds=5,
    retry_condition_fn=worth_retrying,
)(selection.select_in_network)

compile_task = task(
    name="compile network",
    task_run_name="compile {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=1,
    retry_delay_seconds=5,
    retry_condition_fn=worth_retrying,
)(building.compile_model)

verify_task = task(
    name="verify network",
    task_run_name="verify {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=1,
    retry_delay_seconds=5,
    retry_condition_fn=worth_retrying,
)(evaluation.verify)

bench_task = task(
    name="time network",
    task_run_name="time {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=1,
    retry_delay_seconds=5,
    retry_condition_fn=worth_retrying,
)(evaluation.bench)

note_evaluation_task = task(
    name="note evaluation",
    task_run_name="note evaluation of {path}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=worth_retrying,
)(evaluation.note)

settle_task = task(
    name="publish network",
    task_run_name="publish {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=1,
    retry_delay_seconds=5,
    retry_condition_fn=worth_retrying,
)(night.settle)

note_night_task = task(
    name="note outcome",
    task_run_name="note outcome",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=worth_retrying,
)(night.note)

distill_task = task(
    name="distill records",
    task_run_name="distill {db}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=worth_retrying,
)(upkeep.distill)

ALL: tuple[Task[..., Any], ...] = (
    load_network_task, prepare_task, tune_round_task, select_task, compile_task, verify_task,
    bench_task, note_evaluation_task, settle_task, note_night_task, distill_task,
)  # fmt: skip
