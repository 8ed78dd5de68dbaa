"""Lines of the format for exchange and what they stand for; `docs/records.md` defines it.

In: records, runs and rounds, or the bytes of a line.  Out: plain mappings, or the values again.
A line that is none of ours, or lacks something, gives a ValueError that says what.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from db.values import MachineInfo, NetworkInfo, RoundInfo, RunInfo, RunStatus, storable, to_json
from engine.records import ErrorKind, MeasureRecord, RecordScope, Schedule, TimingMode

FORMAT = "noctune-records"
VERSION = 1

MAX_LINE = 4 << 20
"""Bytes; a longer line is none of ours."""

_INT32 = 2**31
_MAX_FLOAT = sys.float_info.max
_MAX_KEY = 2000
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")
_YEAR_10000 = 253402300800.0
"""Seconds since 1970; databases show no later days."""


# -- writing --------------------------------------------------------------------------------------


def record_to_json(record: MeasureRecord) -> dict[str, Any]:
    """The record's line as a plain mapping."""
    kept = storable(record)
    return {
        **head("record"),
        "workload_key": kept.workload_key,
        **scope_to_json(kept.scope),
        "schedule": kept.schedule.to_json(),
        "error": str(kept.error),
        "message": kept.message,
        "times": list(kept.times),
        "predicted": kept.predicted,
        "run_id": kept.run_id,
        "round_index": kept.round_index,
        "created": kept.created,
        "build_seconds": kept.build_seconds,
        "noisy": kept.noisy,
        "extra": dict(sorted(kept.extra.items())),
    }


def head(kind: str) -> dict[str, Any]:
    """What every line begins with."""
    return {"format": FORMAT, "version": VERSION, "kind": kind}


def scope_to_json(scope: RecordScope) -> dict[str, Any]:
    """The four fields of a scope."""
    return {
        "target_key": scope.target_key,
        "threads": scope.threads,
        "timing_mode": str(scope.timing_mode),
        "generator_version": scope.generator_version,
    }


def record_line(record: MeasureRecord) -> str:
    """The record's line, without a line end."""
    return to_json(record_to_json(record))


def network_to_json(network: NetworkInfo) -> dict[str, Any]:
    """The line of a version of a network as a plain mapping."""
    return {
        **head("network"),
        "name": network.name,
        "content_hash": network.content_hash,
        "model_path": network.model_path,
        "weights": dict(network.weights),
    }


def machine_to_json(machine: MachineInfo) -> dict[str, Any]:
    """The machine's line as a plain mapping."""
    return {
        **head("machine"),
        "machine": machine.key,
        "hostname": machine.hostname,
        "cpu_model": machine.cpu_model,
        "cores": machine.cores,
        "features": list(machine.features),
        "caches": dict(machine.caches),
    }


def run_to_json(run: RunInfo) -> dict[str, Any]:
    """The run's line as a plain mapping."""
    return {
        **head("run"),
        "run_id": run.run_id,
        **scope_to_json(run.scope),
        "networks": list(run.networks),
        "params": run.params,
        "status": str(run.status),
        "message": run.message,
        "started": run.started,
        "finished": run.finished,
        "machine": run.machine,
    }


def round_to_json(round_: RoundInfo, scope: RecordScope) -> dict[str, Any]:
    """The line of a round as a plain mapping; `scope` is that of its run."""
    return {
        **head("round"),
        "run_id": round_.run_id,
        "round_index": round_.index,
        **scope_to_json(scope),
        "workload_key": round_.workload_key,
        "estimates": dict(round_.estimates),
        "task_table": list(round_.task_table),
        "started": round_.started,
        "finished": round_.finished,
        "trials": round_.trials,
        "valid": round_.valid,
    }


# -- reading --------------------------------------------------------------------------------------


def parse_line(raw: bytes) -> dict[str, Any]:
    """The mapping of one of our lines.  Raises ValueError with the reason for any other line."""
    if len(raw) > MAX_LINE:
        raise ValueError("line too long")
    if not raw.strip():
        raise ValueError("blank line")
    try:
        data = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        cut = "" if raw.endswith(b"\n") else ", the line is cut"
        raise ValueError("not JSON" + cut) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a line of {FORMAT}")
    version = data.get("version")
    if version != VERSION:
        raise ValueError(f"version {version!r} is not known here"[:80])
    if not isinstance(data.get("kind"), str):
        raise ValueError("without a kind")
    return data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def record_from_json(data: Mapping[str, Any]) -> MeasureRecord:
    """The record of a line.  Raises ValueError naming the field that is missing or wrong."""
    schedule, times = mapping(data, "schedule"), data.get("times")
    knobs = mapping(schedule, "knobs")
    if not isinstance(times, list):
        raise ValueError("times is not a list")
    predicted = None if data.get("predicted") is None else _number(data, "predicted")
    if predicted is not None and predicted <= 0:
        raise ValueError("predicted is not above zero")
    try:
        error = ErrorKind(text(data, "error"))
    except ValueError as reason:
        raise ValueError(f"error: {reason}"[:80]) from None
    record = MeasureRecord(
        workload_key=key_text(data, "workload_key"),
        scope=scope_from_json(data),
        schedule=Schedule(
            key_text(schedule, "sketch"), {key: whole(knobs, key, -(2**63), 2**63) for key in knobs}
        ),
        times=tuple(_number({"times": seconds}, "times") for seconds in times),
        error=error,
        message=text(data, "message", "", limit=MAX_LINE),
        predicted=predicted,
        run_id=key_text(data, "run_id", ""),
        round_index=whole(data, "round_index", 0),
        created=_moment(data, "created", 0.0),
        build_seconds=_moment(data, "build_seconds", 0.0),
        noisy=data.get("noisy") is True,
        extra=mapping(data, "extra", {}),
    )
    return storable(record)


