"""The distil flow: keep the best records, archive the rest.

In: a database.  Out: a smaller one, an archive, and a file of what stayed.
"""

from __future__ import annotations

from prefect import flow

from flows.parameters import DistillParameters
from tasks.stages import distill_task
from tasks.upkeep import UpkeepReport


@flow(name="distill", flow_run_name="distill records", persist_result=False)
def distill(job: DistillParameters) -> UpkeepReport:
    """Keep the best schedules of each workload; the rest goes into an archive first."""
    return distill_task(
        job.db, keep=job.keep, spread=job.spread, output=job.output, archive=job.archive
    )
