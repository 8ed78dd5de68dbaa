"""A small search space with a known latency: a blocked matrix product on an imagined core.

The latency has what real kernels have: a register limit, cache levels, tails, an uneven parallel
split, a penalty for long unrolled reductions; it is a plain function, so that tests know the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.expr import Axis, Binary, ComputeDag, Placeholder, Read, Stage, var, workload_key
from engine.graph.task import SearchTask, Workload
from engine.records import MeasureRecord, RecordScope, Schedule
from engine.target import Target

TARGET = Target("test", "x86_64-unknown-linux-gnu", "x86-64-v4", (), 512, 32, 2)
SCOPE = RecordScope(TARGET.key, 2)
PEAK = 100e9


@dataclass(frozen=True)
class Knob:
    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class MatmulSketch:
    """C[m, n] += A[m, k] B[k, n] with register tile mr x nr*16, cache tile kc, unroll and order.

    `gain` scales the arithmetic: a sketch with gain 2 needs half the operations (as Winograd does).
    """

    m: int = 196
    n: int = 256
    k: int = 512
    name: str = "direct.tile"
    gain: float = 1.0

    @property
    def knobs(self) -> tuple[Any, ...]:
        return (
            Knob("mr", tuple(range(1, 17))),
            Knob("nr", (1, 2, 3, 4, 6)),
            Knob("kc", (16, 32, 64, 128, 256, 512)),
            Knob("unroll", (1, 2, 4, 8, 16)),
            Knob("blocks", (1, 2, 3, 4, 6, 8, 12, 16)),
            Knob("order", (0, 1)),
        )

    @property
    def size(self) -> int:
        return prod(len(knob.values) for knob in self.knobs)

    def default(self) -> NDArray[np.int64]:
        return np.array([6, 2, 64, 2, 4, 0], np.int64)

    def valid(self, matrix: NDArray[np.int64]) -> NDArray[np.bool_]:
        mr, nr, kc, unroll, *_ = matrix.T
        return np.asarray((mr * nr + nr + 1 <= 32) & (kc % unroll == 0) & (kc <= self.k))

    def _parts(self, matrix: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        mr, nr, kc, unroll, blocks, order = matrix.T.astype(np.float64)
        width = nr * 16
        padded = np.ceil(self.m / mr) * mr * np.ceil(self.n / width) * width
        fma = np.minimum(1.0, mr * nr / 8.0)
        loads = (nr + mr * 0.5) / (mr * nr)
        panel = kc * width * 4
        rounds = np.ceil(blocks / 2) * 2 / blocks
        traffic = 4.0 * (padded * np.ceil(self.k / kc) * 2 + self.k * padded / mr)
        return {
            "flops": 2 * padded * self.k / self.gain, "fma": fma, "loads": loads, "panel": panel,
            "rounds": rounds, "traffic": traffic, "unroll": unroll, "calls": padded / mr / width,
            "block_rows": self.m / blocks / mr, "order": order, "kc": kc,
        }  # fmt: skip

    def features(self, matrix: NDArray[np.int64], threads: int) -> NDArray[np.float32]:
        p = self._parts(matrix)
        columns = [np.log2(1 + p[c]) for c in ("flops", "traffic", "panel", "calls", "unroll")]
        columns += [p[c] for c in ("fma", "loads", "rounds", "order", "block_rows")]
        columns += [np.log2(p["kc"]), np.full(len(matrix), float(threads))]
        return np.asarray(np.stack(columns, 1), np.float32)

    def latency(self, matrix: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds; deterministic."""
        p = self._parts(matrix)
        compute = p["flops"] / PEAK / p["fma"] * (1 + np.maximum(0, p["loads"] - 0.45))
        compute *= np.where(p["panel"] > 32768, 1.25, 1.0) * np.where(p["unroll"] > 8, 1.6, 1.0)
        compute *= 1 + 0.06 / p["unroll"]
        memory = p["traffic"] / np.where(p["order"] == 1, 80e9, 50e9)
        overhead = p["calls"] * np.ceil(self.k / p["kc"]) * 4e-9
        return np.asarray(np.maximum(compute, memory) * p["rounds"] + overhead + 1e-6)

    def schedule(self, row: NDArray[np.int64]) -> Schedule:
        names = (knob.name for knob in self.knobs)
        return Schedule(self.name, dict(zip(names, map(int, row), strict=True)))

    def row(self, schedule: Schedule) -> NDArray[np.int64] | None:
        if schedule.sketch != self.name or set(schedule.knobs) != {k.name for k in self.knobs}:
            return None
        row = np.array([schedule.knobs[knob.name] for knob in self.knobs], np.int64)
        known = all(int(v) in k.values for v, k in zip(row, self.knobs, strict=True))
        return row if known and self.valid(row[None, :])[0] else None

    def everything(self) -> NDArray[np.int64]:
        grids = np.meshgrid(*[np.array(k.values) for k in self.knobs], indexing="ij")
        rows = np.stack([g.ravel() for g in grids], 1).astype(np.int64)
        return rows[self.valid(rows)]

    @property
    def best(self) -> float:
        return float(self.latency(self.everything()).min())


def prior(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """A roofline without any knowledge of tails in time, unrolling or caches."""
    wide = features.astype(np.float64)
    return np.asarray(np.maximum((2 ** wide[:, 0]) / PEAK, (2 ** wide[:, 1]) / 60e9))


def measure(
    sketches: tuple[MatmulSketch, ...], schedules: list[Schedule], key: str, round_index: int = 0
) -> list[MeasureRecord]:
    """Records as a measuring machine without noise would make them."""
    records = []
    for schedule in schedules:
        sketch = next(s for s in sketches if s.name == schedule.sketch)
        row = sketch.row(schedule)
        assert row is not None, schedule
        seconds = float(sketch.latency(row[None, :])[0])
        records.append(
            MeasureRecord(key, SCOPE, schedule, (seconds,), round_index=round_index, run_id="r")
        )
    return records


def search_task(
    flops: int = 2_000_000,
    *,
    weight: int = 1,
    anchor: str = "matmul",
    description: dict[str, Any] | None = None,
    key: str = "",
) -> SearchTask:
    """A task whose computation is one long dot product of `flops` operations."""
    axes = (Axis("i", 1),)
    body = Binary("mul", Read("a", (var("k"),)), Read("b", (var("k"),)))
    stage = Stage("y", axes, body, (Axis("k", flops // 2),), "sum")
    operands = tuple(Placeholder(n, (flops // 2,)) for n in "ab")
    dag = ComputeDag(operands, (stage,), ("y",))
    workload = Workload(key or workload_key(dag), dag, {}, anchor, description or {})
    return SearchTask(workload, TARGET, weight, SCOPE.threads)
