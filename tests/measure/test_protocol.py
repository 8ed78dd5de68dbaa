from __future__ import annotations

import os
import threading

import pytest

from engine.measure.process import explain_exit
from engine.measure.protocol import Done, Failed, Inbox, pack, receive, send
from engine.records import ErrorKind

MESSAGES = [Done(list(range(1000))), Failed(ErrorKind.CRASH, "x", {"signal": "SIGSEGV"}), Done(b"")]


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_messages_in_any_pieces(step: int) -> None:
    stream, inbox, found = b"".join(map(pack, MESSAGES)), Inbox(), []
    for start in range(0, len(stream), step):
        found += inbox.feed(stream[start : start + step])
    assert found == MESSAGES


def test_garbage_is_refused() -> None:
    with pytest.raises(ValueError, match="not a message"):
        Inbox().feed(b"Hello, world! This is no protocol.")
    with pytest.raises(ValueError, match="not a message"):
        Inbox().feed((5).to_bytes(8, "little") + b"Hello")


def test_large_message_through_a_pipe() -> None:
    reader, writer = os.pipe()
    message = Done(bytes(5 << 20))
    sender = threading.Thread(target=send, args=(writer, message))
    sender.start()
    assert receive(reader) == message
    sender.join()
    os.close(writer)
    with pytest.raises(EOFError):
        receive(reader)
    os.close(reader)


@pytest.mark.parametrize(
    ("code", "peak", "kind", "words"),
    [
        (3, 0, ErrorKind.CRASH, "code 3"),
        (0, 0, ErrorKind.CRASH, "code 0"),
        (-11, 0, ErrorKind.CRASH, "SIGSEGV"),
        (-11, 95, ErrorKind.OUT_OF_MEMORY, "SIGSEGV"),
        (-9, 0, ErrorKind.OUT_OF_MEMORY, "SIGKILL"),
        (-62, 0, ErrorKind.CRASH, "signal 62"),
        (None, 0, ErrorKind.CRASH, "closed"),
    ],
)
def test_exit_codes(code: int | None, peak: int, kind: ErrorKind, words: str) -> None:
    found, message, _ = explain_exit(code, peak, 100)
    assert found is kind and words in message
