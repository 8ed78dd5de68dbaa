"""Buffers hold what their layout says, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expr import Layout, channel_blocked, row_major, transposed
from engine.runtime.buffers import aligned_empty, from_buffer, to_buffer, write_buffer


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank)))
    kind = draw(st.sampled_from(["plain", "transposed", "blocked"]))
    if kind == "plain" or rank < 3:
        return row_major(shape)
    if kind == "transposed":
        return transposed(row_major(shape), tuple(draw(st.permutations(range(rank)))))
    pair = st.tuples(st.integers(0, 2), st.integers(0, 2))
    halo = ((0, 0), (0, 0), *(draw(pair) for _ in shape[2:]))
    channels = draw(st.integers(1, 20))
    block = draw(st.sampled_from([1, 3, 4, 8]))
    return channel_blocked((shape[0], channels, *shape[2:]), block, halo)


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1))
def test_every_element_lies_where_the_layout_says(layout: Layout, seed: int) -> None:
    array = np.random.default_rng(seed).uniform(1, 2, layout.shape).astype(np.float32)
    flat = to_buffer(array, layout)
    expected = np.zeros(layout.size, dtype=np.float32)
    for index in itertools.product(*(range(n) for n in layout.shape)):
        expected[layout.flat(index)] = array[index]
    np.testing.assert_array_equal(flat, expected)
    back = from_buffer(flat, layout)
    np.testing.assert_array_equal(back, array)
    assert back.flags.c_contiguous and not np.shares_memory(back, flat)


def test_buffers_start_on_a_cache_line() -> None:
    for n in (1, 7, 1000):
        assert aligned_empty(n).ctypes.data % 64 == 0
        assert to_buffer(np.ones(n), row_major((n,))).ctypes.data % 64 == 0
    assert aligned_empty(5, 4096).ctypes.data % 4096 == 0


def test_writing_a_slice_leaves_the_rest_of_the_buffer() -> None:
    whole = channel_blocked((1, 16, 3, 3), 8, ((0, 0), (0, 0), (1, 1), (1, 1)))
    second = replace(whole, shape=(1, 8, 3, 3), offset=whole.offset + whole.strides[1])
    flat = to_buffer(np.full(whole.shape, 7.0), whole)
    write_buffer(np.full(second.shape, 9.0), flat, second)
    read = from_buffer(flat, whole)
    assert (read[:, :8] == 7).all() and (read[:, 8:] == 9).all()
    assert flat.sum() == 7 * 72 + 9 * 72


def test_arrays_of_other_types_and_orders_are_taken() -> None:
    array = np.arange(24, dtype=np.int64).reshape(4, 3, 2).T
    np.testing.assert_array_equal(from_buffer(to_buffer(array, row_major((2, 3, 4))),
                                              row_major((2, 3, 4))), array)  # fmt: skip


def test_wrong_shapes_and_short_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        to_buffer(np.zeros((2, 3)), row_major((3, 2)))
    with pytest.raises(ValueError, match="buffer"):
        from_buffer(aligned_empty(5), row_major((2, 3)))
