"""The runner that everybody uses: links object code and times it on this machine.

In: compiled candidates.  Out: their relative error and seconds.  Buffers are guarded, inputs and
constants read-only, outputs filled with NaN before the first run; constants in one packing are
shared by all candidates that read them so.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.codegen.kernel import Kernel, Packing
from engine.expr import Layout
from engine.measure.data import all_finite, make_inputs, relative_error, solve
from engine.measure.memory import GuardedBuffer
from engine.measure.plugins import CandidateError, Sample
from engine.measure.protocol import Built, Problem
from engine.measure.timing_ir import LOGGED, PROBE, PROBE_FLOATS, TIME, can_flush, timing_ir
from engine.records import ErrorKind, Schedule, TimingMode
from engine.runtime.buffers import from_buffer, to_buffer
from engine.runtime.jit import Code, emit_object, load_object
from engine.runtime.threads import pool
from engine.space.algorithms import TRANSFORMS
from engine.target import host

_PROBE_CALLS = 16
_HOT_BLOCKS = 8
_PROCESS_CLOCK, _THREAD_CLOCK = 2, 3
_FLUSH, _READ = 0, 1
_KEPT_BYTES = 1 << 29
"""Numbers of problems that are kept for later rounds."""

Floats = NDArray[np.float32]


class _Range(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("bytes", ctypes.c_int64), ("kind", ctypes.c_int64))


class _Region(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("units", ctypes.c_int64))


@dataclass(frozen=True)
class _Loaded:
    """A candidate ready to run; `buffers` for the kernel's arguments, then the workspace."""

    kernel: Kernel
    code: Code
    regions: Any
    arguments: Any
    buffers: tuple[GuardedBuffer, ...]
    ranges: Any


@dataclass(frozen=True)
class _Output:
    """An output's buffer, what it holds before a run, and offsets of floats that are no elements.

    `outside` must stay zero, `lanes` (padded channels) must be finite.
    """

    buffer: GuardedBuffer
    blank: Floats
    outside: NDArray[np.int64]
    lanes: NDArray[np.int64]


@dataclass
class _Data:
    """A problem's numbers: made once, as rounds come back to a problem."""

    positive: bool
    feeds: dict[str, Floats]
    expected: dict[str, Floats]
    constants: dict[tuple[str, str], Floats] = field(default_factory=dict)
    outputs: dict[tuple[str, Layout], _Output] = field(default_factory=dict)
    inputs: dict[tuple[str, Layout], GuardedBuffer] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        arrays = [*self.feeds.values(), *self.expected.values(), *self.constants.values()]
        buffers = [*self.inputs.values(), *(o.buffer for o in self.outputs.values())]
        return sum(a.nbytes for a in arrays) + 2 * sum(b.nbytes for b in buffers)


