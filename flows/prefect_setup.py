"""What the deployments need on a Prefect server, created or changed where it is not there.

In: names and a time-out.  Out: lines that say what was made or changed.  A worker that is killed by
SIGTERM leaves its run "Running" for ever; flow runs send heartbeats, and an automation marks those
as crashed that fall silent, so that the next night is not blocked.
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
    for kind, name in (("pool", pool), *(("queue", queue) for queue in queues)):
        _check_name(kind, name)
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


def _check_name(kind: str, name: str) -> None:
    if not name.strip() or set(name) & set("/%&<>"):
        raise NoctuneError(
            f"'{name}' cannot be the name of a work {kind}",
            why="it is empty, or has one of / % & < >",
            fix=f"Give another with --{kind}.",
        )


async def _pool(client: PrefectClient, name: str) -> str:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound

    try:
        found = await client.read_work_pool(name)
    except ObjectNotFound:
        await client.create_work_pool(
            WorkPoolCreate(name=name, type="process", concurrency_limit=1)
        )
        return f"work pool {name}: made (process, one run at a time)"
    if found.type != "process":
        raise NoctuneError(
            f"the work pool '{name}' is there already and of the type {found.type}",
            fix="Name another with --pool, or delete it: the runs need one of the type process.",
        )
    return f"work pool {name}: there already"


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
    wanted = AutomationCore(name=AUTOMATION, trigger=trigger, actions=[action])
    found = await client.read_automations_by_name(AUTOMATION)
    if not found:
        await client.create_automation(wanted)
        return f"automation '{AUTOMATION}': made"
    before = getattr(found[0].trigger, "within", None)
    if before == trigger.within:
        return f"automation '{AUTOMATION}': there already"
    await client.update_automation(found[0].id, wanted)
    was = f" from {before.total_seconds():g}" if isinstance(before, timedelta) else ""
    return f"automation '{AUTOMATION}': changed{was} to {silent_after} seconds"
