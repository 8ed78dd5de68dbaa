"""Runs generated kernels and compares them with the NumPy reference.

In: a workload, a schedule, layouts.  Out: the kernel's results in logical order.  Buffers lie
between strips of NaN; whatever is no element of a tensor is NaN too, but for the zeros that a
layout promises (halo, padded channels).  A stray read then shows in the result, a stray write in
the cells around.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from engine import codegen
from engine.codegen.constants import derive
from engine.codegen.kernel import Kernel
from engine.expr import ComputeDag, Layout
from engine.expr.reference import reference
from engine.graph.task import Workload
from engine.records import Schedule
from engine.runtime.buffers import aligned_empty, covered, from_buffer, write_buffer
from engine.runtime.jit import Code, load_object
from engine.space import Sketch
from engine.space.algorithms import ERROR
from engine.target import Target

SLACK = 64
"""Floats around each buffer; vector loads may touch them (see `engine.runtime.plan.SLACK`)."""
STRAY = np.float32(np.nan)
TOLERANCE = {"direct": 1e-5, **{name: 15 * error for name, error in ERROR.items()}}
"""Algorithm -> largest error relative to the largest output."""


@dataclass(frozen=True)
class Loaded:
    """A kernel in this process."""

    kernel: Kernel
    dag: ComputeDag
    code: Code
    ir: str


def load(
    workload: Workload,
    sketch: Sketch,
    schedule: Schedule,
    target: Target,
    layouts: Mapping[str, Layout] | None = None,
    threads: int = 1,
) -> Loaded:
    """Generate, compile and link one schedule of one of the workload's sketches."""
    kernel = codegen.generate(workload, schedule, target, layouts, "k", threads)
    ir = codegen.module([kernel], target)
    code = load_object(codegen.compile_ir(ir, target), kernel.regions)
    return Loaded(kernel, sketch.dag, code, ir)


def run(loaded: Loaded, feeds: Mapping[str, np.ndarray], threads: int = 1) -> dict[str, np.ndarray]:
    """Output name -> array; asserts that nothing but the outputs' elements was written."""
    kernel = loaded.kernel
    full = derive(loaded.dag, feeds)
    buffers = {name: _buffer(kernel, name, full) for name in kernel.arguments}
    size = kernel.workspace + kernel.workspace_per_thread * threads
    buffers["workspace"] = _Buffer(np.full(size // 4, STRAY), ())
    pointers = (ctypes.c_void_p * len(buffers))(*(b.address for b in buffers.values()))
    for region, units in zip(kernel.regions, kernel.units, strict=True):
        call = loaded.code.function(region, None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
        cuts = [units * i // threads for i in range(threads + 1)]
        for thread, (first, past) in enumerate(pairwise(cuts)):
            call(ctypes.addressof(pointers), thread, first, past)
    for name, buffer in buffers.items():
        buffer.check(name, written=name == "workspace")
    return {n: from_buffer(buffers[n].data, kernel.layouts[n]) for n in kernel.outputs}


class _Buffer:
    """Contents between two strips of NaN; remembers what must not change."""

    def __init__(self, contents: np.ndarray, outputs: tuple[Layout, ...]) -> None:
        whole = aligned_empty(contents.size + 2 * SLACK)
        whole[:] = STRAY
        self.data = whole[SLACK : SLACK + contents.size]
        self.data[:] = contents
        self._whole, self._before = whole, whole.copy()
        self._mine = np.zeros(whole.size, bool)
        self._mine[SLACK : SLACK + contents.size] = covered(contents.size, outputs)

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)

    def check(self, name: str, *, written: bool) -> None:
        mine = self._mine.copy()
        if written:
            mine[SLACK:-SLACK] = True
        same = self._whole.view(np.uint32) == self._before.view(np.uint32)
        stray = np.flatnonzero(~(same | mine)) - SLACK
        assert not stray.size, f"wrote floats {stray[:8]} of {name}, which are not its elements"


def _buffer(kernel: Kernel, name: str, feeds: Mapping[str, np.ndarray]) -> _Buffer:
    if name in kernel.packings:
        return _Buffer(kernel.packings[name].pack(feeds[name]), ())
    layout = kernel.layouts[name]
    flat = blank(layout)
    if name in kernel.outputs:
        return _Buffer(flat, (layout,))
    write_buffer(feeds[name], flat, layout)
    return _Buffer(flat, ())


def blank(layout: Layout) -> np.ndarray:
    """A buffer of NaN with the zeros that a layout promises around its tensor."""
    flat = np.full(layout.size, STRAY)
    grown = with_borders(layout)
    write_buffer(np.zeros(grown.shape, np.float32), flat, grown)
    write_buffer(np.full(layout.shape, STRAY), flat, layout)
    return flat


def with_borders(layout: Layout) -> Layout:
    """The layout whose elements are also the halo and the padded channels."""
    shape, offset = list(layout.shape), layout.offset
    if layout.blocked:
        axis, block = layout.block_axis, layout.block
        shape[axis] = -(-shape[axis] // block) * block
    for axis, stride in enumerate(layout.strides):
        before, after = layout.halo_of(axis)
        shape[axis] += before + after
        offset -= before * stride
    return replace(layout, shape=tuple(shape), offset=offset, halo=())


def random_feeds(dag: ComputeDag, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """An array per placeholder that is not derived, values in [-1, 1]."""
    return {
        p.name: rng.uniform(-1, 1, p.shape).astype(np.float32)
        for p in dag.placeholders
        if p.derive is None
    }


def check(
    workload: Workload,
    sketch: Sketch,
    schedule: Schedule,
    target: Target,
    feeds: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    threads: tuple[int, ...] = (1, 2),
) -> None:
    """Asserts that one schedule computes what the declaration says, whatever the threads."""
    expected = expected or reference(workload.dag, feeds, np.float64)
    loaded = load(workload, sketch, schedule, target, layouts)
    for count in threads:
        for name, array in run(loaded, feeds, count).items():
            close(array, expected[name], TOLERANCE[sketch.dag.algorithm.split(".")[0]], schedule)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float, schedule: Schedule) -> None:
    """Errors relative to the largest finite expected value."""
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(float(finite.max(initial=0.0)), 1e-30)
    np.testing.assert_allclose(
        found / scale, expected / scale, rtol=0, atol=tolerance, err_msg=schedule.key
    )
