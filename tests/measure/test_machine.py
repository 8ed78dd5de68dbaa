"""The loops that find this machine's peaks stay in their buffers and give sensible figures."""

from __future__ import annotations

import os

import pytest

import engine.measure.machine
from engine.measure.machine import measure_machine
from engine.measure.memory import GuardedBuffer
from engine.target import host


@pytest.mark.parametrize("threads", [1, 2])
def test_peaks_are_found_within_the_buffers(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if threads > len(os.sched_getaffinity(0)):
        pytest.skip("one core")
    made: list[GuardedBuffer] = []

    def guarded(floats: int) -> GuardedBuffer:
        made.append(GuardedBuffer(floats))
        return made[-1]

    monkeypatch.setattr(engine.measure.machine, "GuardedBuffer", guarded)
    found = measure_machine(host(), threads)
    assert found.threads == threads and found.flops > 1e9
    assert set(found.bandwidth) == {"L1", "L2", "L3", "memory"}
    assert all(rate > 1e8 for rate in found.bandwidth.values())
    assert len(made) == 5 and all(buffer.intact for buffer in made)
