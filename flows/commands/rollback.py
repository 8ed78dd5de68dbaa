"""Publish the version of a network before the present one again.

The link `current` is swapped at once; nothing is deleted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import NoctuneError
from flows.options import add_json, positive
from flows.text import table

if TYPE_CHECKING:
    from tasks.publishing import Published

EXAMPLE = "noctune rollback resnet-50 --folder published"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", help="name of the network")
    parser.add_argument(
        "--folder", default="published", metavar="DIR", help="where it is published (published)"
    )
    parser.add_argument("--to", type=positive, metavar="N", help="this version instead")
    parser.add_argument("--list", action="store_true", help="show the versions, change nothing")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from tasks.publishing import check_name, rollback, versions

    check_name(args.network)
    found = versions(args.folder, args.network)
    if not found:
        raise _never_published(args.folder, args.network)
    if args.list:
        return _list(args, found)
    before, after = rollback(args.folder, args.network, args.to)
    if args.json:
        number = before.number if before else None
        print(json.dumps({"from": number, "to": after.number, "file": str(after.file)}))
    else:
        was = f"was {before.number}" if before else "there was none"
        print(f"{args.network}: version {after.number} is current again ({was})")
        print(f"  {after.file}")
    return 0


def _never_published(folder: str, network: str) -> NoctuneError:
    from tasks.publishing import versions

    home = Path(folder)
    names = sorted(path.name for path in home.iterdir()) if home.is_dir() else []
    there = ", ".join(name for name in names if versions(home, name))
    return NoctuneError(
        f"'{network}' was never published here",
        where=folder,
        why="" if home.is_dir() else "the folder does not exist",
        fix=f"There are: {there}." if there else "Name the folder of the nights: --folder DIR.",
    )


def _list(args: argparse.Namespace, found: tuple[Published, ...]) -> int:
    plain = [
        {
            "number": v.number,
            "current": v.is_current,
            "file": str(v.file),
            "median_ms": v.report.get("timing", {}).get("noctune", {}).get("median_ms"),
        }
        for v in found
    ]
    if args.json:
        print(json.dumps(plain, indent=2))
        return 0
    cells = [
        (
            p["number"], "current" if p["current"] else "",
            "-" if p["median_ms"] is None else f"{p['median_ms']:.3f}", p["file"],
        )
        for p in plain
    ]  # fmt: skip
    print(table(("version", "", "median ms", "file"), cells, left=2))
    return 0
