"""Multi-level tiling: knobs of one group, their legality, and the nest that they give.

Space axes are cut into register tiles and blocks of tiles, reduction axes into layout blocks and
unrolled chunks.  Structure, outermost first (S space, R reduction, T register tile):

    S block loops (split over the threads), S tile loops, R loops, R unrolled, T unrolled

Knobs of stage `s`: `s.AXIS` points of the register tile (for the vector axis: vectors),
`s.AXIS.block` tiles per block, `s.outer` and `s.inner` the order of block and tile loops (0: vector
axis innermost, 1: vector axis outermost), `s.split` channels of one part of a long reduction,
`s.unroll` channel-like reduction steps, `s.window` window axes that are unrolled, `s.prefetch`
whether the next weights are asked for while the present ones are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from engine.expr import Axis, Read
from engine.space.footprints import Footprints
from engine.space.nest import Level, Nest
from engine.space.skeleton import Group, Skeleton

Columns = Mapping[str, NDArray[np.int64]]

_MAX_BODIES = 12
_MAX_BODY, _MAX_CODE = 320, 1200
"""Multiply-adds of one innermost body, and of all bodies: more does not get faster."""
_MAX_SPILL = 4
_TILES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
_OUTER_TILES = (1, 2, 3, 4, 7)
_VECTORS = (1, 2, 3, 4, 6, 8)
_UNROLLED = (1, 2, 4, 8, 16)
_PARTS = (64, 128, 256, 512)
_BLOCKS = (1, 2, 4, 7, 8, 14, 16, 28, 32)
_STREAM = 1 << 19
"""Bytes of a constant from which on prefetching it is a choice."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A named choice; `values` are all that make sense for the shapes and the target."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Tiling:
    """The tiling space of one group of a skeleton."""

    skeleton: Skeleton
    group: Group
    threads: int

    @cached_property
    def lanes(self) -> int:
        return self.skeleton.target.lanes if self.group.vector else 1

    @cached_property
    def space(self) -> tuple[Axis, ...]:
        """Space axes that get loops: not shared, not unrolled."""
        stage = self.group.stage
        shared = {a.name for a in self.skeleton.shared}
        return tuple(a for a in stage.axes if a.name not in shared | set(stage.unroll))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """Different reads of the group's stage, found once since every population asks."""
        return tuple(dict.fromkeys(self.skeleton.reads_of(self.group.stage)))

    @cached_property
    def footprints(self) -> Footprints:
        """Bytes that spans of the stage's axes touch."""
        skeleton = self.skeleton
        found = (r for r in self.reads if r.tensor not in skeleton.dag.constants)
        return Footprints(found, skeleton.is_constant)

    @cached_property
    def fixed_tile(self) -> dict[str, int]:
        """Axes that the stage wants unrolled whole."""
        stage = self.group.stage
        return {a.name: a.extent for a in stage.axes if a.name in stage.unroll}

    @cached_property
    def constant_transform(self) -> bool:
        return bool(self.group.stage.unroll)

    @cached_property
    def reuse(self) -> bool:
        """Whether some operand is read by several points: then register tiles pay."""
        return self.group.stage.reducer is not None and not self.constant_transform

    def units(self, axis: Axis) -> int:
        """Points of an axis, or vectors along the vector axis."""
        if axis.name == self.group.vector:
            return -(-axis.extent // self.lanes)
        return axis.extent

    @cached_property
    def tiled(self) -> tuple[Axis, ...]:
        """Axes with a register-tile knob: the vector axis and the two innermost others."""
        if self.constant_transform:
            return ()
        others = [a for a in self.space if a.name != self.group.vector and a.extent > 1]
        useful = [a for a in others if self._reused_along(a)] or others[-1:]
        vector = [a for a in self.space if a.name == self.group.vector]
        return tuple(useful[-2:] + vector)

    def _reused_along(self, axis: Axis) -> bool:
        """Whether some operand is the same all along the axis, or along it and another one at
        once."""
        others = {a.name for a in self.space if a is not axis and a.extent > 1}
        return any(
            not any(i.coeff(axis.name) for i in r.index)
            or any(i.coeff(axis.name) and others & set(i.axes) for i in r.index)
            for r in self.reads
        )

    @cached_property
    def blocked(self) -> tuple[Axis, ...]:
        """Axes with a block knob: of the tiled ones all but the innermost plain axis."""
        if not self.reuse:
            return ()
        plain = [a for a in self.tiled if a.name != self.group.vector]
        vector = [a for a in self.tiled if a.name == self.group.vector and self.units(a) > 1]
        return tuple((plain[:-1] or plain) + vector)

    @property
    def _prefix(self) -> str:
        return self.group.stage.name + "."

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        out = []
        limit = self.skeleton.target.vector_registers - 2
        for axis in self.tiled:
            units = self.units(axis)
            choices: tuple[int, ...] = _VECTORS if axis.name == self.group.vector else _TILES
            if axis in self.tiled[:-2]:
                choices = _OUTER_TILES
            values = [v for v in choices if v <= min(units, limit)]
            out.append(Knob(self._prefix + axis.name, tuple(values)))
        for axis in self.blocked:
            units = self.units(axis)
            values = sorted({b for b in _BLOCKS if b <= units} | {units})
            out.append(Knob(f"{self._prefix}{axis.name}.block", tuple(values)))
        if self.reuse and len(self.tiled) > 1 and self.tiled[-1].name == self.group.vector:
            out += [Knob(self._prefix + "outer", (0, 1)), Knob(self._prefix + "inner", (0, 1))]
        if self.reuse:
            out += self._reduction_knobs()
        return tuple(out)

    def _reduction_knobs(self) -> list[Knob]:
        out = []
        channel = self._channels
        if channel:
            size = min(self._layout_block(channel[-1]) or 64, channel[-1].extent)
            if self.group.vector_reduces and channel[-1].name == self.group.vector:
                size = -(-channel[-1].extent // self.lanes)
            values = _unrolls(size) if channel[-1].extent >= 4 else (channel[-1].extent,)
            if self.splits:
                out.append(Knob(self._prefix + "split", self._parts(self.splits)))
            out.append(Knob(self._prefix + "unroll", values))
        if self._windows:
            choices = range(min(len(self._windows), 2) + 1)
            allowed = [c for c in choices if self._window_points(c) <= 32]
            out.append(Knob(self._prefix + "window", tuple(allowed)))
        if self._streams:
            out.append(Knob(self._prefix + "prefetch", (0, 1)))
        return out

    @cached_property
    def _streams(self) -> bool:
        """Whether a constant operand is too large to stay in cache from one run to the next."""
        shapes = self.skeleton.dag.shapes
        read = {r.tensor for r in self.reads if self.skeleton.is_constant(r.tensor)}
        return any(4 * prod(shapes[t]) >= _STREAM for t in read if t in shapes)

    @cached_property
    def splits(self) -> Axis | None:
        """The reduction axis that may be cut into parts."""
        if not self._channels or not self.reuse or len(self._parts(self._channels[-1])) < 2:
            return None
        return self._channels[-1]

    def _parts(self, axis: Axis) -> tuple[int, ...]:
        """Sizes of the parts that a long sum may be cut into; the whole extent: no split."""
        if self.group.stage.reducer != "sum" or self.group.vector_reduces or not self.group.vector:
            return ()
        block = self._layout_block(axis) or 1
        last = self.group.stages[-1].name
        if self.group.stores[-1:] != (last,) or self.group.stage.index is not None:
            return ()
        return (*(p for p in _PARTS if p % block == 0 and 2 * p <= axis.extent), axis.extent)

    def _window_points(self, count: int) -> int:
        points = 1
        for axis in self._windows[len(self._windows) - count :]:
            points *= axis.extent
        return points

    @cached_property
    def _windows(self) -> tuple[Axis, ...]:
        """Reduction axes that slide along a space axis."""
        return tuple(a for a in self.group.stage.reduce_axes if self._slides(a))

    @cached_property
    def _channels(self) -> tuple[Axis, ...]:
        """The other reduction axes; the vector axis last, those of one point first."""
        axes = [a for a in self.group.stage.reduce_axes if not self._slides(a)]
        return tuple(sorted(axes, key=lambda a: (a.extent > 1, a.name == self.group.vector)))

    def _slides(self, axis: Axis) -> bool:
        space = {a.name for a in self.space if a.extent > 1}
        return (
            any(
                i.coeff(axis.name) and space & set(i.axes)
                for r in self.reads
                if not self.skeleton.is_constant(r.tensor)
                for i in r.index
            )
            and self.group.vector != axis.name
        )

    def _layout_block(self, axis: Axis) -> int:
        """Block of a variable's layout that the reduction axis runs through, 0 if none."""
        found = 0
        for read in self.reads:
            layout = self.skeleton.layouts.get(read.tensor)
            if layout is None or not layout.blocked:
                continue
            if read.index[layout.block_axis].coeff(axis.name):
                found = max(found, layout.block)
        return found

    # -- from knob values to loops ----------------------------------------------------------

    def _tile(self, axis: Axis, values: Mapping[str, int]) -> int:
        return min(values.get(self._prefix + axis.name, 1), self.units(axis))

    def _step(self, axis: Axis, values: Mapping[str, int]) -> int:
        """Elements of one register tile along an axis."""
        lanes = self.lanes if axis.name == self.group.vector else 1
        return self._tile(axis, values) * lanes

    def nest(self, values: Mapping[str, int]) -> tuple[Nest, int]:
        """The nest, and how many of its outer levels are block loops for the threads."""
        vector = None if self.group.vector_reduces else self.group.vector
        tile = {a.name: self._tile(a, values) for a in self.space if a.name != vector}
        tile |= self.fixed_tile
        for axis in self.space:
            if axis.name == vector:
                tile[axis.name] = self._tile(axis, values)
        blocks, tiles = self._outer(values)
        nest = Nest(
            self.group.stage, self.group.epilogue, self.group.stores, self.group.vector,
            self.lanes, self.group.vector_reduces, tuple(blocks + tiles), tile,
            tuple(self._reduction(values)), len(blocks), self._split(values),
            bool(values.get(self._prefix + "prefetch", 0)),
        )  # fmt: skip
        return nest, len(blocks)

    def _split(self, values: Mapping[str, int]) -> Level | None:
        part = values.get(self._prefix + "split")
        if part is None or part >= self._channels[-1].extent:
            return None
        return Level(self._channels[-1].name, part)

    def _outer(self, values: Mapping[str, int]) -> tuple[list[Level], list[Level]]:
        blocks: list[tuple[Axis, Level]] = []
        tiles: list[tuple[Axis, Level]] = []
        blocked = {a.name for a in self.blocked}
        for axis in self.space:
            step = self._step(axis, values)
            if axis.name in blocked:
                count = values[f"{self._prefix}{axis.name}.block"]
                blocks.append((axis, Level(axis.name, step * count)))
                tiles.append((axis, Level(axis.name, step)))
            elif self.reuse and axis in self.tiled:
                tiles.append((axis, Level(axis.name, step)))
            else:
                blocks.append((axis, Level(axis.name, step)))
        return (
            self._ordered(blocks, values.get(self._prefix + "outer", self.constant_transform)),
            self._ordered(tiles, values.get(self._prefix + "inner", 0)),
        )

    def _ordered(self, levels: list[tuple[Axis, Level]], vector_first: int) -> list[Level]:
        vector = self.group.vector
        plain = [lv for a, lv in levels if a.name != vector]
        along = [lv for a, lv in levels if a.name == vector]
        return along + plain if vector_first else plain + along

    def _reduction(self, values: Mapping[str, int]) -> list[Level]:
        stage = self.group.stage
        if stage.reducer is None or self.constant_transform:
            return []
        unroll = values.get(self._prefix + "unroll", 1)
        unrolled_windows = values.get(self._prefix + "window", 0)
        levels = [Level(a.name, 1) for a in self._channels[:-1]]
        inner: list[Level] = []
        for axis in self._channels[-1:]:
            if axis.name == self.group.vector:
                inner = [Level(axis.name, self.lanes * unroll), Level(axis.name, self.lanes, True)]
                continue
            block = self._layout_block(axis)
            if block and block < axis.extent:
                levels.append(Level(axis.name, block))
            inner = [Level(axis.name, unroll), Level(axis.name, 1, True)]
            if not self._windows or not (block and block < axis.extent):
                levels, inner = levels + inner[:1], inner[1:]
        first_unrolled = len(self._windows) - unrolled_windows
        windows = [Level(a.name, 1, i >= first_unrolled) for i, a in enumerate(self._windows)]
        return levels + windows + inner

    # -- legality of whole populations ------------------------------------------------------

    def column(self, columns: Columns, name: str, default: int, n: int) -> NDArray[np.int64]:
        return columns.get(self._prefix + name, np.full(n, default, dtype=np.int64))

    def tile_columns(self, columns: Columns, n: int) -> dict[str, NDArray[np.int64]]:
        """Register-tile points (vectors) of every space axis."""
        out = {}
        for axis in self.space:
            out[axis.name] = np.minimum(self.column(columns, axis.name, 1, n), self.units(axis))
        return out

    def _unrolled_windows(self, columns: Columns, n: int) -> NDArray[np.int64]:
        """Window points whose code is copied."""
        depth = self.column(columns, "window", 0, n)
        table = np.array([self._window_points(d) for d in range(len(self._windows) + 1)])
        found: NDArray[np.int64] = table[depth]
        return found

    def accumulators(self, columns: Columns, n: int) -> NDArray[np.int64]:
        total = np.ones(n, dtype=np.int64)
        for tile in self.tile_columns(columns, n).values():
            total = total * tile
        return total

    def fits(self, columns: Columns, n: int) -> NDArray[np.bool_]:
        """Whether the register tile stays small enough to be spilled; beyond, code and stack grow
        without bound."""
        return self.accumulators(columns, n) <= _MAX_SPILL * self.skeleton.target.vector_registers

    def block_trips(self, columns: Columns, n: int) -> NDArray[np.int64]:
        """Parallel work items: iterations of the block loops together."""
        total = np.ones(n, dtype=np.int64)
        tiles = self.tile_columns(columns, n)
        blocked = {a.name for a in self.blocked}
        for axis in self.space:
            count = -(-self.units(axis) // tiles[axis.name])
            if axis.name in blocked:
                count = -(-count // self.column(columns, f"{axis.name}.block", 1, n))
            elif self.reuse and axis in self.tiled:
                continue
            total = total * count
        return total

    def valid(self, columns: Columns, n: int) -> NDArray[np.bool_]:
        """No spills, little code, blocks not larger than the axis, work for every thread."""
        registers = self.skeleton.target.vector_registers
        tiles = self.tile_columns(columns, n)
        count = self.accumulators(columns, n)
        ok = count <= max(registers - 2, 1)
        if self.reuse and not self.group.vector_reduces and self.group.vector:
            vectors = tiles[self.group.vector]
            ok &= count + np.minimum(vectors, count // vectors) + 1 <= registers + 1
        bodies = np.ones(n, dtype=np.int64)
        blocked = {a.name for a in self.blocked}
        for axis in self.space:
            units, tile = self.units(axis), tiles[axis.name]
            whole = -(-units // tile)
            ragged = units % tile != 0
            bodies = bodies * (1 + ragged)
            if axis.name in blocked:
                block = self.column(columns, f"{axis.name}.block", 1, n)
                ok &= block <= whole
                bodies = bodies * (1 + (units % (tile * block) != 0) * (block > 1))
        if self.splits:
            whole_sum = self.splits.extent
            part = self.column(columns, "split", whole_sum, n)
            bodies = bodies * np.minimum(-(-whole_sum // part), 3)
        ok &= bodies <= _MAX_BODIES
        body = count * self.column(columns, "unroll", 1, n) * self._unrolled_windows(columns, n)
        ok &= (body <= _MAX_BODY) & (bodies * body <= _MAX_CODE) | (body == count)
        if self.reuse and not self.skeleton.shared:
            most = np.ones(n, dtype=np.int64)
            for axis in self.space:
                most = most * -(-self.units(axis) // tiles[axis.name])
            ok &= (self.block_trips(columns, n) >= self.threads) | (most < self.threads)
        return ok


def _unrolls(steps: int) -> tuple[int, ...]:
    """How many of a loop's steps may be unrolled; of a short loop only even shares, and all."""
    if steps > max(_UNROLLED):
        return _UNROLLED
    return tuple(sorted({v for v in _UNROLLED if not steps % v} | {steps}))
