"""One network at the end of a night: compile, verify, compare with the published one, publish.

In: a model whose search tasks were tuned.  Out: a `NightResult`; whatever goes wrong with one
network is a value, so that the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from db.store import open_store
from engine.records import RecordScope, TimingMode
from tasks.building import CompileReport
from tasks.publishing import Published, current, publish, sweep


class Outcome(StrEnum):
    """What became of a network in a night."""

    PUBLISHED = "published"
    KEPT = "kept"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class NightResult:
    """`reason` says why in one line; `file` is the published network, "" without one."""

    network: str
    outcome: Outcome
    reason: str
    model: str = ""
    file: str = ""
    timing: Mapping[str, Any] = field(default_factory=dict)
    verification: Mapping[str, Any] = field(default_factory=dict)
    estimated: float | None = None
    last_night_ms: float | None = None
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiled, verified and timed network that may be published."""

    network: str
    file: str
    file_hash: str
    content_hash: str
    timing: Mapping[str, Any]
    verification: Mapping[str, Any]


def judge(candidate: Candidate, old: Published | None) -> tuple[Outcome, str]:
    """Whether to publish, and why.

    A network that is not verified never is.  One of another model (other weights or layers)
    replaces the old one whatever its speed, and any does if the old one cannot run; else it must be
    at least as fast, side by side in one run: were noise forgiven, each night could publish a
    network that is a little slower.
    """
    if not candidate.verification.get("ok"):
        error = candidate.verification.get("max_rel_error")
        return Outcome.FAILED, f"outputs differ from the reference by {error:.2e}"
    if old is None:
        return Outcome.PUBLISHED, "first version"
    if old.report.get("content_hash") != candidate.content_hash:
        return Outcome.PUBLISHED, "the model has changed"
    ratio = candidate.timing.get("published_ratio")
    if ratio is None:
        return Outcome.PUBLISHED, "the published one cannot run beside it: other inputs or format"
    if old.report.get("file_hash") == candidate.file_hash:
        return Outcome.UNCHANGED, "nothing better was found"
    if ratio < 1:
        return Outcome.KEPT, f"kept the old one: the new one is {ratio:.3f}x as fast beside it"
    return Outcome.PUBLISHED, f"{ratio:.3f}x as fast as the published one"


def settle(
    candidate: Candidate, folder: str, keep: int, model: str, estimated: float | None
) -> NightResult:
    """Publish the candidate if it may be; the old version stays current otherwise."""
    sweep(Path(folder) / candidate.network)
    old = current(folder, candidate.network)
    outcome, reason = judge(candidate, old)
    file = str(old.file) if old else ""
    if outcome is Outcome.PUBLISHED:
        report = {
            "network": candidate.network,
            "model": model,
            "file_hash": candidate.file_hash,
            "content_hash": candidate.content_hash,
            "timing": dict(candidate.timing),
            "verification": dict(candidate.verification),
        }
        file = str(publish(folder, candidate.network, candidate.file, report, keep).file)
    return NightResult(
        candidate.network,
        outcome,
        reason,
        model,
        file,
        candidate.timing,
        candidate.verification,
        estimated,
        next_step="Run `noctune compile` by hand to see more." if outcome is Outcome.FAILED else "",
    )


def measured_last(db: str, network: str, threads: int) -> float | None:
    """Median in milliseconds that was last measured of what was current then, None if none was."""
    with open_store(db) as store:
        published = {c.id for c in store.compiled_networks(network) if c.published is not None}
        found = [e for e in store.evaluations(network) if e.data.get("threads") == threads]
    if not found:
        return None
    last = found[-1]
    own = last.compiled_id in published or "published" not in last.data
    median: float | None = last.data["noctune" if own else "published"]["median_ms"]
    return median


def note(db: str, result: NightResult, built: CompileReport, run_id: str) -> None:
    """Keep the outcome in the database: the compiled file, its timing, whether it is published."""
    scope = RecordScope(built.target, built.threads, TimingMode.COLD_WEIGHTS)
    is_published = result.outcome is Outcome.PUBLISHED
    with open_store(db) as store:
        number = store.add_compiled_network(
            result.network,
            scope,
            str(Path(result.file).resolve()) if is_published else "",
            built.file_hash,
            run_id=run_id,
            estimated=built.estimated,
            verification=result.verification,
        )
        store.add_evaluation(number, result.timing)
        if is_published:
            store.mark_published(number)
