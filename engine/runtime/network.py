"""Running a compiled network.

In: a program, object code and weights (from `engine.runtime.build` or a file).  Out: arrays.  The
activations live in one arena that is made at the first run; arguments stand in a table of pointers
that the native driver walks (`engine.runtime.driver`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError, TargetError
from engine.runtime.buffers import ALIGN, aligned_zeros
from engine.runtime.driver import Schema, Segment, exports, schema
from engine.runtime.hostcall import HostValues, run_host_step
from engine.runtime.jit import load_object
from engine.runtime.netfile import NetworkImage, read_network, write_network
from engine.runtime.plan import SLACK
from engine.runtime.program import BUFFER, WEIGHT, HostStep, KernelStep, Program, Tensor
from engine.runtime.threads import pool
from engine.target import missing_features, usable_cores

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Median seconds of one step; `step` is None for copies in and out."""

    name: str
    seconds: float
    step: KernelStep | HostStep | None


class CompiledNetwork:
    """A network that runs: `net(x)`, `net.run({name: array})`, `net.save(path)`.

    Runs are independent of one another; several threads may call, they take turns.
    """

    def __init__(self, program: Program, code: Sequence[bytes], weights: NDArray[np.uint8]) -> None:
        self.program = program
        self._code = tuple(code)
        self._weights = weights
        self._engine: _Engine | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Name, shape and dtype of each input, in order."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self.program.outputs

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of activations, weights, scratch memory (at the default threads) and code."""
        return {
            "activations": self.program.arena,
            "weights": self._weights.nbytes,
            "workspace": self.program.workspace(self.program.threads),
            "code": sum(map(len, self._code)),
        }

    def __call__(self, *arrays: Array, threads: int | None = None) -> Any:
        """Inputs by position; gives the output's array, or a tuple of them if there are several."""
        if len(arrays) != len(self.inputs):
            raise InputError(
                f"{len(arrays)} arrays for {len(self.inputs)} inputs", where=self.name,
                fix=f"The inputs are: {', '.join(map(_show, self.inputs))}.",
            )  # fmt: skip
        feeds = {t.name: a for t, a in zip(self.inputs, arrays, strict=True)}
        found = tuple(self.run(feeds, threads=threads).values())
        return found[0] if len(found) == 1 else found

    def run(self, feeds: Mapping[str, Array], *, threads: int | None = None) -> dict[str, Array]:
        """Output name -> a fresh row-major array.

        `threads` defaults to the number compiled for, cut to the cores that the process may use.
        InputError for a missing, unknown or ill-shaped input or a wrong type.
        """
        return self.prepare(feeds, threads=threads).run()

    def prepare(self, feeds: Mapping[str, Array], *, threads: int | None = None) -> PreparedRun:
        """A run with everything checked beforehand, for calling it many times."""
        arrays = self._checked(feeds)
        return PreparedRun(self, arrays, self._threads(threads))

    def profile(
        self, feeds: Mapping[str, Array] | None = None, *, repeat: int = 20,
        threads: int | None = None,
    ) -> tuple[StepTime, ...]:  # fmt: skip
        """Seconds of every step, the median of `repeat` runs; random inputs if none are given."""
        feeds = self.sample_inputs() if feeds is None else feeds
        arrays, count = self._checked(feeds), self._threads(threads)
        with self._lock:
            engine = self._ready(count)
            rows = [engine.profile(arrays, count) for _ in range(max(1, repeat))]
        seconds = np.median(np.array(rows), axis=0)
        return tuple(
            StepTime(name, float(s), step)
            for (name, step), s in zip(engine.timeline(), seconds, strict=True)
        )

    def sample_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Inputs of the right shapes and types: normal floats, zeros for all other types."""
        rng = np.random.default_rng(seed)
        made = {}
        for tensor in self.inputs:
            dtype = np.dtype(tensor.dtype)
            floats = dtype.kind == "f"
            made[tensor.name] = (
                rng.standard_normal(tensor.shape).astype(dtype) if floats
                else np.zeros(tensor.shape, dtype)
            )  # fmt: skip
        return made

    def save(self, path: str | Path) -> None:
        """Write the network's file, at once or not at all; NoctuneError if that is impossible."""
        write_network(path, NetworkImage(self.program, self._code, self._weights))

    def link(self) -> CompiledNetwork:
        """Load the code now instead of at the first run; TargetError if this CPU cannot run it."""
        with self._lock:
            self._ready(1)
        return self

    def _ready(self, threads: int) -> _Engine:
        if self._engine is None:
            self._engine = _Engine(self.program, self._code, self._weights)
        self._engine.reserve(threads)
        return self._engine

    def _threads(self, threads: int | None) -> int:
        if threads is None:
            return max(1, min(self.program.threads, usable_cores()))
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 256:
            raise InputError(f"{threads!r} threads", where=self.name, fix="Give 1 to 256.")
        return threads

    def _checked(self, feeds: Mapping[str, Array]) -> list[Array]:
        known = ", ".join(map(_show, self.inputs))
        for name in feeds:
            if name not in {t.name for t in self.inputs}:
                raise InputError(f"there is no input '{name}'", where=self.name,
                                 fix=f"The inputs are: {known}.")  # fmt: skip
        arrays = []
        for want in self.inputs:
            if want.name not in feeds:
                raise InputError(f"input '{want.name}' is missing", where=self.name,
                                 fix=f"The inputs are: {known}.")  # fmt: skip
            array = np.asarray(feeds[want.name])
            if array.shape != want.shape or array.dtype != np.dtype(want.dtype):
                raise InputError(
                    f"input '{want.name}' is {array.dtype.name}{list(array.shape)}",
                    where=self.name, fix=f"Give {want.dtype}{list(want.shape)}.",
                )  # fmt: skip
            arrays.append(np.ascontiguousarray(array).reshape(want.shape))
        return arrays


