"""The evaluation flow: is a compiled network right, and how fast is it beside other engines.

In: a compiled network and its model; without the model it is only timed.  Out: an `Evaluation`,
noted in the database and shown as an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefect import flow

from flows.parameters import EvaluateParameters, run_parameters
from flows.report import artifact_key, evaluation_markdown, publish
from tasks.stages import bench_task, note_evaluation_task, verify_task


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`verification` as `tasks.evaluation.verify` gives it (empty without a model), `timing` as
    `noctune bench --json`."""

    path: str
    verification: Mapping[str, Any]
    timing: Mapping[str, Any]


def evaluate_run_name() -> str:
    """ "evaluate resnet-18.net": the name of a flow run."""
    job = run_parameters()
    return f"evaluate {job['path'].rsplit('/', 1)[-1]}"


@flow(name="evaluate", flow_run_name=evaluate_run_name, persist_result=False)
def evaluate(job: EvaluateParameters) -> Evaluation:
    """Verify a compiled network and time it beside its peers, in one run."""
    found: Mapping[str, Any] = {}
    if job.model:
        shapes = {name: tuple(shape) for name, shape in job.shapes.items()}
        found = verify_task(job.path, job.model, shapes=shapes, threads=job.threads)
    timing = bench_task(
        job.path,
        against=job.against,
        model=job.model,
        threads=job.threads,
        repeat=job.repeat,
        min_repeat_ms=job.min_repeat_ms,
    )
    if job.db:
        note_evaluation_task(job.db, job.path, timing)
    title = f"Evaluation of {timing['network']}"
    text = evaluation_markdown(timing, found, title)
    publish(artifact_key("evaluation", timing["network"]), text, title)
    return Evaluation(job.path, found, timing)
