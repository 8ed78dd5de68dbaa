"""The memory plan never gives one place to two buffers that are alive together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expr import channel_blocked, row_major
from engine.runtime.plan import SLACK, Buffer, plan_memory, zero_cells

HALO = ((0, 0), (0, 0), (1, 1), (1, 1))


@st.composite
def buffer_lists(draw: st.DrawFn) -> list[Buffer]:
    made = []
    for i in range(draw(st.integers(0, 25))):
        first = draw(st.integers(-1, 20))
        kind = draw(st.sampled_from(["", "", "a", "b"]))
        size = {"": draw(st.integers(1, 5000)), "a": 300, "b": 300}[kind]
        made.append(Buffer(f"b{i}", size, first, first + draw(st.integers(0, 8)), kind))
    return made


@settings(max_examples=200, deadline=None)
@given(buffer_lists())
def test_places_of_the_living_are_apart(buffers: list[Buffer]) -> None:
    plan = plan_memory(buffers)
    assert set(plan.offsets) == {b.name for b in buffers}
    places = {b.name: (plan.offsets[b.name], plan.offsets[b.name] + 4 * b.size) for b in buffers}
    for low, high in places.values():
        assert low % 64 == 0 and low >= SLACK and high <= plan.size - SLACK
    for a in buffers:
        for b in buffers:
            if a.name >= b.name:
                continue
            apart = places[a.name][1] <= places[b.name][0] or places[b.name][1] <= places[a.name][0]
            if a.meets(b):
                assert apart, (a, b)
            elif a.zeros != b.zeros:
                assert apart, "a buffer with zero cells shares its place with another kind"
            elif a.zeros:
                assert apart or places[a.name] == places[b.name]


def test_a_chain_needs_room_for_two() -> None:
    chain = [Buffer(f"b{i}", 1024, i, i + 1) for i in range(10)]
    haloed = [Buffer(f"h{i}", 1024, i, i + 1, "halo") for i in range(10)]
    assert plan_memory(chain).size == 2 * SLACK + 2 * 4096
    assert plan_memory(haloed).size == 2 * SLACK + 2 * 4096


def test_small_buffers_fill_gaps() -> None:
    big = [Buffer("a", 1024, 0, 9), Buffer("b", 1024, 0, 2), Buffer("c", 1024, 3, 9)]
    small = [Buffer("d", 512, 3, 4), Buffer("e", 512, 5, 6)]
    assert plan_memory(big + small).size == 2 * SLACK + 2 * 4096 + 2048


def test_zero_cells_tell_halos_and_padded_channels() -> None:
    shape = (1, 16, 4, 4)
    plain, halo = channel_blocked(shape, 8), channel_blocked(shape, 8, HALO)
    ragged = channel_blocked((1, 15, 4, 4), 8)
    assert zero_cells(plain.size, [plain]) == ""
    assert zero_cells(row_major(shape).size, [row_major(shape)]) == ""
    assert zero_cells(halo.size, [halo]) and zero_cells(ragged.size, [ragged])
    assert zero_cells(halo.size, [halo]) == zero_cells(halo.size, [halo, halo])
    other = channel_blocked(shape, 8, ((0, 0), (0, 0), (2, 0), (1, 1)))
    assert other.size == halo.size
    assert zero_cells(other.size, [other]) != zero_cells(halo.size, [halo])
