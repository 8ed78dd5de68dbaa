"""Native copies put every element where the layout says."""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import pytest

from engine.expr import Layout, channel_blocked, row_major, transposed
from engine.runtime.buffers import aligned_zeros, to_buffer
from engine.runtime.copies import COPY_UNITS, copy_region
from engine.runtime.jit import emit_object, load_object
from engine.target import host

HALO = ((0, 0), (0, 0), (1, 2), (3, 0))
LAYOUTS = {
    "plain": row_major((2, 5, 3, 4)),
    "scalar": row_major(()),
    "vector": row_major((1000,)),
    "channels last": channel_blocked((1, 3, 9, 7), 3, HALO),
    "blocked": channel_blocked((2, 16, 6, 5), 8, HALO),
    "ragged": channel_blocked((2, 21, 4, 5), 8, HALO),
    "one ragged block": channel_blocked((1, 5, 4, 5), 8),
    "wide lanes": channel_blocked((1, 70, 4, 3), 32),
    "three axes": channel_blocked((2, 12, 9), 4, ((0, 0), (0, 0), (1, 1))),
    "transposed": transposed(row_major((6, 5, 4)), (2, 0, 1)),
}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", LAYOUTS)
def test_in_and_out(name: str, threads: int) -> None:
    layout = LAYOUTS[name]
    array = np.random.default_rng(0).normal(size=layout.shape).astype(np.float32)
    flat = aligned_zeros(layout.size)
    run(row_major(layout.shape), layout, array, flat, threads)
    np.testing.assert_array_equal(flat, to_buffer(array, layout))
    back = np.zeros_like(array)
    run(layout, row_major(layout.shape), flat, back, threads)
    np.testing.assert_array_equal(back, array)


def run(source: Layout, target: Layout, a: np.ndarray, b: np.ndarray, threads: int) -> None:
    cpu = host()
    image = emit_object(copy_region("copy", source, target), cpu.cpu, cpu.feature_string, passes=3)
    code = load_object(image, ["copy"])
    call = code.function("copy", None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    args = np.array([a.ctypes.data, b.ctypes.data], dtype=np.uint64)
    cuts = [COPY_UNITS * i // threads for i in range(threads + 1)]
    for thread, (first, past) in enumerate(pairwise(cuts)):
        call(args.ctypes.data, thread, first, past)


def test_an_empty_array_needs_no_copy() -> None:
    empty = row_major((2, 0, 3))
    run(empty, empty, np.zeros(1, np.float32), np.zeros(1, np.float32), 2)
