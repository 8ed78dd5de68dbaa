"""In-network selection: the best few candidates of every task are timed inside the real networks.

In: an open session.  Out: records of timing mode `in_network`, committed, which compiling prefers;
seconds of each network before and after.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from db.store import Store
from db.values import RoundInfo
from engine.measure.in_network import Timed, time_in_network
from engine.measure.lock import machine_lock
from engine.records import MeasureRecord, RecordScope, TimingMode
from engine.space import allowed
from tasks.networks import Network
from tasks.session import TuningSession

CANDIDATES = 3
"""Schedules of each task that are tried inside the network."""


def select_in_network(session: TuningSession, candidates: int = CANDIDATES) -> dict[str, float]:
    """Time the candidates of every network of the session; network -> seconds of its tuned layers.

    Networks whose tasks have no valid record yet are left out.
    """
    found = {}
    for network in session.networks:
        timed = _time(session, network, candidates)
        if timed:
            _commit(session, timed)
            weights = session.weights[network.name]
            found[network.name] = sum(weights[key] * pairs[0][1] for key, pairs in timed.items())
    return found


def _time(session: TuningSession, network: Network, candidates: int) -> dict[str, Timed]:
    best = {}
    for key in session.weights[network.name]:
        top = _top(session.store, key, session.scope, candidates, session.options.accuracy)
        if top:
            best[key] = [record.schedule for record in top]
    if not best:
        return {}
    with machine_lock(None, session.notify):
        return time_in_network(network.lowered, best, session.threads, jobs=session.threads)


def _commit(session: TuningSession, timed: Mapping[str, Timed]) -> None:
    scope = replace(session.scope, timing_mode=TimingMode.IN_NETWORK)
    for key, pairs in timed.items():
        now = time.time()
        records = [
            MeasureRecord(
                key, scope, schedule, (seconds,), created=now, extra={"origin": "network"}
            )
            for schedule, seconds in pairs
        ]
        session.store.commit_round(
            RoundInfo(
                run_id=session.run_id, index=session.round_index, workload_key=key, estimates={},
                task_table=(), started=now, finished=now, trials=0, valid=len(records),
            ),
            records,
        )  # fmt: skip
        session.round_index += 1


def _top(
    store: Store, key: str, scope: RecordScope, count: int, accuracy: str
) -> list[MeasureRecord]:
    """The fastest records whose algorithm the accuracy bound permits."""
    wanted = count if accuracy == "fast" else count + _OTHERS
    found = store.top(key, scope, wanted)
    return [r for r in found if allowed(r.schedule.sketch, accuracy)][:count]


_OTHERS = 500
"""Faster records of forbidden algorithms that may stand before the permitted ones."""


def best_schedules(
    store: Store, keys: list[str], scope: RecordScope, accuracy: str
) -> dict[str, MeasureRecord]:
    """The best record of each workload: as measured inside a network, else on its own.

    A record that was found after the last selection, and so never tried inside, goes first.
    """
    inside = replace(scope, timing_mode=TimingMode.IN_NETWORK)
    best = {}
    for key in keys:
        alone = _top(store, key, scope, 1, accuracy)
        tried = _top(store, key, inside, _TRIED, accuracy)
        known = {record.schedule.key for record in tried}
        if alone and alone[0].schedule.key not in known:
            best[key] = alone[0]
        elif tried:
            best[key] = tried[0]
    return best


_TRIED = 64
"""Schedules of a workload that were tried inside networks, at most."""
