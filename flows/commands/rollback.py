"""Publish the version of a network before the present one again.

The link `current` is swapped at once; nothing is deleted.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

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
    from tasks.publishing import rollback, versions

    if args.list:
        return _list(args, versions(args.folder, args.network))
    before, after = rollback(args.folder, args.network, args.to)
    if args.json:
        print(json.dumps({"from": before.number, "to": after.number, "file": str(after.file)}))
    else:
        print(f"{args.network}: version {after.number} is current again (was {before.number})")
        print(f"  {after.file}")
    return 0


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
