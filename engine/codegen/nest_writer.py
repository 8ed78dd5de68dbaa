"""One nest's register tile, epilogue and stores.

In: a `space.nest.Nest` inside a region.  Out: IR through the region's emitter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from engine.codegen import vector_math as vm
from engine.codegen.access import Address, resolve
from engine.codegen.nest_loops import NestLoops, RegionContext
from engine.codegen.prefetch import LINE, WORTH_IT, prefetch, prefetch_panel
from engine.codegen.values import Env, Values, point_env
from engine.expr import REDUCERS, Affine, Binary, Layout, Read, Stage, reads, row_major, var
from engine.space.nest import Nest


class NestWriter(NestLoops):
    """Emits one nest's loops, register tile and epilogue."""

    def __init__(self, region: RegionContext, nest: Nest) -> None:
        super().__init__(region, nest)
        self.plan = region.plan
        self.axis_map = nest.axis_map(region.region.shared)
        for axis in region.region.shared:
            self.axis_map[axis.name] = var(axis.name)
        self.order = [a.name for a in region.region.shared] + [n for n, _ in nest.sublevels()]
        self.values = Values(self.memory, self.plan.dag, self.plan.program.inlined, self.address)
        self.values.axis_map = self.axis_map
        self._addresses: dict[object, Address] = {}
        self._quick: dict[tuple[int, int], Address] = {}
        self.envs = self._stage_envs()

    def _stage_envs(self) -> dict[str, Env]:
        """Axes of head and epilogue stages over the head's axes."""
        envs: dict[str, Env] = {self.stage.name: point_env(self.stage)}
        place = self.stage.store_index
        for stage in self.nest.epilogue:
            envs[stage.name] = {a.name: i for a, i in zip(stage.axes, place, strict=True)}
        return envs

    def address(self, read: Read, env: Env) -> Address:
        known = self._quick.get((id(read), id(env)))
        if known is not None:
            return known
        found = self._address(read, env)
        if any(env is own for own in self.envs.values()):  # lives as long as this nest: id is safe
            self._quick[id(read), id(env)] = found
        return found

    def _address(self, read: Read, env: Env) -> Address:
        index = tuple(i.substitute(env) for i in read.index)
        key = (read.tensor, index, read.fill)
        if key not in self._addresses:
            self._addresses[key] = self._resolve(read.tensor, index, read)
        return self._addresses[key]

    def _resolve(self, tensor: str, index: tuple[Affine, ...], read: Read) -> Address:
        extents = self.stage.extents | {a.name: a.extent for a in self.r.region.shared}
        if tensor not in self.plan.constant:
            return resolve(
                tensor, self.plan.layouts[tensor], index, extents, self.axis_map, self.counts,
                zero_fill=read.fill in (0.0, None),
            )  # fmt: skip
        over = tuple(i.substitute(self.axis_map) for i in index)
        packing = self.plan.packing(read, over, self.nest, self.counts, self.order)
        layout = row_major(tuple(extent for _, extent in packing.loops))
        if self.plan.is_plain(tensor) or not packing.loops:
            return resolve(tensor, layout, index, extents, self.axis_map, self.counts,
                           zero_fill=True)  # fmt: skip
        own = [var(n) for n, _ in packing.loops]
        identity = {n: var(n) for n, _ in packing.loops}
        return resolve(tensor, layout, own, self.counts, identity, self.counts, zero_fill=True)

    # -- register tile ----------------------------------------------------------------------

    def _tile_points(self) -> list[dict[str, int]]:
        """Points of the tile inside the current extents, as values of the tile's sub-loops.

        The axis with more operands to load goes outside: its operands are used up one by one, while
        the fewer ones of the other side stay in registers.
        """
        ranges = []
        for axis in self.nest.tile:
            extent = self.extent[axis]
            if axis == self.nest.vector and not self.nest.vector_reduces:
                extent = -(-extent // self.nest.lanes)
            ranges.append([(f"{axis}.t", i) for i in range(extent)])
        if len(ranges[-1:]) and len(ranges[-1]) ** 2 > prod(len(r) for r in ranges):
            ranges = ranges[-1:] + ranges[:-1]
        return [dict(point) for point in product(*ranges)]

    def _enter(self, point: Mapping[str, int]) -> None:
        self.points.update(point)
        nest = self.nest
        if nest.vector is None:
            return
        rest = self.extent[nest.vector]
        if not nest.vector_reduces:
            rest -= nest.lanes * point.get(f"{nest.vector}.t", 0)
        self.values.valid = min(self.values.lanes, rest)

    def _tile_all(self, _: list[str]) -> list[str]:
        self.values.kind, self.values.lanes = self.kind, self.nest.lanes
        self.values.valid = self.nest.lanes
        self.values.known = {}
        self.values.forget()
        points = self._tile_points()
        looped = self.stage.reducer is not None and not self.stage.unroll
        if looped and prod(a.extent for a in self.stage.reduce_axes) >= WORTH_IT:
            self._touch(points)
        heads = self._reduce(points) if looped else [""] * len(points)
        if self.nest.vector_reduces:
            self.values.kind, self.values.lanes, self.values.valid = "float", 1, 1
        finish, keep = partial(self._finish, points, heads), partial(self._keep, points, heads)
        if isinstance(self._last, str):
            self.e.branch(self._last, finish, keep)
        else:
            (finish if self._last else keep)()
        for name in points[0]:
            self.points.pop(name, None)
        return []

    def _finish(self, points: Sequence[Mapping[str, int]], heads: Sequence[str]) -> None:
        """Epilogue and stores of all points."""
        self.values.forget()
        for point, head in zip(points, heads, strict=True):
            self._finish_point(point, head)

    def _keep(self, points: Sequence[Mapping[str, int]], heads: Sequence[str]) -> None:
        """Sums that the next part of a split reduction goes on with."""
        for point, head in zip(points, heads, strict=True):
            self._enter(point)
            self._store_at(self._partial(), head)

    def _finish_point(self, point: Mapping[str, int], head: str) -> None:
        """Epilogue and stores of one point."""
        self._enter(point)
        self.values.known = {}
        for stage in (self.stage, *self.nest.epilogue):
            value = head
            if stage is not self.stage or not head:
                compute = self.values.unrolled_sum if stage.reducer else self.values.body
                value = self.values.text(compute(stage, self.envs[stage.name]))
            self.values.known[stage.name] = value
            if stage.name in self.nest.stores:
                self._store(stage, value)

    def _reduce(self, points: list[dict[str, int]]) -> list[str]:
        reducer = self.stage.reducer
        assert reducer is not None
        neutral = vm.literal(REDUCERS[reducer], self.kind)

        def body(values: list[str]) -> list[str]:
            self.values.forget()
            out = []
            for point, value in zip(points, values, strict=True):
                self._enter(point)
                out.append(self._combine(reducer, value))
            if self.nest.prefetch:
                self._prefetch()
            return out

        start = [neutral] * len(points)
        if isinstance(self._first, str):
            load = partial(self._load_partial, points)
            start = self.e.unless(self._first, self.kind, start, load)
        elif not self._first:
            start = self._load_partial(points)
        results = self._levels(self._reduction, start, body)
        if self.nest.vector_reduces:
            results = [self._horizontal(reducer, r) for r in results]
        return results

    def _prefetch(self) -> None:
        """Ask for constants that later passes will read."""
        shared = [a.name for a in self.r.region.shared]
        outer = [*shared, *(n for _, n in (*self._blocks, *self._split, *self._tiles))]
        for tensor in dict.fromkeys(r.tensor for r in reads(self.stage.body)):
            packing = self.plan.packings.get(tensor)
            if packing is not None and packing.loops and not self.plan.is_plain(tensor):
                prefetch_panel(self.memory, packing, tensor, outer)

    def _touch(self, points: Sequence[Mapping[str, int]]) -> None:
        """Ask for what will be read and written behind the sum: it comes while the sum runs."""
        asked: set[object] = set()
        for point in points:
            self._enter(point)
            for address, written in self._behind():
                if address.flat is None or address.guards:
                    continue
                symbolic, const = self.memory.split(address.flat)
                line = (address.buffer, symbolic, const // LINE)
                if line not in asked:
                    asked.add(line)
                    prefetch(self.memory, self.memory.location(address), write=written)

    def _behind(self) -> Iterator[tuple[Address, bool]]:
        """(address, whether it is written) of the current point's stores and the operands of its
        epilogue."""
        if not self._last:
            yield self._partial(), True
            return
        for stage in (self.stage, *self.nest.epilogue):
            env = self.envs[stage.name]
            if stage.name in self.nest.stores:
                place = tuple(i.substitute(env) for i in stage.store_index)
                yield self._store_address(stage.name, place), True
            for read in reads(stage.body) if stage is not self.stage else ():
                if read.tensor in self.plan.layouts:
                    yield self.address(read, env), False

    def _partial(self) -> Address:
        """Where a tile's sums wait between the parts of a split reduction."""
        place = tuple(i.substitute(self.envs[self.stage.name]) for i in self.stage.store_index)
        return self._store_address(self.nest.stores[-1], place)

    def _load_partial(self, points: Sequence[Mapping[str, int]]) -> list[str]:
        """The sums that the part before has left."""
        out = []
        for point in points:
            self._enter(point)
            pointer = self.memory.location(self._partial())
            out.append(self.e.op(f"load {self.kind}, ptr {pointer}, align 4"))
        return out

    def _combine(self, reducer: str, value: str) -> str:
        env = self.envs[self.stage.name]
        body = self.stage.body
        masked = self.nest.vector_reduces and self._valid_reduced() < self.nest.lanes
        if reducer == "sum" and isinstance(body, Binary) and body.op == "mul" and not masked:
            x = self.values.text(self.values.get(body.x, env))
            y = self.values.text(self.values.get(body.y, env))
            return vm.fma(self.e, self.kind, x, y, value)
        term = self.values.text(self.values.get(body, env))
        if masked:
            term = self._mask(term, self._valid_reduced(), vm.literal(REDUCERS[reducer], self.kind))
        combine = {"sum": "add", "prod": "mul"}.get(reducer, reducer)
        return vm.BINARY[combine](self.e, self.kind, term, value)

    def _valid_reduced(self) -> int:
        assert self.nest.vector is not None
        return min(self.extent[self.nest.vector], self.nest.lanes)

    def _mask(self, value: str, valid: int, other: str) -> str:
        lanes = self.nest.lanes
        flags = ", ".join(f"i1 {int(i < valid)}" for i in range(lanes))
        return self.e.op(
            f"select <{lanes} x i1> <{flags}>, {self.kind} {value}, {self.kind} {other}"
        )

    def _horizontal(self, reducer: str, value: str) -> str:
        """All lanes combined into one float."""
        name, start = {
            "sum": ("fadd", "float -0.0, "), "prod": ("fmul", "float 1.0, "),
            "max": ("fmaximum", ""), "min": ("fminimum", ""),
        }[reducer]  # fmt: skip
        flags = "reassoc " if start else ""
        mangled = vm.suffix(self.kind)
        return self.e.op(
            f"call {flags}float @llvm.vector.reduce.{name}.{mangled}({start}{self.kind} {value})"
        )

    # -- stores -----------------------------------------------------------------------------

    def _store(self, stage: Stage, value: str) -> None:
        env = self.envs[stage.name]
        place = tuple(i.substitute(env) for i in stage.store_index)
        address = self._store_address(stage.name, place)
        inside = self.memory.inside(address) if address.even else True
        if inside is False:
            return
        if inside is True:
            self._store_at(address, value)
            return
        assert isinstance(inside, str)
        self.e.branch(inside, lambda: self._store_at(address, value), None)

    def _store_address(self, tensor: str, place: tuple[Affine, ...]) -> Address:
        key = ("store", tensor, place)
        if key not in self._addresses:
            extents = self.stage.extents | {a.name: a.extent for a in self.r.region.shared}
            layout = self.plan.layouts[tensor]
            address = resolve(
                tensor, layout, place, extents, self.axis_map, self.counts, zero_fill=False
            )
            self._addresses[key] = replace(address, padded=self._padded(layout, place))
        return self._addresses[key]

    def _padded(self, layout: Layout, place: tuple[Affine, ...]) -> bool:
        """Whether the vector axis is the blocked axis itself, from end to end."""
        vector = self.nest.vector
        if vector is None or not layout.blocked or layout.block % self.nest.lanes:
            return False
        whole = self.stage.extents[vector] == layout.shape[layout.block_axis]
        return whole and place[layout.block_axis] == var(vector)

    def _store_at(self, address: Address, value: str) -> None:
        lanes, valid, kind = self.values.lanes, self.values.valid, self.values.kind
        if not address.even or (address.lane != 1 and lanes > 1):
            self._scatter(address, value)
            return
        pointer = self.memory.location(address)
        if lanes == 1 or valid == lanes:
            self.e.put(f"store {kind} {value}, ptr {pointer}, align 4")
            return
        if address.padded:
            value = self._mask(value, valid, "zeroinitializer")
            self.e.put(f"store {kind} {value}, ptr {pointer}, align 4")
            return
        flags = ", ".join(f"i1 {int(i < valid)}" for i in range(lanes))
        self.e.put(
            f"call void @llvm.masked.store.{vm.suffix(kind)}.p0({kind} {value}, "
            f"ptr align 4 {pointer}, <{lanes} x i1> <{flags}>)"
        )

    def _scatter(self, address: Address, value: str) -> None:
        for lane in range(min(self.values.valid, self.values.lanes)):
            single = value
            if self.values.lanes > 1:
                single = self.e.op(f"extractelement {self.values.kind} {value}, i64 {lane}")
            pointer, inside = self.memory.lane_location(address, lane)
            store = partial(self.e.put, f"store float {single}, ptr {pointer}, align 4")
            if isinstance(inside, str):
                self.e.branch(inside, store, None)
            elif inside:
                store()
