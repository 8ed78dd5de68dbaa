"""Look into the database; export, import and prune records."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.options import add_db, add_json, age, positive
from flows.text import milliseconds, table

if TYPE_CHECKING:
    from db.store import Store
    from engine.records import MeasureRecord, RecordScope

EXAMPLE = "noctune records best --db noctune.sqlite"

ACTIONS = {
    "list": "the newest records, failed ones too",
    "best": "the fastest record of each workload and target",
    "stats": "how much the database holds",
    "runs": "the tuning runs",
    "export": "write records to a file of JSON lines",
    "import": "read records from such files; known ones are left as they are",
    "diff": "compare this database with another one",
    "prune": "drop old, foreign or failed records, into an archive first",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    made = {}
    for name, text in ACTIONS.items():
        made[name] = sub.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".",
            epilog=f"example:\n  noctune records {_EXAMPLES[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        add_db(made[name])
        add_json(made[name])
    made["list"].add_argument("--limit", type=positive, default=20, metavar="N")
    made["list"].add_argument("--errors", action="store_true", help="failed trials only")
    made["list"].add_argument(
        "--workload",
        metavar="KEY",
        help="of this workload only: its key, or its name as listed",
    )
    made["best"].add_argument(
        "--threads", type=positive, metavar="N", help="for so many threads only"
    )
    made["export"].add_argument("file", help="the file to write")
    made["import"].add_argument("file", nargs="+", help="files to read")
    made["diff"].add_argument("other", help="the other database")
    prune = made["prune"]
    prune.add_argument("--older", type=age, metavar="AGE", help="older than 30d, 12h ...")
    prune.add_argument(
        "--other-generators", action="store_true", help="of other versions of the code generator"
    )
    prune.add_argument("--failed", action="store_true", help="failed trials")
    prune.add_argument("--archive", default="", metavar="FILE", help="where they are written first")


_EXAMPLES = {
    "list": "list --errors --limit 50",
    "best": "best --threads 2 --json",
    "stats": "stats",
    "runs": "runs",
    "export": "export monday.jsonl",
    "import": "import monday.jsonl other-machine.jsonl",
    "diff": "diff other.sqlite",
    "prune": "prune --older 90d --failed",
}


def run(args: argparse.Namespace) -> int:
    return _HANDLERS[args.action](args)


def _open(args: argparse.Namespace, url: str = "") -> Store:
    from tasks.stores import open_existing

    return open_existing(url or args.db)


def _print(args: argparse.Namespace, plain: Any, text: str) -> int:
    print(json.dumps(plain, indent=2) if args.json else text)
    return 0


def _nothing(args: argparse.Namespace, text: str) -> int:
    """Why there are no rows; beside JSON, on standard error."""
    if args.json:
        print(text, file=sys.stderr)
    return _print(args, [], text)


def _list(args: argparse.Namespace) -> int:
    with _open(args) as store:
        names = _names(store)
        keys = None
        if args.workload:
            keys = [key for key, name in names.items() if args.workload in (key, name)]
        found = store.newest(args.limit, keys, args.errors)
        if not found:
            return _nothing(args, _none_listed(store, names, keys, args))
    from db.lines import record_to_json

    cells = [
        (
            names.get(r.workload_key, r.workload_key[:40]), milliseconds(_latency(r)),
            r.error.value, r.schedule.sketch, r.scope.threads, r.scope.timing_mode.value,
            _when(r.created), r.message[:60],
        )
        for r in found
    ]  # fmt: skip
    headers = (
        "workload", "latency ms", "result", "sketch", "threads", "timing", "measured", "message"
    )  # fmt: skip
    return _print(args, [record_to_json(r) for r in found], table(headers, cells))


def _none_listed(
    store: Store, names: Mapping[str, str], keys: list[str] | None, args: argparse.Namespace
) -> str:
    known = {group.workload_key for group in store.groups()}
    if not known:
        return "The database holds no records yet."
    if keys is None or known & set(keys):
        return "No trial failed." if keys is None else "No trial of this workload failed."
    there = ", ".join(sorted({names[key] for key in known}))
    return f"No records of a workload '{args.workload}'. There are records of: {there}."


def _no_best(store: Store, threads: int | None) -> str:
    known = sorted({group.scope.threads for group in store.groups() if group.valid})
    if not known:
        return "The database holds no valid records yet."
    return (
        f"No valid records for {threads} threads; there are some for {', '.join(map(str, known))}."
    )


def _best(args: argparse.Namespace) -> int:
    with _open(args) as store:
        names = _names(store)
        groups = [g for g in store.groups() if g.valid and args.threads in (None, g.scope.threads)]
        scopes: dict[RecordScope, list[str]] = {}
        for group in groups:
            scopes.setdefault(group.scope, []).append(group.workload_key)
        found = [
            record for scope, keys in scopes.items() for record in store.best(keys, scope).values()
        ]
        counts = {(g.workload_key, g.scope): g.records for g in groups}
        if not found:
            return _nothing(args, _no_best(store, args.threads))
    from db.lines import record_to_json

    cells = [
        (
            names.get(r.workload_key, r.workload_key[:40]), milliseconds(r.latency),
            counts[r.workload_key, r.scope], r.schedule.sketch,
            *_scope(r.scope),
        )
        for r in found
    ]  # fmt: skip
    headers = ("workload", "latency ms", "trials", "sketch", *_SCOPE)
    return _print(args, [record_to_json(r) for r in found], table(headers, cells))


def _stats(args: argparse.Namespace) -> int:
    with _open(args) as store:
        found = store.stats()
        url = store.url
    plain = {
        "db": url,
        "records": found.records,
        "valid": found.valid,
        "errors": dict(found.errors),
        "workloads": found.workloads,
        "networks": found.networks,
        "runs": found.runs,
        "rounds": found.rounds,
        "compiled_networks": found.compiled_networks,
        "scopes": [{**asdict(s), "records": n} for s, n in found.scopes.items()],
        "size_bytes": found.size_bytes,
        "schema": found.schema,
    }
    lines = [
        url,
        f"{found.records} records ({found.valid} valid) of {found.workloads} workloads",
        f"{found.networks} networks, {found.runs} runs, {found.rounds} rounds, "
        f"{found.compiled_networks} compiled networks",
        f"{found.size_bytes / 1e6:.1f} MB, schema {found.schema or '-'}",
    ]
    lines += [f"  {kind}: {n}" for kind, n in found.errors.items() if kind != "ok"]
    for scope, n in found.scopes.items():
        lines.append(
            f"  {n} records for {scope.target_key}, {scope.threads} threads, {scope.timing_mode}, "
            f"generator {scope.generator_version}"
        )
    return _print(args, plain, "\n".join(lines))


def _runs(args: argparse.Namespace) -> int:
    with _open(args) as store:
        found = store.runs()
        trials = {
            r.run_id: sum(x.trials for x in store.rounds(r.run_id) if x.task_table) for r in found
        }
    plain = [
        {
            "run_id": r.run_id, "networks": list(r.networks), "status": str(r.status),
            "started": r.started, "finished": r.finished, "trials": trials[r.run_id],
            "message": r.message, "params": dict(r.params),
        }
        for r in found
    ]  # fmt: skip
    cells = [
        (
            r.run_id[:12], ", ".join(r.networks), r.status, _when(r.started), trials[r.run_id],
            r.message[:60],
        )
        for r in found
    ]  # fmt: skip
    return _print(args, plain, table(("run", "networks", "status", "started", "trials", ""), cells))


def _export(args: argparse.Namespace) -> int:
    from db.exchange import export_store
    from engine.files import check_writable
    from tasks.stores import store_files

    check_writable(args.file, *store_files(args.db))
    with _open(args) as store:
        lines = export_store(store, args.file)
    return _print(args, {"file": args.file, "lines": lines}, f"Wrote {lines} lines to {args.file}")


_SHOWN = 10
"""Lines passed over that are listed."""


def _import(args: argparse.Namespace) -> int:
    from db.exchange import import_file
    from db.store import open_store
    from engine.errors import StoreError

    plain, lines = [], []
    useless = ""
    for path in args.file:
        Path(path).stat()  # what is missing ends it before a database is made
    with open_store(args.db) as store:
        for path in args.file:
            report = import_file(store, path)
            plain.append({"file": path, **asdict(report)})
            lines.append(
                f"{path}: {report.new} new records, {report.known} known, "
                f"{report.bad_count} of {report.lines} lines passed over"
            )
            lines += [f"  line {bad.number}: {bad.reason}" for bad in report.bad[:_SHOWN]]
            if report.bad_count > _SHOWN:
                lines.append(f"  ... and {report.bad_count - _SHOWN} more")
            if report.bad_count == report.lines > 0:
                useless = useless or path
    _print(args, plain, "\n".join(lines))
    if useless:
        raise StoreError(
            "no line of this file is one of noctune's records",
            where=useless,
            fix="Name files that `noctune records export` wrote.",
        )
    return 0


def _diff(args: argparse.Namespace) -> int:
    from db.compare import diff_stores

    with _open(args) as here, _open(args, args.other) as there:
        names = {**_names(there), **_names(here)}
        found = diff_stores(here, there)
    plain = {
        "only_here": found.only_left,
        "only_there": found.only_right,
        "both": found.both,
        "best": [
            {"workload_key": c.workload_key, **asdict(c.scope), "here": c.left, "there": c.right}
            for c in found.changes
        ],
    }
    cells = [
        (
            names.get(c.workload_key, c.workload_key[:40]), milliseconds(c.left),
            milliseconds(c.right), *_scope(c.scope),
        )
        for c in found.changes
    ]  # fmt: skip
    text = (
        f"{found.both} records in both, {found.only_left} only here, {found.only_right} only there"
    )
    if cells:
        text += "\n\n" + table(("best differs", "here ms", "there ms", *_SCOPE), cells)
    return _print(args, plain, text)


def _prune(args: argparse.Namespace) -> int:
    from engine.records import GENERATOR_VERSION
    from tasks.upkeep import prune

    _open(args).close()
    report = prune(
        args.db,
        before=time.time() - args.older if args.older else None,
        other_than_generator=GENERATOR_VERSION if args.other_generators else None,
        failed_only=args.failed,
        archive=args.archive,
    )
    more = f"; they are in {report.archive}" if report.archive else ""
    text = f"{report.db}: {report.removed} records removed, {report.kept} kept{more}"
    return _print(args, asdict(report), text)


_HANDLERS = {
    "list": _list, "best": _best, "stats": _stats, "runs": _runs, "export": _export,
    "import": _import, "diff": _diff, "prune": _prune,
}  # fmt: skip


_SCOPE = ("threads", "timing", "generator", "target")


def _scope(scope: RecordScope) -> tuple[object, ...]:
    """The columns `_SCOPE`: only rows that agree in all of them can be compared."""
    return scope.threads, scope.timing_mode.value, scope.generator_version, scope.target_key


def _names(store: Store) -> dict[str, str]:
    from engine.search.table import task_name

    return {key: task_name(_Described(data)) for key, data in store.workloads().items()}  # type: ignore[arg-type]


class _Described:
    """As much of a workload as its name needs, from what the database knows of it."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.anchor, self.description = str(data.get("anchor", "?")), data


def _latency(record: MeasureRecord) -> float | None:
    return record.latency if record.valid else None


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "-"
