"""Compiling a network with the best records of a database.

In: a model, a database, a target.  Out: a compiled network file and a report of what is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from db.store import Store
from engine.errors import NoctuneError
from engine.files import check_writable, replacing
from engine.graph.task import SearchTask
from engine.records import MeasureRecord, RecordScope, Schedule, TimingMode
from engine.runtime.build import compile_network
from engine.search import task_name
from tasks.evaluation import file_hash, verify
from tasks.networks import Network, Shapes, load_network, model_files
from tasks.selection import best_schedules
from tasks.session import resolve_target
from tasks.stores import open_or_empty, store_files
from tasks.table import estimate


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What a compilation gave; `estimated` in seconds over the tasks with records."""

    network: str
    path: str
    bytes: int
    file_hash: str
    target: str
    threads: int
    estimated: float | None
    tuned: int
    untuned: tuple[str, ...] = ()
    host_calls: tuple[tuple[str, str], ...] = ()
    """(name, operator) of each node that runs outside generated code."""
    hints: tuple[str, ...] = ()
    verification: Mapping[str, Any] = field(default_factory=dict)


def compile_model(
    model: str,
    output: str,
    *,
    db: str,
    target: str = "host",
    threads: int | None = None,
    shapes: Shapes | None = None,
    batch: int = 1,
    accuracy: str = "default",
    check: bool = True,
    register: bool = True,
) -> CompileReport:
    """Compile, save, (if `check`) verify and (if `register`) note it in a database that is there.

    The file appears whole or not at all, and only if its outputs are right.
    """
    check_output(output, model, db)
    machine = resolve_target(target)
    count = threads or machine.cores
    network = load_network(model, machine, shapes, batch)
    scope = RecordScope(machine.key, count, TimingMode.COLD_WEIGHTS)
    with open_or_empty(db) as store:
        with replacing(output) as path:
            report = _build(network, path, store, scope, accuracy)
            found = verify(str(path), model, shapes=shapes, threads=count) if check else {}
            if not found.get("ok", True):
                raise _wrong(network.name, found)
        hints = report.hints
        if store.url != db:
            hints = (f"There is no database '{db}': nothing was looked up or noted.", *hints)
        report = replace(report, path=output, verification=found, hints=hints)
        if register:
            _register(store, network, scope, report)
    return report


def check_output(output: str, model: str, db: str) -> None:
    """Raises NoctuneError unless `output` can be written and overwrites nothing that is read."""
    check_writable(output, *model_files(model), *store_files(db))


def _wrong(name: str, found: Mapping[str, Any]) -> NoctuneError:
    return NoctuneError(
        "the compiled network gives other outputs than the model; nothing was written",
        where=name,
        why=f"largest error {found['max_rel_error']:.2e} of the largest output, against "
        f"{found['reference']}",
        fix="--no-verify writes it all the same.",
    )


def _build(
    network: Network, output: Path, store: Store, scope: RecordScope, accuracy: str
) -> CompileReport:
    tasks = network.search_tasks(scope.threads)
    best = best_schedules(store, [t.key for t in tasks], scope, accuracy)
    schedules: dict[str, Schedule] = {key: record.schedule for key, record in best.items()}
    weights = {t.key: t.weight for t in tasks}
    estimated, _ = estimate(weights, {key: r.latency for key, r in best.items()})
    compiled = compile_network(
        network.lowered,
        schedules,
        estimates={key: r.latency for key, r in best.items()},
        threads=scope.threads,
        jobs=scope.threads,
    )
    compiled.save(output)
    untuned = [t for t in tasks if t.key not in best]
    return CompileReport(
        network=network.name,
        path=str(output),
        bytes=output.stat().st_size,
        file_hash=file_hash(output),
        target=scope.target_key,
        threads=scope.threads,
        estimated=estimated if not untuned else None,
        tuned=len(best),
        untuned=tuple(task_name(t.workload) for t in untuned),
        host_calls=tuple(
            (step.name, step.node.op) for step in network.lowered.steps if step.node is not None
        ),
        hints=tuple(_hints(store, tasks, best, scope)) if untuned else (),
    )


def _hints(
    store: Store,
    tasks: tuple[SearchTask, ...],
    best: Mapping[str, MeasureRecord],
    scope: RecordScope,
) -> list[str]:
    """Where records of the missing tasks may be found: in another scope, or nowhere yet."""
    missing = {t.key for t in tasks} - set(best)
    others: dict[RecordScope, int] = {}
    for group in store.groups():
        if group.workload_key in missing and group.valid and group.scope != scope:
            others[group.scope] = others.get(group.scope, 0) + 1
    hints = [
        f"There are records of {n} of these for {_differs(other, scope)}; they count there only."
        for other, n in sorted(others.items(), key=lambda item: -item[1])
    ]
    return hints or ["Tune them with `noctune tune`."]


def _differs(other: RecordScope, scope: RecordScope) -> str:
    if other.target_key != scope.target_key:
        return f"target {other.target_key}"
    if other.threads != scope.threads:
        return f"--threads {other.threads}"
    if other.timing_mode != scope.timing_mode:
        return f"timing mode {other.timing_mode}"
    return f"version {other.generator_version} of the code generator"


def _register(
    store: Store,
    network: Network,
    scope: RecordScope,
    report: CompileReport,
) -> None:
    weights = {t.key: t.weight for t in network.search_tasks(scope.threads)}
    store.register_network(network.name, network.content_hash, weights, network.source)
    store.add_compiled_network(
        network.name,
        scope,
        str(Path(report.path).resolve()),
        report.file_hash,
        estimated=report.estimated,
        verification=report.verification,
    )