def machine_from_json(data: Mapping[str, Any]) -> MachineInfo:
    """The machine of a line."""
    caches = mapping(data, "caches", {})
    return MachineInfo(
        key_text(data, "machine"),
        text(data, "hostname", ""),
        text(data, "cpu_model", ""),
        whole(data, "cores", 0),
        tuple(str(name) for name in items(data, "features")),
        {level: whole(caches, level, 0, 2**63) for level in caches},
    )


def run_from_json(data: Mapping[str, Any]) -> RunInfo:
    """The run of a line.  Raises ValueError naming the field that is missing or wrong."""
    try:
        status = RunStatus(text(data, "status"))
    except ValueError as reason:
        raise ValueError(f"status: {reason}"[:80]) from None
    return RunInfo(
        key_text(data, "run_id", empty=True),
        scope_from_json(data),
        tuple(str(name) for name in items(data, "networks")),
        mapping(data, "params", {}),
        status,
        _moment(data, "started"),
        None if data.get("finished") is None else _moment(data, "finished"),
        text(data, "message", "", limit=MAX_LINE),
        key_text(data, "machine", ""),
    )


def round_from_json(data: Mapping[str, Any]) -> tuple[RoundInfo, RecordScope]:
    """The round of a line, and the scope of its run.  Raises ValueError like the others."""
    estimates, table = mapping(data, "estimates", {}), items(data, "task_table")
    if not all(isinstance(row, Mapping) for row in table):
        raise ValueError("task_table holds something else than objects")
    round_ = RoundInfo(
        key_text(data, "run_id", empty=True),
        whole(data, "round_index", 0),
        key_text(data, "workload_key"),
        {name: _number(estimates, name) for name in estimates},
        tuple(table),
        _moment(data, "started"),
        _moment(data, "finished"),
        whole(data, "trials", 0),
        whole(data, "valid", 0),
    )
    return round_, scope_from_json(data)


def items(data: Mapping[str, Any], key: str) -> list[Any]:
    """A list field; empty if it is absent."""
    value = data.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return value


def scope_from_json(data: Mapping[str, Any]) -> RecordScope:
    """The scope of a line."""
    try:
        mode = TimingMode(text(data, "timing_mode"))
    except ValueError as reason:
        raise ValueError(f"timing_mode: {reason}"[:80]) from None
    target, version = key_text(data, "target_key"), key_text(data, "generator_version")
    return RecordScope(target, whole(data, "threads", 1), mode, version)


def text(
    data: Mapping[str, Any], key: str, default: str | None = None, limit: int = _MAX_KEY
) -> str:
    """A text field; `default` if it is absent and may be."""
    value = data.get(key, default)
    if not isinstance(value, str) or len(value) > limit:
        raise ValueError(f"{key} is not a text" if not isinstance(value, str) else f"{key}: long")
    return value


def key_text(
    data: Mapping[str, Any], key: str, default: str | None = None, *, empty: bool = False
) -> str:
    """A text that something is known by: no control characters, and not empty unless it may."""
    value = text(data, key, default)
    if not (value or empty or default == ""):
        raise ValueError(f"{key} is empty")
    if _CONTROL.search(value):
        raise ValueError(f"{key} holds control characters")
    return value


def whole(data: Mapping[str, Any], key: str, least: int = -_INT32, limit: int = _INT32) -> int:
    """A field with a whole number, at least `least` and less than `limit`."""
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < limit:
        raise ValueError(f"{key} is not a whole number in range")
    return value


def _number(data: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = data.get(key, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > _MAX_FLOAT:
        raise ValueError(f"{key} is not a number")
    return float(value)


def _moment(data: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Seconds since 1970, or of a length of time: both before the year 10000."""
    value = _number(data, key, default)
    if not 0 <= value < _YEAR_10000:
        raise ValueError(f"{key} is not within 0 and the year 9999")
    return value


def mapping(
    data: Mapping[str, Any], key: str, default: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """A field with an object; `default` if it is absent and may be."""
    value = data.get(key, default)
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is not an object")
    return value
