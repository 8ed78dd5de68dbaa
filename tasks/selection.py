"""In-network selection: the best few candidates of every task are timed inside the real networks.

In: an open session.  Out: records of timing mode `in_network`, committed, which compiling prefers;
seconds of each network's layers.  All within the time that the session has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from db.store import Store
from db.values import RoundInfo
from engine.measure.in_network import REPEAT, TURNS, Timed, time_in_network
from engine.measure.lock import BusyError, machine_lock
from engine.records import MeasureRecord, RecordScope, TimingMode
from engine.space import allowed
from tasks.networks import Network
from tasks.session import TuningSession
from tasks.table import best_latency

CANDIDATES = 6
"""Schedules of each task that are tried inside the network."""

_BUILD_S, _SPEED = 0.3, 2e10
"""Guesses: seconds that one kernel takes to compile, FLOP/s."""
_FIXED_S, _MORE, _PACKED = 0.6, 1.5, 9e7
"""Of one compilation: seconds whatever the network, compiling beside measuring it alone, bytes of
weights a second (transforms make them larger)."""


def select_in_network(session: TuningSession, candidates: int = CANDIDATES) -> dict[str, float]:
    """Time the candidates of every network of the session; network -> seconds of its tuned layers.

    Networks whose tasks have no valid record yet are left out, and so are those that the session
    has no time for.  Safe to repeat after an error: what was timed already is only stored.
    """
    found = {}
    for network in session.networks:
        if network.name not in session.timed:
            session.timed[network.name] = list(_time(session, network, candidates).items())
        weights = session.weights[network.name]
        timed = session.timed[network.name]
        seconds = sum(weights[key] * pairs[0][1] for key, pairs in timed)
        if timed:
            _commit(session, timed)
            found[network.name] = seconds
    return found


def selection_seconds(session: TuningSession, candidates: int = CANDIDATES) -> float:
    """About how long the selection will take, from what is known of the search tasks so far."""
    total = 0.0
    for network in session.networks:
        weights = session.weights[network.name]
        build = run = 0.0
        for task in session.search_tasks:
            if task.key in weights:
                records = session.history[task.key]
                built = [r.build_seconds for r in records if r.build_seconds]
                build += fmean(built) if built else _BUILD_S
                run += weights[task.key] * (best_latency(records) or task.workload.flops / _SPEED)
        constants = network.lowered.graph.constants.values()
        packing = sum(array.nbytes for array in constants) / _PACKED
        compiling = _FIXED_S + _MORE * build / session.threads + packing
        total += (candidates + 1) * compiling + (candidates + 2) * TURNS * REPEAT * run
    return total


def _time(session: TuningSession, network: Network, candidates: int) -> Mapping[str, Timed]:
    """Of the best candidates and of what the selection before this one chose."""
    keys = list(session.weights[network.name])
    store, scope, accuracy = session.store, session.scope, session.options.accuracy
    best = {}
    for key, winner in best_schedules(store, keys, scope, accuracy).items():
        top = [record.schedule for record in _top(store, key, scope, candidates, accuracy)]
        if winner.schedule not in top:
            top[candidates - 1 :] = [winner.schedule]
        best[key] = top
    if not best or session.give_up_waiting():
        return {}
    try:
        with machine_lock(None, session.notify, session.give_up_waiting):
            return time_in_network(
                network.lowered, best, session.threads, jobs=session.threads,
                too_long=session.too_long,
            )  # fmt: skip
    except BusyError as error:
        session.notify(f"{network.name}: not tried inside the network: {error.what}")
        return {}


def _commit(session: TuningSession, timed: list[tuple[str, Timed]]) -> None:
    """Store what was timed, one workload after the other, and take it off the list."""
    scope = replace(session.scope, timing_mode=TimingMode.IN_NETWORK)
    while timed:
        key, pairs = timed[0]
        now = time.time()
        records = [
            MeasureRecord(
                key,
                scope,
                schedule,
                (seconds,),
                run_id=session.run_id,
                round_index=session.round_index,
                created=now,
                extra={"origin": "network"},
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
        del timed[0]


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
    """The record by which each workload is compiled: the winner of its last selection inside a
    network, else the best on its own.

    A record that was found after the last selection, and so never tried inside, goes first.  Times
    of two selections are not compared: they are of different minutes.
    """
    inside = store.outcomes(keys, replace(scope, timing_mode=TimingMode.IN_NETWORK))
    best = {}
    for key in keys:
        alone = _top(store, key, scope, 1, accuracy)
        tried = [r for r in inside[key] if r.valid and allowed(r.schedule.sketch, accuracy)]
        if alone and alone[0].schedule not in [r.schedule for r in tried]:
            best[key] = alone[0]
        elif tried:
            last = tried[-1].run_id, tried[-1].round_index
            rows = [r for r in tried if (r.run_id, r.round_index) == last]
            best[key] = min(rows, key=lambda r: r.latency)
    return best
