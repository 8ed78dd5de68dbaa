"""What the deployments need on a Prefect server, created if it is not there.

In: names and a time-out.  Out: lines that say what was made.  A worker that is killed by SIGTERM
leaves its run "Running" for ever; flow runs send heartbeats, and an automation marks those as
crashed that fall silent, so that the next night is not blocked.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from engine.errors import NoctuneError

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

AUTOMATION = "noctune: end runs that fell silent"


def set_up(pool: str, queues: list[str], silent_after: int) -> list[str]:
    """Work pool of the type process with one run at a time, queues, the automation."""
    try:
        return asyncio.run(_set_up(pool, queues, silent_after))
    except NoctuneError:
        raise
    except Exception as error:
        raise NoctuneError(
            "the Prefect server cannot be set up",
            why=" ".join(str(error).split())[:300] or type(error).__name__,
            fix="Check PREFECT_API_URL and that the server runs.",
        ) from error


async def _set_up(pool: str, queues: list[str], silent_after: int) -> list[str]:
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        lines = [await _pool(client, pool)]
        lines += [await _queue(client, pool, queue) for queue in queues]
        lines.append(await _automation(client, silent_after))
    return lines


async def _pool(client: PrefectClient, name: str) -> str:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound

    try:
        await client.read_work_pool(name)
        return f"work pool {name}: there already"
    except ObjectNotFound:
        await client.create_work_pool(
            WorkPoolCreate(name=name, type="process", concurrency_limit=1)
        )
        return f"work pool {name}: made (process, one run at a time)"


async def _queue(client: PrefectClient, pool: str, name: str) -> str:
    found = await client.read_work_queues(work_pool_name=pool)
    if any(queue.name == name for queue in found):
        return f"work queue {name}: there already"
    await client.create_work_queue(name=name, work_pool_name=pool, concurrency_limit=1)
    return f"work queue {name}: made (one run at a time)"


async def _automation(client: PrefectClient, silent_after: int) -> str:
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    if await client.read_automations_by_name(AUTOMATION):
        return f"automation '{AUTOMATION}': there already"
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.*"},
        match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=silent_after),
    )
    action = ChangeFlowRunState(
        name=None,
        state=StateType.CRASHED,
        message=f"no heartbeat for {silent_after} seconds",
        force=False,
    )
    await client.create_automation(
        AutomationCore(name=AUTOMATION, trigger=trigger, actions=[action])
    )
    return f"automation '{AUTOMATION}': made"
