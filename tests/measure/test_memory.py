from __future__ import annotations

import numpy as np
import pytest

from engine.measure.memory import GuardedBuffer


@pytest.mark.parametrize("floats", [0, 1, 7, 16, 1000, 1024, 1 << 20])
def test_buffer(floats: int) -> None:
    buffer = GuardedBuffer(floats)
    assert buffer.data.shape == (floats,) and buffer.data.dtype == np.float32
    assert buffer.address % 64 == 0 or floats == 0
    assert not buffer.data.any() and buffer.intact
    buffer.data[:] = 3.0
    assert buffer.intact and (buffer.data == 3.0).all()


@pytest.mark.parametrize("offset", [-1, -16, 0, 15])
def test_a_write_just_outside_shows(offset: int) -> None:
    buffer = GuardedBuffer(100)
    before, after = buffer._strips
    strip, at = (before, len(before) + offset) if offset < 0 else (after, offset)
    strip[at] = 0
    assert not buffer.intact
    buffer.repair()
    assert buffer.intact


def test_frozen_buffer_keeps_its_values() -> None:
    buffer = GuardedBuffer(10)
    buffer.data[:] = 2.0
    assert (buffer.freeze().data == 2.0).all() and buffer.intact


def test_no_room() -> None:
    with pytest.raises(MemoryError):
        GuardedBuffer(1 << 60)