class NativeRunner:
    """Fulfils `plugins.Runner`."""

    def __init__(self, options: Mapping[str, Any], cores: tuple[int, ...]) -> None:
        self._options = options
        target = host()
        self._driver = _driver()
        _pin(cores)
        self._clock = _THREAD_CLOCK if len(cores) == 1 else _PROCESS_CLOCK
        self._flushes = can_flush(target)
        self._times = np.zeros(3 + LOGGED, np.int64)
        self._evict = None if self._flushes else GuardedBuffer(target.l3 // 2)
        self._probe_buffer = GuardedBuffer(PROBE_FLOATS)
        self._problem: Problem | None = None
        self._data = _Data(False, {}, {})
        self._known: OrderedDict[str, _Data] = OrderedDict()
        self._loaded: dict[int, _Loaded] = {}
        self._snapshot: tuple[int, dict[str, Floats]] = -1, {}
        self._shared: weakref.WeakValueDictionary[Any, GuardedBuffer] = (
            weakref.WeakValueDictionary()
        )

    # ---- a problem

    def prepare(self, problem: Problem, reference: Any) -> Any:
        self._loaded.clear()
        self._shared = weakref.WeakValueDictionary()
        self._problem = problem
        if problem.key not in self._known:
            self._known[problem.key] = self._make(problem, reference)
        self._data = self._known[problem.key]
        self._known.move_to_end(problem.key)
        while len(self._known) > 1 and sum(d.nbytes for d in self._known.values()) > _KEPT_BYTES:
            self._known.popitem(last=False)
        return self._data.positive, self._data.expected

    def _make(self, problem: Problem, reference: Any) -> _Data:
        dag, seed = problem.workload.dag, int(self._options["seed"])
        if reference is not None:
            positive, expected = reference
            return _Data(positive, _protect(make_inputs(dag, seed, positive)), _protect(expected))
        for positive in (False, True):  # roots and logarithms want values above zero
            feeds = make_inputs(dag, seed, positive)
            expected = solve(dag, feeds)
            if all_finite(expected):
                break
        return _Data(positive, _protect(feeds), _protect(expected))

    # ---- a candidate

    def load(self, number: int, schedule: Schedule, built: Built) -> tuple[float, float]:
        kernel: Kernel = built.kernel
        try:
            code = load_object(built.code, kernel.regions)
        except RuntimeError as cause:
            raise CandidateError(ErrorKind.COMPILE_ERROR, f"does not link: {cause}") from cause
        buffers = tuple(self._buffer(built, name) for name in kernel.arguments)
        buffers += (self._workspace(kernel),)
        calls = [
            _Region(code.address(name), units)
            for name, units in zip(kernel.regions, kernel.units, strict=True)
        ]
        regions = (_Region * len(calls))(*calls)
        arguments = (ctypes.c_uint64 * len(buffers))(*(b.address for b in buffers))
        ranges = self._ranges(kernel, buffers)
        loaded = _Loaded(kernel, code, regions, arguments, buffers, ranges)
        for name in kernel.outputs:
            output = self._data.outputs[name, kernel.layouts[name]]
            output.buffer.data[:] = output.blank
        first = self._run(loaded, 1)
        error = self._verify(loaded)
        self._loaded[number] = loaded
        self._snapshot = (
            number,
            {
                name: self._data.outputs[name, kernel.layouts[name]].buffer.data.copy()
                for name in kernel.outputs
            },
        )
        return error, first.seconds

    def sample(self, number: int, calls: int) -> Sample:
        return self._run(self._loaded[number], calls)

    def check(self, number: int) -> None:
        """The timed calls must have left the verified output."""
        loaded = self._loaded[number]
        self._guard(loaded)
        whose, flats = self._snapshot
        self._snapshot = -1, {}
        for name, flat in flats.items() if whose == number else ():
            output = self._data.outputs[name, loaded.kernel.layouts[name]]
            if not np.array_equal(output.buffer.data.view(np.uint32), flat.view(np.uint32)):
                self._verify_output(loaded.kernel, name)

    def drop(self, number: int) -> None:
        self._loaded.pop(number, None)

    def held_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._shared.values())

    def probe(self) -> float:
        region = (_Region * 1)(_Region(self._driver.address(PROBE), 1))
        arguments = (ctypes.c_uint64 * 1)(self._probe_buffer.address)
        return self._call(region, arguments, 1, (_Range * 0)(), _PROBE_CALLS, 1).wall / _PROBE_CALLS

    # ---- buffers

    def _buffer(self, built: Built, name: str) -> GuardedBuffer:
        kernel: Kernel = built.kernel
        if name in kernel.packings:
            return self._constant(built.derived.get(name, ("", name)), kernel.packings[name])
        layout = kernel.layouts[name]
        if name in kernel.outputs:
            return self._output(name, layout).buffer
        if (name, layout) not in self._data.inputs:
            buffer = GuardedBuffer(layout.size)
            buffer.data[:] = to_buffer(self._data.feeds[name], layout)
            self._data.inputs[name, layout] = buffer.freeze()
        return self._data.inputs[name, layout]

    def _constant(self, origin: tuple[str, str], packing: Packing) -> GuardedBuffer:
        """A constant, or the transform ("" for none) of one, as the kernel reads it."""
        known = self._shared.get((origin, packing))
        if known is None:
            if origin not in self._data.constants:
                transform, source = origin
                values = self._data.feeds[source]
                made = _frozen(TRANSFORMS[transform](values)) if transform else values
                self._data.constants[origin] = made
            known = GuardedBuffer(packing.size)
            shape = [extent for _, extent in packing.loops]
            np.copyto(known.data.reshape(shape), packing.view(self._data.constants[origin]))
            self._shared[origin, packing] = known.freeze()
        return known

    def _output(self, name: str, layout: Layout) -> _Output:
        if (name, layout) not in self._data.outputs:
            blank = to_buffer(np.full(layout.shape, np.nan, np.float32), layout)
            whole = _with_whole_blocks(layout)
            inside = to_buffer(np.ones(whole.shape, np.float32), whole)
            self._data.outputs[name, layout] = _Output(
                GuardedBuffer(layout.size), blank, np.flatnonzero(inside == 0.0),
                np.flatnonzero((inside == 1.0) & (blank == 0.0)),
            )  # fmt: skip
        return self._data.outputs[name, layout]

    def _workspace(self, kernel: Kernel) -> GuardedBuffer:
        assert self._problem is not None
        size = kernel.workspace + kernel.workspace_per_thread * self._problem.threads
        known = self._shared.get(size)
        if known is None:
            known = self._shared[size] = GuardedBuffer(max(size // 4, 1))
        known.data[:] = np.nan  # a kernel must not count on what it finds there
        return known

    def _ranges(self, kernel: Kernel, buffers: tuple[GuardedBuffer, ...]) -> Any:
        """What leaves the caches before each timed call."""
        assert self._problem is not None
        mode = self._problem.timing_mode
        if mode is TimingMode.HOT:
            return (_Range * 0)()
        names = (*kernel.arguments, "")
        cold = mode is TimingMode.COLD_WEIGHTS
        out = [b for n, b in zip(names, buffers, strict=True) if not cold or n in kernel.packings]
        if self._flushes:
            return (_Range * len(out))(*(_Range(b.address, b.nbytes, _FLUSH) for b in out))
        if not out or self._evict is None:
            return (_Range * 0)()
        warm = [b for b in buffers if b not in out]  # reading the big buffer pushed these out too
        seen = (self._evict, *warm)
        return (_Range * len(seen))(*(_Range(b.address, b.nbytes, _READ) for b in seen))

    # ---- running

    def _run(self, loaded: _Loaded, calls: int) -> Sample:
        assert self._problem is not None
        blocks = calls if len(loaded.ranges) else min(calls, _HOT_BLOCKS)
        each = calls // blocks
        threads = self._problem.threads
        return self._call(loaded.regions, loaded.arguments, threads, loaded.ranges, blocks, each)

    def _call(
        self, regions: Any, arguments: Any, threads: int, ranges: Any, blocks: int, each: int
    ) -> Sample:
        out = self._times
        time = self._driver.function(
            TIME, None, *[ctypes.c_void_p, ctypes.c_int64] * 2, ctypes.c_void_p,
            *[ctypes.c_int64] * 3, ctypes.c_int32, ctypes.c_void_p,
        )  # fmt: skip
        time(
            ctypes.addressof(regions), len(regions), ctypes.addressof(arguments), threads,
            ctypes.addressof(ranges), len(ranges), blocks, each, self._clock,
            out.ctypes.data,
        )  # fmt: skip
        total, wall, cpu = (float(ns) / 1e9 for ns in out[:3])
        median = float(np.median(out[3 : 3 + min(blocks, LOGGED)])) / 1e9 / each
        return Sample(total, wall, cpu, median)

    def _guard(self, loaded: _Loaded) -> None:
        names = (*loaded.kernel.arguments, "workspace")
        for name, buffer in zip(names, loaded.buffers, strict=True):
            if not buffer.intact:
                buffer.repair()
                raise CandidateError(ErrorKind.WRONG_RESULT, f"wrote outside of {name}")

    def _verify(self, loaded: _Loaded) -> float:
        self._guard(loaded)
        return max(self._verify_output(loaded.kernel, name) for name in loaded.kernel.outputs)

    def _verify_output(self, kernel: Kernel, name: str) -> float:
        layout = kernel.layouts[name]
        output = self._data.outputs[name, layout]
        flat, expected = output.buffer.data, self._data.expected[name]
        error = relative_error(from_buffer(flat, layout), expected)
        if error > float(self._options["tolerance"]):
            raise CandidateError(
                ErrorKind.WRONG_RESULT, f"{name} differs by {error:.3g} of its largest value"
            )
        if flat[output.outside].any():
            raise CandidateError(ErrorKind.WRONG_RESULT, f"wrote into the zero border of {name}")
        if not np.isfinite(flat[output.lanes]).all():
            raise CandidateError(ErrorKind.WRONG_RESULT, f"NaN in the padded channels of {name}")
        return error


def _protect(arrays: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name: _frozen(array) for name, array in arrays.items()}


def _frozen(array: Floats) -> Floats:
    """A copy that no candidate can change: trying to is a crash."""
    buffer = GuardedBuffer(array.size)
    buffer.data[:] = array.ravel()
    return buffer.freeze().data.reshape(array.shape)


def _with_whole_blocks(layout: Layout) -> Layout:
    """The layout that also counts the padded lanes of the last block as elements."""
    if not layout.blocked:
        return layout
    shape = list(layout.shape)
    shape[layout.block_axis] = -(-shape[layout.block_axis] // layout.block) * layout.block
    return replace(layout, shape=tuple(shape))


def _driver() -> Code:
    target = host()
    image = emit_object(timing_ir(target), target.cpu, target.feature_string)
    names = ("noctune_parallel", "noctune_fp_enter", "noctune_fp_leave")
    return load_object(image, (TIME, PROBE), {name: pool().address(name) for name in names})


def _pin(cores: tuple[int, ...]) -> None:
    """Keep this thread on the core that the pool keeps for its caller."""
    if len(cores) == 1:
        return  # the process is there already
    first = ctypes.c_int32.from_address(pool().address("noctune_cpus")).value
    try:
        os.sched_setaffinity(0, {first})
    except OSError:
        return
