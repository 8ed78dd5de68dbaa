"""Copying between a caller's row-major array and a network's buffer, as LLVM IR.

In: the layout of each side.  Out: a region `void name(ptr args, i64 thread, i64 first, i64 past)`
of COPY_UNITS units with args = {source, target}; the units split the outermost loop.

A blocked axis becomes two loops (block, lane), its ragged end a second nest.  The lanes are
unrolled in the innermost loop, which runs along an axis contiguous on one side, so that LLVM's
vectoriser sees interleaved accesses:

    for n: for h: for w: { target[w*3+0] = source[w]; target[w*3+1] = source[w+HW]; ... }
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.expr import Layout

UNROLL_LANES = 16
COPY_UNITS = 64


@dataclass(frozen=True, slots=True)
class Loop:
    """`extent` turns that move the source and target by so many floats."""

    extent: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops, outermost first, from the given start offsets; `lanes` is unrolled inside."""

    source: int
    target: int
    loops: tuple[Loop, ...]
    lanes: Loop


def copy_region(name: str, source: Layout, target: Layout) -> str:
    """IR of the region; at most one side is blocked, both have the same shape."""
    parts = [_function(f"{name}.{i}", nest) for i, nest in enumerate(nests(source, target))]
    calls = "".join(
        f"  call void @{name}.{i}(ptr %s, ptr %t, i64 %first, i64 %past)\n"
        for i in range(len(parts))
    )
    return "\n".join(parts) + (
        f"define void @{name}(ptr %args, i64 %thread, i64 %first, i64 %past) {{\n"
        "  %s = load ptr, ptr %args\n"
        "  %t.at = getelementptr ptr, ptr %args, i64 1\n"
        "  %t = load ptr, ptr %t.at\n"
        f"{calls}  ret void\n}}\n"
    )


def nests(source: Layout, target: Layout) -> list[Nest]:
    """The loop nests that together copy every element once."""
    if 0 in source.shape:
        return []
    assert source.shape == target.shape and not (source.blocked and target.blocked)
    blocked = source if source.blocked else target
    starts = (source.offset, target.offset)
    if not blocked.blocked:
        return [_nest(starts, _loops(source, target, -1), Loop(1, 0, 0))]
    axis, block = blocked.block_axis, blocked.block
    whole, rest = divmod(source.shape[axis], block)
    plain = _loops(source, target, axis)
    block_step, lane_step = zip(*(_steps(x, axis, block) for x in (source, target)), strict=True)
    found = []
    if whole:
        outer = Loop(whole, *block_step)
        found.append(_nest(starts, [outer, *plain], Loop(block, *lane_step)))
    if rest:
        ends = (starts[0] + whole * block_step[0], starts[1] + whole * block_step[1])
        found.append(_nest(ends, plain, Loop(rest, *lane_step)))
    return found


def _steps(side: Layout, axis: int, block: int) -> tuple[int, int]:
    """Floats from block to block and from lane to lane."""
    stride = side.strides[axis]
    return (stride, 1) if side.blocked else (stride * block, stride)


def _loops(source: Layout, target: Layout, without: int) -> list[Loop]:
    return [
        Loop(n, source.strides[i], target.strides[i])
        for i, n in enumerate(source.shape)
        if i != without and n > 1
    ]


def _nest(starts: tuple[int, int], loops: list[Loop], lanes: Loop) -> Nest:
    if lanes.extent > UNROLL_LANES:
        loops, lanes = [*loops, lanes], Loop(1, 0, 0)
    merged = _merge([loop for loop in loops if loop.extent > 1])
    streams = [x for x in merged if 1 in (abs(x.source), abs(x.target))]
    inner = (streams or merged)[-1:]
    outer = sorted((x for x in merged if x not in inner), key=lambda x: -x.extent)
    return Nest(*starts, (*outer, *inner), lanes)


def _merge(loops: list[Loop]) -> list[Loop]:
    """Neighbouring loops that walk on without a gap on both sides become one."""
    ordered = sorted(loops, key=lambda x: (-abs(x.target), -abs(x.source)))
    out: list[Loop] = []
    for loop in ordered:
        if out:
            last = out[-1]
            gapless = (loop.extent * loop.source, loop.extent * loop.target)
            if (last.source, last.target) == gapless:
                out[-1] = Loop(last.extent * loop.extent, loop.source, loop.target)
                continue
        out.append(loop)
    return out


def _function(name: str, nest: Nest) -> str:
    """One nest as a function; unit u of U starts at turn u*n/U of the n of the outermost loop."""
    loops = nest.loops or (Loop(1, 0, 0),)
    lines = [
        f"define internal void @{name}(ptr noalias %s, ptr noalias %t, i64 %first, i64 %past) {{",
        "entry:",
        f"  %low.n = mul i64 %first, {loops[0].extent}",
        f"  %low = udiv i64 %low.n, {COPY_UNITS}",
        f"  %high.n = mul i64 %past, {loops[0].extent}",
        f"  %high = udiv i64 %high.n, {COPY_UNITS}",
        f"  %s.base = getelementptr float, ptr %s, i64 {nest.source}",
        f"  %t.base = getelementptr float, ptr %t, i64 {nest.target}",
        "  %any = icmp ult i64 %low, %high",
        "  br i1 %any, label %loop0, label %done",
    ]
    for depth, loop in enumerate(loops):
        before = "%entry" if depth == 0 else f"%loop{depth - 1}"
        start = "%low" if depth == 0 else "0"
        bases = ("%s.base", "%t.base") if depth == 0 else (f"%s{depth - 1}", f"%t{depth - 1}")
        lines += [
            f"loop{depth}:",
            f"  %i{depth} = phi i64 [ {start}, {before} ], [ %n{depth}, %end{depth} ]",
            f"  %so{depth} = mul i64 %i{depth}, {loop.source}",
            f"  %to{depth} = mul i64 %i{depth}, {loop.target}",
            f"  %s{depth} = getelementptr float, ptr {bases[0]}, i64 %so{depth}",
            f"  %t{depth} = getelementptr float, ptr {bases[1]}, i64 %to{depth}",
        ]
        last = depth == len(loops) - 1
        if last:
            lines += _lanes(depth, nest.lanes)
        lines.append(f"  br label %{'end' if last else 'loop'}{depth if last else depth + 1}")
    for depth in reversed(range(len(loops))):
        stop = "%high" if depth == 0 else str(loops[depth].extent)
        after = "done" if depth == 0 else f"end{depth - 1}"
        lines += [
            f"end{depth}:",
            f"  %n{depth} = add i64 %i{depth}, 1",
            f"  %c{depth} = icmp ult i64 %n{depth}, {stop}",
            f"  br i1 %c{depth}, label %loop{depth}, label %{after}",
        ]
    return "\n".join([*lines, "done:", "  ret void", "}", ""])


def _lanes(depth: int, lanes: Loop) -> list[str]:
    lines = []
    for lane in range(lanes.extent):
        lines += [
            f"  %sp{lane} = getelementptr float, ptr %s{depth}, i64 {lane * lanes.source}",
            f"  %v{lane} = load float, ptr %sp{lane}, align 4",
        ]
    for lane in range(lanes.extent):
        lines += [
            f"  %tp{lane} = getelementptr float, ptr %t{depth}, i64 {lane * lanes.target}",
            f"  store float %v{lane}, ptr %tp{lane}, align 4",
        ]
    return lines
