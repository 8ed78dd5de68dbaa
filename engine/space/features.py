"""Features of whole populations: what the machine sees of a schedule, whatever the operator.

One row a candidate; sums over the groups of a sketch, or the worst group where that decides.  Sizes
are log2(1 + x), so that a model trained on small tasks ranks large ones.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.expr import reads
from engine.space import strassen
from engine.space.tiling import Columns, Tiling
from engine.space.winograd import TILES
from engine.target import Target

if TYPE_CHECKING:
    from engine.space.sketch import Sketch

Floats = NDArray[np.float64]

FEATURES = (
    "fma_cycles", "load_cycles", "lane_use", "accumulators", "register_need", "spills",
    "loads_per_fma", "inner_fmas", "tile_passes", "ragged", "l1_bytes", "l2_bytes", "tile_bytes",
    "weight_tile_bytes", "block_bytes", "from_l2", "from_l3", "from_memory", "constant_bytes",
    "store_bytes", "work_items", "imbalance", "regions", "temporary_bytes", "gathers",
    "arithmetic_intensity", "vector_outer", "vector_inner", "unrolled", "winograd", "reduces_lanes",
    "points", "prefetched", "strassen", "tile_rows", "tile_vectors", "reduce_points",
)  # fmt: skip
_LOGGED = {
    "fma_cycles", "load_cycles", "inner_fmas", "tile_passes", "l1_bytes", "l2_bytes", "tile_bytes",
    "weight_tile_bytes", "block_bytes", "from_l2", "from_l3", "from_memory", "constant_bytes",
    "store_bytes", "work_items", "temporary_bytes", "points", "arithmetic_intensity",
    "reduce_points",
}  # fmt: skip
_HEAVIEST = {
    "accumulators", "register_need", "spills", "loads_per_fma", "inner_fmas", "ragged",
    "imbalance", "tile_bytes", "weight_tile_bytes", "block_bytes", "prefetched", "tile_rows",
    "tile_vectors", "reduce_points",
}  # fmt: skip
"""Taken from the group with most work; the others are summed."""
_FMA_LATENCY = 4
"""Cycles of a vector multiply-add: Zen 3 and 4, Intel since Skylake."""
_ROW = {name: i for i, name in enumerate(FEATURES)}
_HEAVY_ROWS = [i for i, name in enumerate(FEATURES) if name in _HEAVIEST]
_LOG_ROWS = [i for i, name in enumerate(FEATURES) if name in _LOGGED]


def features(sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.float32]:
    """Shape (rows, len(FEATURES)), float32, finite."""
    n = len(matrix)
    columns = sketch.columns(matrix)
    total = np.zeros((len(FEATURES), n))
    for tiling in sketch.tilings:
        part = np.zeros_like(total)
        for name, values in _group(tiling, columns, n).items():
            part[_ROW[name]] = values
        heavier = part[_ROW["fma_cycles"]] >= total[_ROW["fma_cycles"]]
        both = total + part
        both[_HEAVY_ROWS] = np.where(heavier, part[_HEAVY_ROWS], total[_HEAVY_ROWS])
        both[_ROW["lane_use"]] = np.maximum(part[_ROW["lane_use"]], total[_ROW["lane_use"]])
        total = both
    total[_ROW["regions"]] = 1.0 if sketch.skeleton.shared else len(sketch.tilings)
    total[_ROW["winograd"]] = _tile_of(sketch.dag.algorithm)
    total[_ROW["strassen"]] = sketch.dag.algorithm.startswith(strassen.NAME)
    moved = total[_ROW["from_l3"]] + total[_ROW["from_memory"]] + total[_ROW["store_bytes"]] + 1
    total[_ROW["arithmetic_intensity"]] = total[_ROW["fma_cycles"]] * 64 / moved
    total[_LOG_ROWS] = np.log2(1 + total[_LOG_ROWS])
    out: Floats = np.nan_to_num(total.T, posinf=60.0, neginf=-60.0)
    return out.astype(np.float32, order="C")


def _tile_of(algorithm: str) -> float:
    found = TILES.get(algorithm.partition(".")[0])
    return float(max(found[0])) if found else 0.0


def _group(tiling: Tiling, columns: Columns, n: int) -> dict[str, Floats | float]:
    group, target = tiling.group, tiling.skeleton.target
    tiles = {k: v.astype(np.float64) for k, v in tiling.tile_columns(columns, n).items()}
    full = {a.name: float(a.extent) for a in group.stage.axes}
    reduce_points = float(np.prod([a.extent for a in group.stage.reduce_axes] or [1]))
    outside = float(np.prod([a.extent for a in tiling.skeleton.shared] or [1]))
    fixed = float(np.prod(list(tiling.fixed_tile.values()) or [1]))
    lanes = tiling.lanes
    if group.vector_reduces:
        reduce_points = reduce_points / lanes

    passes, points, ragged = np.full(n, outside), np.ones(n), np.ones(n)
    spans: dict[str, Floats | float] = {}
    block_spans: dict[str, Floats | float] = {}
    block_trips = np.full(n, outside)
    blocked = {a.name for a in tiling.blocked}
    for axis in tiling.space:
        units = float(tiling.units(axis))
        tile = tiles[axis.name]
        count = np.ceil(units / tile)
        passes, points = passes * count, points * tile
        ragged = ragged * units / (count * tile)
        width = float(lanes) if axis.name == group.vector and not group.vector_reduces else 1.0
        spans[axis.name] = np.minimum(tile * width, full[axis.name])
        block = tiling.column(columns, f"{axis.name}.block", 1, n)
        if tiling.reuse and axis in tiling.tiled and axis.name not in blocked:
            block = count
        block_spans[axis.name] = np.minimum(tile * block * width, full[axis.name])
        block_trips = block_trips * np.ceil(count / block)
    for axis in group.stage.reduce_axes:
        spans[axis.name] = block_spans[axis.name] = float(axis.extent)
    parts = np.ones(n)
    if tiling.splits:
        channels = tiling.splits
        part = tiling.column(columns, "split", channels.extent, n).astype(np.float64)
        spans[channels.name] = block_spans[channels.name] = part
        parts = np.ceil(channels.extent / part)
    for name, extent in tiling.fixed_tile.items():
        spans[name] = block_spans[name] = float(extent)

    vectors = tiles.get(group.vector or "", np.ones(n)) if not group.vector_reduces else np.ones(n)
    plain = points / vectors
    fmas = passes * points * fixed * reduce_points
    loads = passes * (plain + vectors) * fixed * reduce_points
    accumulated = points
    if tiling.constant_transform:
        terms, operands = _transform(tiling)
        fmas, loads = passes * points * terms, passes * points * operands
        accumulated = points * fixed
    registers = target.vector_registers
    need = points + np.minimum(vectors, plain) + 1
    rest = group.stage.reduce_axes + tiling.skeleton.shared
    whole = full | {a.name: float(a.extent) for a in rest}
    data, constants = tiling.footprints(n, spans, block_spans, whole)
    (tile_data, block_data, all_data), (tile_const, block_const, all_const) = data, constants
    if group.vector is None or group.vector_reduces:
        inner_first = np.zeros(n, dtype=bool)
    else:
        inner_first = tiling.column(columns, "inner", 0, n) == 0
    l1, l2 = target.l1 * 0.9, target.l2 * 0.8
    # Within a block the loop that runs faster re-reads the other operand's tile.
    kept = np.where(inner_first, tile_data, tile_const)
    streamed = np.where(inner_first, tile_const, tile_data)
    from_l2 = passes * parts * (streamed + np.where(kept + streamed > l1, kept, kept / 8))
    fits = block_data + block_const <= l2
    from_l3 = block_trips * parts * np.where(fits, block_data + block_const, 0)
    from_l3 = from_l3 + np.where(
        fits, 0, passes * parts * np.minimum(streamed, tile_data + tile_const)
    )
    from_l3 = np.maximum(from_l3 - np.where(all_data + all_const < l2, all_data, 0), 0)
    unroll = tiling.column(columns, "unroll", 1, n)
    stored = 4.0 * float(np.prod(group.stage.shape)) * (max(len(group.stores), 1) + 2 * (parts - 1))
    items = np.full(n, outside) if tiling.skeleton.shared else block_trips
    threads = float(tiling.threads)
    share = np.ceil(items / threads) * threads / items
    return {
        "fma_cycles": fmas / 2, "load_cycles": loads / 2, "ragged": ragged,
        "lane_use": _lane_use(tiling), "accumulators": accumulated / registers,
        "register_need": need / registers, "spills": np.maximum(need - registers, 0),
        "loads_per_fma": loads / fmas, "inner_fmas": points * unroll, "tile_passes": passes,
        "l1_bytes": loads * 4 * lanes, "l2_bytes": block_data + block_const,
        "tile_bytes": tile_data, "weight_tile_bytes": tile_const, "block_bytes": block_data,
        "from_l2": from_l2, "from_l3": from_l3, "from_memory": all_const,
        "constant_bytes": all_const, "store_bytes": stored, "work_items": items,
        "imbalance": share - 1, "temporary_bytes": _temporary_bytes(tiling),
        "gathers": 0.0, "unrolled": unroll / 16,
        "vector_outer": tiling.column(columns, "outer", 0, n),
        "vector_inner": ~inner_first,
        "reduces_lanes": float(group.vector_reduces),
        "points": passes * points * fixed,
        "prefetched": tiling.column(columns, "prefetch", 0, n),
        "tile_rows": plain, "tile_vectors": vectors, "reduce_points": reduce_points,
    }  # fmt: skip


def _transform(tiling: Tiling) -> tuple[float, float]:
    """Multiply-adds and loads at each point of a constant transform: coefficients that are not
    zero, and elements that it reads."""
    skeleton, stage = tiling.skeleton, tiling.group.stage
    inlined = {r.tensor for r in reads(stage.body)} & set(skeleton.inlined)
    stages = (stage, *(skeleton.inlined[name] for name in sorted(inlined)))
    extents = {n: e for s in stages for n, e in s.extents.items() if n in s.unroll}
    terms = 0.0
    for part in stages:
        matrix = next(r for r in reads(part.body) if r.tensor in skeleton.dag.constants)
        named = {n for i in matrix.index for n in i.axes}
        used = np.count_nonzero(np.array(skeleton.dag.constants[matrix.tensor]))
        terms += used * prod(extents[n] for n in part.unroll if n not in named)
    data = [r for r in skeleton.reads_of(stage) if r.tensor not in skeleton.dag.constants]
    named = {n for r in data for i in r.index for n in i.axes}
    return terms, float(prod(e for n, e in extents.items() if n in named))


def _lane_use(tiling: Tiling) -> float:
    if tiling.group.vector is None:
        return 1.0 / tiling.skeleton.target.lanes
    extent = tiling.group.axis(tiling.group.vector).extent
    return extent / (-(-extent // tiling.lanes) * tiling.lanes)


def _temporary_bytes(tiling: Tiling) -> float:
    layouts = tiling.skeleton.layouts
    inside = [n for n in tiling.group.stores if n in tiling.skeleton.temporaries]
    return float(sum(layouts[n].size * 4 for n in inside))


def prior(rows: NDArray[np.float32], target: Target) -> Floats:
    """Seconds by the machine model: cycles of arithmetic and loads, overheads of loops and register
    tiles, and bytes of each level of memory.

    The cycles of each are fitted to 1,200 random schedules of ResNet-50's convolutions on a Zen 3
    core.  There the best of a hundred random schedules of a task was on average 2% faster than the
    best of the twelve that a model fitted to the other tasks put first.  What prefetching saves is
    that of a 7x7 convolution.  Only the order matters: it ranks candidates before any record
    exists.
    """
    col = {name: rows[:, i].astype(np.float64) for i, name in enumerate(FEATURES)}
    raw = {n: np.exp2(col[n]) - 1 if n in _LOGGED else col[n] for n in FEATURES}
    accumulators = np.maximum(raw["accumulators"] * target.vector_registers, 1.0)
    latency_bound = np.clip(_FMA_LATENCY * target.fmas_per_cycle / accumulators, 1.0, 8.0)
    turns = 2.0 / target.fmas_per_cycle
    fma, load = turns * raw["fma_cycles"], turns * raw["load_cycles"]
    cycles = 0.93 * np.maximum(fma * latency_bound, load) + 0.39 * np.maximum(load - 0.6 * fma, 0)
    cycles += fma * (raw["spills"] + 0.39 / np.maximum(16 * raw["unrolled"], 1.0))
    cycles += 23 * raw["tile_passes"] + 0.1 * raw["store_bytes"]
    cycles += 0.0066 * raw["from_l2"] + 0.0055 * raw["from_l3"]
    cycles += raw["from_memory"] * (0.28 - 0.12 * raw["prefetched"])
    return cycles * (1 + raw["imbalance"]) / 3.3e9 / max(target.cores, 1) + col["regions"] * 1.5e-6
