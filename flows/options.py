"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

FORMATTER = "PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER"
"""Prefect's variable for the form of its lines; "json" stands for --log-json, too."""

DEFAULT_DB = "noctune.sqlite"
"""In the current folder: a project's records lie with the project."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_LONGEST_D, _OLDEST_D = 366, 100 * 366
"""Days: bounds of what can be meant."""


def duration(text: str) -> float:
    """Seconds from "90", "90s", "10m", "1h30m"; at most a year."""
    return _seconds(text, _LONGEST_D)


def age(text: str) -> float:
    """Seconds like a duration's; at most a century."""
    return _seconds(text, _OLDEST_D)


def _seconds(text: str, days: int) -> float:
    full = f"{text}s" if re.fullmatch(r"\d+(\.\d+)?", text) else text
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", full)
    if not parts or "".join(number + unit for number, unit in parts) != full:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time; write 90s, 10m or 1h30m")
    value = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < value <= days * _UNITS["d"]:
        raise argparse.ArgumentTypeError(f"'{text}' must be more than zero and at most {days}d")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return value


def whole(text: str) -> int:
    """A whole number from 0 on."""
    if not re.fullmatch(r"\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 on")
    return int(text)


def peer_names(text: str) -> list[str]:
    """["onnxruntime", "openvino"] from "onnxruntime,openvino"; each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """("x", (1, 3, 224, 224)) from "x=1,3,224,224"."""
    name, sign, numbers = text.rpartition("=")
    try:
        dims = tuple(int(n) for n in numbers.split(",") if n) if sign else ()
    except ValueError:
        dims = ()
    if not sign or not name or any(d < 1 for d in dims) or (numbers and not dims):
        raise argparse.ArgumentTypeError(f"'{text}' is not a shape; write name=1,3,224,224")
    return name, dims


def add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape", type=shape, action="append", default=[], metavar="NAME=D,D,...",
        help="fix an input's dynamic shape; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=positive, default=1, metavar="N",
        help="batch size of a built-in network (default 1)",
    )  # fmt: skip


def add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db", default=os.environ.get("NOCTUNE_DB", DEFAULT_DB), metavar="URL",
        help="the database: a file, or postgresql://user@host/name "
        f"(default: $NOCTUNE_DB or {DEFAULT_DB} in this folder)",
    )  # fmt: skip


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", default="host", metavar="NAME",
        help="CPU to make code for: host, avx512, avx2 or sse42 (default host)",
    )  # fmt: skip
    add_threads(parser)


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=positive, default=None, metavar="N",
        help="threads of the network (default: all cores this process may use)",
    )  # fmt: skip


def add_network(parser: argparse.ArgumentParser) -> None:
    """What says how networks are read, and which records and code they get."""
    add_shape(parser)
    add_db(parser)
    add_target(parser)
    add_accuracy(parser)


def network_options(args: argparse.Namespace) -> dict[str, Any]:
    """The values of `add_network`, as the flows' parameters name them."""
    return {
        "db": args.db,
        "target": args.target,
        "threads": args.threads,
        "shapes": {name: list(dims) for name, dims in args.shape},
        "batch": args.batch,
        "accuracy": args.accuracy,
    }


def network_words(args: argparse.Namespace) -> list[str]:
    """The values of `add_network` that are not the usual ones, as another command takes them."""
    parser = argparse.ArgumentParser()
    add_network(parser)
    usual = parser.parse_args([])
    words = [
        w for name, dims in args.shape for w in ("--shape", f"{name}={','.join(map(str, dims))}")
    ]
    for name in ("db", "target", "threads", "batch", "accuracy"):
        value = getattr(args, name)
        if value != getattr(usual, name):
            words += [f"--{name}", str(value)]
    return words


def add_budget(parser: argparse.ArgumentParser, length: str) -> None:
    """--time, whose help is `length`, --trials and --seed."""
    parser.add_argument("--time", type=duration, metavar="T", help=f"{length}: 90s, 10m, 1h30m")
    parser.add_argument(
        "--trials", type=positive, metavar="N", help="new trials of this run, at most"
    )
    parser.add_argument("--seed", type=whole, default=0, metavar="S", help="seed of all randomness")


def add_accuracy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accuracy", choices=("strict", "default", "fast"), default="default",
        help="strict: direct sums only; default: algorithms with errors below 1e-4 of the largest "
        "output of a layer; fast: below 1e-3",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def add_logs(parser: argparse.ArgumentParser) -> None:
    """--verbose and --log-json."""
    add_verbose(parser)
    parser.add_argument(
        "--log-json", action="store_true", default=os.environ.get(FORMATTER) == "json",
        help="everything as JSON, one object a line: the log on standard error, the result on "
        "standard output",
    )  # fmt: skip


def add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="show Prefect's own messages too")
