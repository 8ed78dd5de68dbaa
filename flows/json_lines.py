"""Everything that a command prints as JSON, one object a line: for machines that read logs.

In: messages, records of Python's logging.  Out: lines with the keys `created`, `levelname`, `name`
and `msg`, which the lines of Prefect have, too.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any


def json_line(
    text: str, level: str = "INFO", *, name: str = "noctune", created: float = 0.0, **more: Any
) -> str:
    """A message as one line of JSON, without a line end."""
    head = {"created": created or time.time(), "levelname": level, "name": name, "msg": text}
    return json.dumps(head | more)


def tell(args: argparse.Namespace | None, text: str, level: str = "INFO") -> None:
    """A line on standard error, in JSON if the command prints nothing else."""
    in_json = getattr(args, "log_json", False)
    print(json_line(text, level) if in_json else text, file=sys.stderr, flush=True)


def result_text(args: argparse.Namespace, plain: Any) -> str:
    """A command's result in JSON: for people too, or as one of the lines."""
    return json.dumps(plain, indent=None if getattr(args, "log_json", False) else 2, default=str)


class JsonLines(logging.Formatter):
    """Formats records of Python's logging."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return json_line(text, record.levelname, name=record.name, created=record.created)


def show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """Takes the place of `warnings.showwarning`."""
    print(json_line(f"{category.__name__}: {message}", "WARNING"), file=sys.stderr, flush=True)
