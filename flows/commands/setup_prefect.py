"""Create what the deployments need on a Prefect server: work pool, limit, zombie automation.

Safe to repeat.  Needs a running server (`prefect server start`, PREFECT_API_URL).
"""

from __future__ import annotations

import argparse
import json

from flows.options import add_json, positive

EXAMPLE = "PREFECT_API_URL=http://127.0.0.1:4200/api noctune setup-prefect --pool noctune"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pool", default="noctune", metavar="NAME", help="work pool (noctune)")
    parser.add_argument(
        "--queue", action="append", default=[], metavar="NAME",
        help="work queue of a CPU type, one run at a time; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--silent-after", type=positive, default=90, metavar="SECONDS",
        help="a run without a heartbeat for so long is marked as crashed (90)",
    )  # fmt: skip
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.errors import NoctuneError
    from flows.environment import prepare_prefect, server_is_configured

    prepare_prefect()
    if not server_is_configured():
        raise NoctuneError(
            "no Prefect server is configured",
            fix="Start one (prefect server start) and set PREFECT_API_URL to its address.",
        )
    from flows.prefect_setup import set_up

    lines = set_up(args.pool, args.queue, args.silent_after)
    print(json.dumps(lines) if args.json else "\n".join(lines))
    return 0
