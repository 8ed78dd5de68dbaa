"""The store in memory: for tests, and for trying something without keeping it.

In: nothing.  Out: a `Store` that lives as long as the object.  It is the contract in its plainest
form, which the conformance tests hold the SQL stores against.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from db.store import Store, new_run_id
from db.values import (
    CompiledInfo,
    EvaluationInfo,
    GroupInfo,
    MachineInfo,
    ModelRows,
    NetworkInfo,
    RoundInfo,
    RunInfo,
    RunStatus,
    StoreStats,
    clean_json,
    clean_text,
    evaluated_median,
    run_status,
    split_features,
    storable,
    takes_over,
)
from engine.errors import StoreError
from engine.records import MeasureRecord, RecordScope

Trial = tuple[str, int, str, RecordScope, str]
"""What a record is known by: run, round, workload, scope, schedule."""


class MemoryStore(Store):
    """See `Store`.  One lock around everything."""

    def __init__(self) -> None:
        self.url = "memory:"
        self._lock = threading.RLock()
        self._machines: dict[str, MachineInfo] = {}
        self._targets: dict[RecordScope, Mapping[str, Any]] = {}
        self._workloads: dict[str, Mapping[str, Any]] = {}
        self._networks: dict[tuple[str, str], NetworkInfo] = {}
        self._runs: dict[str, RunInfo] = {}
        self._rounds: dict[tuple[str, int], RoundInfo] = {}
        self._records: dict[Trial, MeasureRecord] = {}
        self._groups: dict[tuple[str, RecordScope], dict[Trial, MeasureRecord]] = {}
        self._compiled: list[CompiledInfo] = []
        self._evaluations: list[EvaluationInfo] = []

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise StoreError("a store in memory cannot be sent to another process")

    # -- machines, targets, workloads, networks ---------------------------------------------------

    def register_machine(self, machine: MachineInfo) -> None:
        with self._lock:
            self._machines[machine.key] = machine

    def register_target(self, scope: RecordScope, description: Mapping[str, Any]) -> None:
        with self._lock:
            self._targets.setdefault(scope, {})
            if description:
                self._targets[scope] = clean_json(description)

    def register_workload(self, key: str, description: Mapping[str, Any]) -> None:
        with self._lock:
            if not self._workloads.get(clean_text(key)):
                self._workloads[clean_text(key)] = clean_json(description)

    def register_network(
        self, name: str, content_hash: str, weights: Mapping[str, int], model_path: str = ""
    ) -> None:
        with self._lock:
            for key in weights:
                self._workloads.setdefault(clean_text(key), {})
            self._networks.pop((name, content_hash), None)
            info = NetworkInfo(name, content_hash, dict(weights), model_path, time.time())
            self._networks[name, content_hash] = info

    def workloads(self) -> Mapping[str, Mapping[str, Any]]:
        with self._lock:
            return dict(self._workloads)

    def networks(self) -> tuple[NetworkInfo, ...]:
        with self._lock:
            return tuple(self._networks.values())

    def machines(self) -> tuple[MachineInfo, ...]:
        with self._lock:
            return tuple(self._machines.values())

    def targets(self) -> Mapping[RecordScope, Mapping[str, Any]]:
        with self._lock:
            return dict(self._targets)

    def _require_network(self, name: str) -> None:
        if all(info.name != name for info in self._networks.values()):
            raise StoreError(
                f"no such network: {name!r}", fix="Register it first: store.register_network(...)."
            )

    # -- runs and rounds --------------------------------------------------------------------------

    def start_run(
        self,
        networks: Sequence[str],
        scope: RecordScope,
        params: Mapping[str, Any] | None = None,
        *,
        run_id: str = "",
        machine: str = "",
    ) -> str:
        with self._lock:
            for name in networks:
                self._require_network(name)
            run_id = run_id or new_run_id()
            known = self._runs.get(run_id)
            self._targets.setdefault(scope, {})
            self._runs[run_id] = RunInfo(
                run_id,
                scope,
                tuple(dict.fromkeys(networks)),
                clean_json(params or {}),
                started=known.started if known else time.time(),
                machine=machine if machine in self._machines else "",
            )
            return run_id

    def _run(self, run_id: str) -> RunInfo:
        if run_id not in self._runs:
            raise StoreError(
                f"no such tuning run: {run_id!r}", fix="Open it first: store.start_run(...)."
            )
        return self._runs[run_id]

    def finish_run(self, run_id: str, status: RunStatus | str, message: str = "") -> None:
        with self._lock:
            self._runs[run_id] = replace(
                self._run(run_id),
                status=run_status(status),
                message=clean_text(message),
                finished=time.time(),
            )

    def commit_round(self, round_: RoundInfo, records: Sequence[MeasureRecord]) -> int:
        with self._lock:
            self._run(round_.run_id)
            key = (round_.run_id, round_.index)
            if key in self._rounds:
                return 0
            for name in round_.estimates:
                self._require_network(name)
            kept = [storable(record, *key) for record in records]
            new = self._add(kept)
            self._workloads.setdefault(clean_text(round_.workload_key), {})
            self._rounds[key] = replace(
                round_,
                estimates=_finite(round_.estimates),
                task_table=tuple(clean_json(round_.task_table)),
                trials=len(kept),
                valid=sum(record.valid for record in kept),
            )
            return new

    def add_run(self, run: RunInfo) -> bool:
        with self._lock:
            known = self._runs.get(run.run_id)
            self._targets.setdefault(run.scope, {})
            if known is None or takes_over(known.status, run.status):
                names = {info.name for info in self._networks.values()}
                self._runs[run.run_id] = replace(
                    run,
                    networks=tuple(name for name in dict.fromkeys(run.networks) if name in names),
                    params=clean_json(run.params),
                    message=clean_text(run.message),
                    machine=run.machine if run.machine in self._machines else "",
                )
            return known is None

    def add_rounds(self, rounds: Iterable[tuple[RoundInfo, RecordScope]]) -> int:
        with self._lock:
            return sum(self._add_round(round_, scope) for round_, scope in rounds)

    def _add_round(self, round_: RoundInfo, scope: RecordScope) -> bool:
        key = (round_.run_id, round_.index)
        if key in self._rounds:
            return False
        self._targets.setdefault(scope, {})
        self._runs.setdefault(round_.run_id, _imported(round_.run_id, scope, round_.started))
        self._workloads.setdefault(clean_text(round_.workload_key), {})
        names = {info.name for info in self._networks.values()}
        self._rounds[key] = replace(
            round_,
            estimates={n: s for n, s in _finite(round_.estimates).items() if n in names},
            task_table=tuple(clean_json(round_.task_table)),
        )
        return True

    def runs(self) -> tuple[RunInfo, ...]:
        with self._lock:
            return tuple(sorted(self._runs.values(), key=lambda run: run.started))

    def rounds(self, run_id: str) -> tuple[RoundInfo, ...]:
        with self._lock:
            self._run(run_id)
            keys = sorted(key for key in self._rounds if key[0] == run_id)
            return tuple(self._rounds[key] for key in keys)

    # -- records ----------------------------------------------------------------------------------

    def add_records(self, records: Iterable[MeasureRecord]) -> int:
        kept = [storable(record) for record in records]
        with self._lock:
            return self._add(kept)

    def _add(self, records: Sequence[MeasureRecord]) -> int:
        before = len(self._records)
        for record in records:
            self._workloads.setdefault(clean_text(record.workload_key), {})
            self._targets.setdefault(record.scope, {})
            run = _imported(record.run_id, record.scope, record.created)
            self._runs.setdefault(record.run_id, run)
            trial, group = _trial(record), (record.workload_key, record.scope)
            kept = self._records.setdefault(trial, record)
            self._groups.setdefault(group, {}).setdefault(trial, kept)
        return len(self._records) - before

    def _of(self, key: str, scope: RecordScope) -> tuple[MeasureRecord, ...]:
        with self._lock:
            return tuple(self._groups.get((clean_text(key), scope), {}).values())

    def history(
        self, workload_keys: Sequence[str], scope: RecordScope
    ) -> dict[str, tuple[MeasureRecord, ...]]:
        return {key: self._of(key, scope) for key in workload_keys}

    def outcomes(
        self, workload_keys: Sequence[str], scope: RecordScope
    ) -> dict[str, tuple[MeasureRecord, ...]]:
        return {
            key: tuple(map(_outcome, found))
            for key, found in self.history(workload_keys, scope).items()
        }

    def model_rows(
        self, scope: RecordScope, limit: int | None = None, without: Sequence[str] = ()
    ) -> ModelRows:
        leave = {clean_text(key) for key in without}
        records = [r for r in self.iter_records(scope=scope) if r.workload_key not in leave]
        if limit is not None:
            records = records[max(len(records) - limit, 0) :]
        return ModelRows(
            tuple(r.workload_key for r in records),
            tuple(r.latency if r.valid else math.inf for r in records),
            tuple(r.error for r in records),
            tuple(split_features(r.extra)[0] for r in records),
        )

    def best(self, workload_keys: Sequence[str], scope: RecordScope) -> dict[str, MeasureRecord]:
        tops = {key: self.top(key, scope, 1) for key in workload_keys}
        return {key: records[0] for key, records in tops.items() if records}

    def top(self, workload_key: str, scope: RecordScope, k: int) -> tuple[MeasureRecord, ...]:
        valid = [record for record in self._of(workload_key, scope) if record.valid]
        chosen: dict[str, MeasureRecord] = {}
        for record in sorted(valid, key=lambda record: record.latency):
            chosen.setdefault(record.schedule.key, record)
        return tuple(chosen.values())[: max(k, 0)]

    def trial_counts(self, workload_keys: Sequence[str], scope: RecordScope) -> dict[str, int]:
        return {key: len(self._of(key, scope)) for key in workload_keys}

    def groups(self) -> tuple[GroupInfo, ...]:
        groups = []
        with self._lock:
            parts = [(*place, tuple(trials.values())) for place, trials in self._groups.items()]
        for key, scope, records in parts:
            latencies = [record.latency for record in records if record.valid]
            best = min(latencies, default=None)
            groups.append(GroupInfo(key, scope, len(records), len(latencies), best))
        return tuple(sorted(groups, key=lambda group: group.order))

    def iter_records(
        self, workload_keys: Sequence[str] | None = None, scope: RecordScope | None = None
    ) -> Iterator[MeasureRecord]:
        with self._lock:
            records = tuple(self._records.values())
        for record in records:
            wanted = workload_keys is None or record.workload_key in workload_keys
            if wanted and scope in (None, record.scope):
                yield record

    def newest(
        self, limit: int, workload_keys: Sequence[str] | None = None, errors_only: bool = False
    ) -> tuple[MeasureRecord, ...]:
        found = [r for r in self.iter_records(workload_keys) if not (errors_only and r.valid)]
        return tuple(found[::-1][: max(limit, 0)])

    def remove_records(
        self,
        drop: Callable[[Sequence[MeasureRecord]], Sequence[bool]],
        archive: Callable[[Iterable[MeasureRecord]], None],
    ) -> int:
        going: list[MeasureRecord] = []
        for group in self.groups():
            records = self._of(group.workload_key, group.scope)
            goes = drop(records)
            going += [record for record, gone in zip(records, goes, strict=True) if gone]
        archive(going)
        with self._lock:
            return sum(self._remove(record) for record in going)

    def _remove(self, record: MeasureRecord) -> bool:
        trial, place = _trial(record), (record.workload_key, record.scope)
        group = self._groups.get(place, {})
        group.pop(trial, None)
        if not group:
            self._groups.pop(place, None)
        return self._records.pop(trial, None) is not None

    # -- compiled networks ------------------------------------------------------------------------

    def add_compiled_network(
        self,
        network: str,
        scope: RecordScope,
        path: str,
        file_hash: str,
        *,
        run_id: str = "",
        estimated: float | None = None,
        verification: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> int:
        with self._lock:
            self._require_network(network)
            if run_id:
                self._run(run_id)
            self._targets.setdefault(scope, {})
            known = (network, scope, path, file_hash)
            new = CompiledInfo(
                len(self._compiled) + 1,
                *known,
                run_id,
                clean_json(estimated),
                clean_json(verification or {}),
                time.time(),
                details=clean_json(details or {}),
            )
            for place, old in enumerate(self._compiled):
                if (old.network, old.scope, old.path, old.file_hash) == known:
                    new = replace(new, id=old.id, created=old.created, published=old.published)
                    self._compiled[place] = new
                    break
            else:
                self._compiled.append(new)
            if evaluation is not None:
                self.add_evaluation(new.id, evaluation)
            return new.id

    def _find(self, compiled_id: int) -> CompiledInfo:
        if not 1 <= compiled_id <= len(self._compiled):
            raise StoreError(f"no such compiled network: {compiled_id}")
        return self._compiled[compiled_id - 1]

    def add_evaluation(self, compiled_id: int, evaluation: Mapping[str, Any]) -> None:
        with self._lock:
            of = self._find(compiled_id)
            median = evaluated_median(evaluation)
            data = clean_json(evaluation)
            self._evaluations.append(
                EvaluationInfo(compiled_id, of.network, of.scope, median, data, time.time())
            )

    def mark_published(self, compiled_id: int) -> None:
        with self._lock:
            found = self._find(compiled_id)
            self._compiled[compiled_id - 1] = replace(found, published=time.time())

    def compiled_networks(self, network: str | None = None) -> tuple[CompiledInfo, ...]:
        with self._lock:
            return tuple(info for info in self._compiled if network in (None, info.network))

    def evaluations(self, network: str | None = None) -> tuple[EvaluationInfo, ...]:
        with self._lock:
            return tuple(info for info in self._evaluations if network in (None, info.network))

    # -- the whole --------------------------------------------------------------------------------

    def stats(self) -> StoreStats:
        with self._lock:
            errors: dict[str, int] = {}
            scopes: dict[RecordScope, int] = {}
            for record in self._records.values():
                errors[str(record.error)] = errors.get(str(record.error), 0) + 1
                scopes[record.scope] = scopes.get(record.scope, 0) + 1
            return StoreStats(
                records=len(self._records),
                valid=sum(record.valid for record in self._records.values()),
                errors=dict(sorted(errors.items())),
                workloads=len(self._workloads),
                networks=len(self._networks),
                runs=len(self._runs),
                rounds=len(self._rounds),
                compiled_networks=len(self._compiled),
                scopes=scopes,
            )

    def close(self) -> None:
        """Nothing to give back."""


def _trial(record: MeasureRecord) -> Trial:
    return (
        record.run_id,
        record.round_index,
        record.workload_key,
        record.scope,
        record.schedule.key,
    )


def _imported(run_id: str, scope: RecordScope, started: float) -> RunInfo:
    return RunInfo(run_id, scope, status=RunStatus.IMPORTED, started=started)


def _finite(estimates: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in estimates.items() if 0 <= seconds < math.inf}


def _outcome(record: MeasureRecord) -> MeasureRecord:
    times = (record.latency,) if record.valid else ()
    return replace(record, times=times, predicted=None, build_seconds=0.0, extra={})
