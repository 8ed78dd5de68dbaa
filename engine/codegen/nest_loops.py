"""One nest's loops around its register tile.

In: the levels of a `space.nest.Nest`.  Out: IR through the region's emitter.  Code that knows its
extents is emitted once for each shape of the register tile: a tile loop with a remainder twice, for
full steps and for the rest.  Blocks and parts of a split reduction share it; what differs between
them are trip counts and branches around a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Protocol

from engine.codegen.access import Memory
from engine.codegen.emitter import Emitter
from engine.codegen.plan import KernelPlan
from engine.space.nest import LANE, Level, Nest, Region


class RegionContext(Protocol):
    """What a nest needs of the function it is written into."""

    plan: KernelPlan
    region: Region
    e: Emitter
    memory: Memory

    def share(self, total: int, body: Callable[[str], None]) -> None: ...

    def decode(self, point: str, extents: Sequence[int]) -> list[str]: ...


def trip_counts(nest: Nest, region: Region) -> dict[str, int]:
    """Largest trip count of every sub-loop."""
    current = nest.stage.extents
    found = {a.name: a.extent for a in region.shared}
    for level, name in nest.named():
        found[name] = -(-current[level.axis] // level.step)
        current[level.axis] = min(level.step, current[level.axis])
    for axis, points in nest.tile.items():
        found[f"{axis}.t"] = points
    if nest.vector is not None:
        found[LANE] = min(nest.lanes, nest.stage.extents[nest.vector])
    return found


class NestLoops:
    """Emits one nest's loops; `_tile_all` is what stands inside them."""

    def __init__(self, region: RegionContext, nest: Nest) -> None:
        self.r, self.nest, self.e = region, nest, region.e
        self.stage = nest.stage
        self.extent = dict(self.stage.extents)
        self.counts = trip_counts(nest, region.region)
        self.memory = region.memory
        self.memory.points = {}
        self.memory.counts = self.counts
        self.points = self.memory.points
        self.kind = "float" if nest.lanes == 1 else f"<{nest.lanes} x float>"
        levels = list(nest.named())
        self._blocks, levels = levels[: nest.blocks], levels[nest.blocks :]
        self._split, levels = levels[: bool(nest.split)], levels[bool(nest.split) :]
        tiles = len(nest.outer) - nest.blocks
        self._tiles, self._reduction = levels[:tiles], levels[tiles:]
        self._first: str | bool = True
        self._last: str | bool = True
        """Whether this is the first, the last part of a split reduction: known, or an SSA i1."""
        self._short: dict[str, tuple[str, str, int]] = {}
        """Axis whose last block is short -> (block loop, SSA i1: this is it, its elements)."""

    def _tile_all(self, carried: list[str]) -> list[str]:
        raise NotImplementedError

    def serial(self) -> None:
        self._levels(self._blocks, [], lambda _: self._block())

    def _block(self) -> list[str]:
        """The tiles of one block, once for each part of a split reduction."""
        if not self._split:
            return self._tile_loops()
        level, name = self._split[0]
        whole = self.extent[level.axis]
        parts, left = divmod(whole, level.step)
        self.extent[level.axis] = level.step

        def part(_: list[str]) -> list[str]:
            number = self.e.value_of(name)
            self._first = self.e.hoisted([name], f"icmp eq i64 {number}, 0")
            self._last = not left and self.e.hoisted([name], f"icmp eq i64 {number}, {parts - 1}")
            return self._tile_loops()

        self.e.loop(name, "0", str(parts), [], part)
        self._first, self._last = False, True
        if left:
            self.extent[level.axis], self.points[name] = left, parts
            self._tile_loops()
            del self.points[name]
        self.extent[level.axis] = whole
        self._first = True
        return []

    def _tile_loops(self) -> list[str]:
        return self._levels(self._tiles, [], self._tile_all)

    def parallel(self, depth: int) -> None:
        """The first `depth` outer levels split over the threads, the others in order."""
        shared, rest = self._blocks[:depth], self._blocks[depth:]
        trips = [self.counts[name] for _, name in shared]

        def body(point: str) -> None:
            decoded = self.r.decode(point, trips)
            for (_, name), value in zip(shared, decoded, strict=True):
                self.e.open_scope(name, value)
            self._branches(shared, decoded, rest)
            for _ in shared:
                self.e.close_scope()

        self.r.share(prod(trips), body)

    def _branches(
        self,
        shared: Sequence[tuple[Level, str]],
        decoded: Sequence[str],
        rest: Sequence[tuple[Level, str]],
    ) -> None:
        if not shared:
            self._levels(rest, [], lambda _: self._block())
            return
        (level, name), value = shared[0], decoded[0]
        whole, left = divmod(self.extent[level.axis], level.step)

        def take(extent: int) -> None:
            saved = self.extent[level.axis]
            self.extent[level.axis] = extent
            self._branches(shared[1:], decoded[1:], rest)
            self.extent[level.axis] = saved

        def remainder() -> None:
            self.points[name] = whole
            take(left)
            del self.points[name]

        if not left:
            take(level.step)
        elif not whole:
            remainder()
        elif self._is_tiled(level):
            self._enter_block(level, name)
            take(level.step)
            del self._short[level.axis]
        else:
            test = self.e.op(f"icmp slt i64 {value}, {whole}")
            self.e.branch(test, lambda: take(level.step), remainder)

    def _levels(
        self,
        levels: Sequence[tuple[Level, str]],
        carried: list[str],
        inner: Callable[[list[str]], list[str]],
    ) -> list[str]:
        """Loops over `levels` around `inner`, which maps carried values to new ones."""
        if not levels:
            return inner(carried)
        (level, name), rest = levels[0], levels[1:]
        current = self.extent[level.axis]
        whole, left = divmod(current, level.step)

        def run(values: list[str]) -> list[str]:
            return self._levels(rest, values, inner)

        if levels[0] in self._tiles and level.axis in self._short:
            self._short_tiles(level, name, partial(run, []))
            return carried
        self.extent[level.axis] = level.step
        if whole and left and levels[0] in self._blocks and self._is_tiled(level):
            self._short_blocks(level, name, run)
            self.extent[level.axis] = current
            return carried
        if whole == 1 or level.unroll:
            for i in range(whole):
                self.points[name] = i
                carried = run(carried)
                del self.points[name]
        elif whole:
            pairs = [(self.kind, c) for c in carried]
            carried = self.e.loop(name, "0", str(whole), pairs, run)
        if left:
            self.extent[level.axis] = left
            self.points[name] = whole
            carried = run(carried)
            del self.points[name]
        self.extent[level.axis] = current
        return carried

    def _is_tiled(self, level: Level) -> bool:
        """Whether tile loops run inside this block loop."""
        return any(tiles.axis == level.axis for tiles, _ in self._tiles)

    def _enter_block(self, level: Level, name: str) -> None:
        """Note that the last block of an axis is short."""
        whole, left = divmod(self.stage.extents[level.axis], level.step)
        last = self.e.hoisted([name], f"icmp eq i64 {self.e.value_of(name)}, {whole}")
        self._short[level.axis] = (name, last, left)

    def _short_blocks(self, level: Level, name: str, run: Callable[[list[str]], list[str]]) -> None:
        """A block loop whose last block is short."""

        def block(_: list[str]) -> list[str]:
            self._enter_block(level, name)
            return run([])

        self.e.loop(name, "0", str(self.counts[name]), [], block)
        del self._short[level.axis]

    def _short_tiles(self, level: Level, name: str, run: Callable[[], list[str]]) -> None:
        """The tiles of a block that may be the short one."""
        block, last, left = self._short[level.axis]
        current = self.extent[level.axis]
        whole = current // level.step
        short, rest = divmod(left, level.step)

        def full() -> None:
            self.extent[level.axis] = level.step
            if whole == 1:
                self.points[name] = 0
                run()
                del self.points[name]
                return
            stop = str(whole)
            if short:
                stop = self.e.hoisted([block], f"select i1 {last}, i64 {short}, i64 {whole}")
            self.e.loop(name, "0", stop, [], lambda _: run())

        def ragged() -> None:
            self.extent[level.axis], self.points[name] = rest, short
            run()
            del self.points[name]

        if not short:
            self.e.branch(last, ragged, full)
        else:
            full()
            if rest:
                self.e.branch(last, ragged, None)
        self.extent[level.axis] = current
