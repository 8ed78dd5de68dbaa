"""What Prefect logs of an error that a user can act on: its one line, without tracebacks.

In: the log records of flow and task runs.  Out: the same, without the chain of exceptions of the
libraries below, unless somebody logs at the level DEBUG.
"""

from __future__ import annotations

import logging

from engine.errors import NoctuneError

_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


def one_line_errors() -> None:
    """From here on; harmless if repeated."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_shorten)


def _shorten(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, NoctuneError) and not logging.getLogger(record.name).isEnabledFor(
        logging.DEBUG
    ):
        record.exc_info = record.exc_text = None
    return True
