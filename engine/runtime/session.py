"""A linked network in this process.

In: a program, object code and weights.  Out: runs.  A session owns the arena, the scratch memory
and the table of pointers that the driver walks; one run at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import TargetError
from engine.runtime.buffers import ALIGN, aligned_zeros
from engine.runtime.driver import Schema, Segment, exports, schema
from engine.runtime.hostcall import HostValues, run_host_step
from engine.runtime.jit import load_object
from engine.runtime.plan import SLACK
from engine.runtime.program import BUFFER, WEIGHT, HostStep, KernelStep, Program
from engine.runtime.threads import pool
from engine.target import missing_features

Array = NDArray[Any]


class Session:
    """Linked code and its memory.  TargetError if this CPU cannot run it."""

    def __init__(self, program: Program, images: Sequence[bytes], weights: Array) -> None:
        missing = missing_features(program.target)
        if missing:
            raise TargetError(
                f"this CPU lacks {', '.join(missing)}", where=program.name,
                why=f"the network was compiled for {program.target.name} ({program.target.cpu})",
                fix="Compile it for this machine.",
            )  # fmt: skip
        self.program = program
        self.schema: Schema = schema(program)
        self.weights = weights
        try:
            self.code = load_object(images, exports(self.schema), pool().symbols)
        except RuntimeError as error:
            raise TargetError("the network's code cannot be loaded", where=program.name,
                              why=str(error), fix="Compile it again.") from error  # fmt: skip
        plain = (ctypes.c_void_p, ctypes.c_int64)
        count = len(self.schema.segments)
        self.segments = [self.code.function(f"segment_{i}", None, *plain) for i in range(count)]
        self.timed = [
            self.code.function(f"timed_{i}", None, *plain, ctypes.c_void_p) for i in range(count)
        ]
        self.arena = aligned_zeros(-(-program.arena // 4))
        self.workspace = aligned_zeros(0)
        self.threads = 0
        self.table = (ctypes.c_uint64 * max(1, self.schema.slots))()
        self.table_at = ctypes.addressof(self.table)
        self._fill_table()

    def reserve(self, threads: int) -> None:
        """Scratch memory for that many threads."""
        if threads <= self.threads:
            return
        need = self.program.workspace(threads) + 2 * SLACK
        self.workspace = aligned_zeros(-(-need // 4))
        at = self.workspace.ctypes.data + SLACK
        for step, slot in self.schema.kernel_slots:
            self.table[slot + len(step.args)] = at
        self.threads = threads

    def _fill_table(self) -> None:
        bases = {BUFFER: self.arena.ctypes.data, WEIGHT: self.weights.ctypes.data}
        assert all(base % ALIGN == 0 for base in bases.values())
        for step, slot in self.schema.kernel_slots:
            for i, (place, offset) in enumerate(step.args):
                self.table[slot + i] = bases[place] + offset
        for tensor, slot in self.schema.input_slots:
            self.table[slot + 1] = bases[BUFFER] + tensor.offset
        for tensor, slot in self.schema.output_slots:
            self.table[slot] = bases[BUFFER] + tensor.offset

    def _values(self, arrays: Sequence[Array]) -> HostValues:
        given = {t.name: a for t, a in zip(self.program.inputs, arrays, strict=True)}
        return HostValues(self.program, self.arena, self.weights, given)

    def _bind(self, values: HostValues, outputs: Mapping[str, Array]) -> None:
        for tensor, slot in self.schema.input_slots:
            self.table[slot] = _address(values.given[tensor.name])
        for tensor, slot in self.schema.output_slots:
            self.table[slot + 1] = _address(outputs[tensor.name])

    def run(self, arrays: Sequence[Array], outputs: Mapping[str, Array], threads: int) -> None:
        values = self._values(arrays)
        self._bind(values, outputs)
        number = 0
        for part in self.schema.order:
            if isinstance(part, Segment):
                self.segments[number](self.table_at, threads)
                number += 1
            else:
                run_host_step(part, values)
        for tensor in self.program.outputs:
            if tensor.place != BUFFER:
                outputs[tensor.name][...] = values.read(tensor)

    def profile(self, arrays: Sequence[Array], threads: int) -> list[float]:
        """Seconds of each entry of `timeline`."""
        values = self._values(arrays)
        outputs = {t.name: np.empty(t.shape, np.dtype(t.dtype)) for t in self.program.outputs}
        self._bind(values, outputs)
        seconds: list[float] = []
        number = 0
        for part in self.schema.order:
            if isinstance(part, Segment):
                clock = np.zeros(len(part.calls) + 1, dtype=np.int64)
                self.timed[number](self.table_at, threads, clock.ctypes.data)
                seconds += (np.diff(clock) * 1e-9).tolist()
                number += 1
            else:
                start = perf_counter()
                run_host_step(part, values)
                seconds.append(perf_counter() - start)
        return seconds

    def timeline(self) -> list[tuple[str, KernelStep | HostStep | None]]:
        """Name and step of everything that a run does, in order."""
        kernels = {slot: step for step, slot in self.schema.kernel_slots}
        found: list[tuple[str, KernelStep | HostStep | None]] = []
        for part in self.schema.order:
            if isinstance(part, Segment):
                found += [(call.name, kernels.get(call.slot)) for call in part.calls]
            else:
                found.append((part.name, part))
        return found


def _address(array: Array) -> int:
    # `array.ctypes` makes an object that takes five times as long
    return int(array.__array_interface__["data"][0])
