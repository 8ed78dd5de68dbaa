"""The compile flow: a network from the best records.

In: a model and a database.  Out: a file and a report.
"""

from __future__ import annotations

from prefect import flow

from flows.parameters import CompileParameters, run_parameters
from tasks.building import CompileReport
from tasks.stages import compile_task


def compile_run_name() -> str:
    """ "compile resnet-18": the name of a flow run."""
    job = run_parameters()
    return f"compile {job['model'].rsplit('/', 1)[-1]}"


@flow(name="compile", flow_run_name=compile_run_name, persist_result=False)
def compile_network(job: CompileParameters) -> CompileReport:
    """Compile a network with the best records; tasks without one get the default schedule."""
    return compile_task(
        job.model,
        job.output,
        db=job.db,
        target=job.target,
        threads=job.threads,
        shapes={name: tuple(shape) for name, shape in job.shapes.items()},
        batch=job.batch,
        accuracy=job.accuracy,
        check=job.verify,
    )
