"""What the log of a run shows of an error."""

from __future__ import annotations

import logging

import pytest

from engine.errors import StoreError
from tasks.logs import one_line_errors


@pytest.mark.parametrize("name", ["prefect.flow_runs", "prefect.task_runs"])
def test_errors_of_users_have_no_traceback(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_line_errors()
    one_line_errors()
    log, found = logging.getLogger(name), list[logging.LogRecord]()
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign]
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "propagate", False)
    before = log.level
    try:
        for level in (logging.INFO, logging.DEBUG):
            log.setLevel(level)
            for error in (StoreError("away"), ZeroDivisionError("a fault")):
                try:
                    raise error from OSError("below")
                except Exception as caught:
                    log.error("Encountered %r", caught, exc_info=True)
    finally:
        log.setLevel(before)
    assert [record.exc_info is None for record in found] == [True, False, False, False]