class PreparedRun:
    """One set of inputs and threads; `run()` gives fresh outputs, `run_into(outputs)` reuses them.

    The input arrays are read anew at each run.
    """

    def __init__(self, network: CompiledNetwork, arrays: Sequence[Array], threads: int) -> None:
        self._network, self._arrays, self._threads = network, arrays, threads
        with network._lock:
            network._ready(threads)

    def empty_outputs(self) -> dict[str, Array]:
        """Uninitialised arrays for `run_into`."""
        return {t.name: np.empty(t.shape, np.dtype(t.dtype)) for t in self._network.outputs}

    def run(self) -> dict[str, Array]:
        outputs = self.empty_outputs()
        self.run_into(outputs)
        return outputs

    def run_into(self, outputs: Mapping[str, Array]) -> None:
        """Fill arrays made by `empty_outputs`."""
        network = self._network
        with network._lock:
            network._ready(self._threads).run(self._arrays, outputs, self._threads)


class _Engine:
    """Linked code, arena, workspace and the table of pointers.  Not for several threads at once."""

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
        self.table = np.zeros(max(1, self.schema.slots), dtype=np.uint64)
        self.table_at = self.table.ctypes.data
        self._fill_table()

    def reserve(self, threads: int) -> None:
        """Scratch memory for that many threads."""
        if threads <= self.threads:
            return
        self.threads = threads
        need = self.program.workspace(threads) + 2 * SLACK
        self.workspace = aligned_zeros(-(-need // 4))
        at = self.workspace.ctypes.data + SLACK
        for step, slot in self.schema.kernel_slots:
            self.table[slot + len(step.args)] = at

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
            self.table[slot] = values.given[tensor.name].ctypes.data
        for tensor, slot in self.schema.output_slots:
            self.table[slot + 1] = outputs[tensor.name].ctypes.data

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


def _show(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)}"


def load(path: str | Path) -> CompiledNetwork:
    """The network of a file, ready to run.

    ModelError if the file is missing or damaged, TargetError if this CPU lacks what it needs.
    """
    image = read_network(path)
    return CompiledNetwork(image.program, image.code, image.weights).link()
