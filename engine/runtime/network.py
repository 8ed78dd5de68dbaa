"""Running a compiled network.

In: a program, object code and weights (from `engine.runtime.build` or a file).  Out: arrays.  The
code is linked and its memory made at the first run (`engine.runtime.session`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.runtime.netfile import NetworkImage, read_network, write_network
from engine.runtime.program import HostStep, KernelStep, Program, Tensor
from engine.runtime.session import Session
from engine.target import usable_cores

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
        self._session: Session | None = None
        self._lock = threading.Lock()
        _alive.add(self)
        self._default_threads = max(1, min(program.threads, usable_cores()))

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
            session = self._ready(count)
            rows = [session.profile(arrays, count) for _ in range(max(1, repeat))]
        seconds = np.median(np.array(rows), axis=0)
        return tuple(
            StepTime(name, float(s), step)
            for (name, step), s in zip(session.timeline(), seconds, strict=True)
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

    def _ready(self, threads: int) -> Session:
        if self._session is None:
            self._session = Session(self.program, self._code, self._weights)
        self._session.reserve(threads)
        return self._session

    def _threads(self, threads: int | None) -> int:
        if threads is None:
            return self._default_threads
        try:
            count = 0 if isinstance(threads, bool) else index(threads)
        except TypeError:
            count = 0
        if not 1 <= count <= 256:
            raise InputError(f"{threads!r} threads", where=self.name, fix="Give 1 to 256.")
        return count

    def _checked(self, feeds: Mapping[str, Array]) -> list[Array]:
        arrays = []
        if not isinstance(feeds, Mapping):
            kind = type(feeds).__name__
            raise self._unknown(f"arrays by input name are needed, this is of type {kind}")
        for want in self.inputs:
            if want.name not in feeds:
                raise self._unknown(f"input '{want.name}' is missing")
            try:
                array = np.asarray(feeds[want.name])
            except (TypeError, ValueError) as error:
                raise self._unknown(f"input '{want.name}' is no array: {error}") from error
            if array.shape != want.shape or array.dtype != np.dtype(want.dtype):
                raise InputError(
                    f"input '{want.name}' is {array.dtype.name}{list(array.shape)}",
                    where=self.name, fix=f"Give {want.dtype}{list(want.shape)}.",
                )  # fmt: skip
            plain = array.flags.c_contiguous and array.flags.aligned
            arrays.append(array if plain else array.copy("C"))
        if len(feeds) > len(arrays):
            extra = next(name for name in feeds if name not in {t.name for t in self.inputs})
            raise self._unknown(f"there is no input '{extra}'")
        return arrays

    def _unknown(self, what: str) -> InputError:
        known = ", ".join(map(_show, self.inputs))
        return InputError(what, where=self.name, fix=f"The inputs are: {known}.")


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
        self._run(outputs)
        return outputs

    def run_into(self, outputs: Mapping[str, Array]) -> None:
        """Fill arrays made by `empty_outputs`; InputError for any that do not fit."""
        network = self._network
        for want in network.outputs:
            array = outputs.get(want.name)
            if array is None or not _fits(array, want):
                raise InputError(
                    f"no room for output '{want.name}'", where=network.name,
                    fix=f"Give a writable, contiguous array {_show(want)}.",
                )  # fmt: skip
        self._run(outputs)

    def _run(self, outputs: Mapping[str, Array]) -> None:
        network = self._network
        with network._lock:
            network._ready(self._threads).run(self._arrays, outputs, self._threads)


def _fits(array: Array, want: Tensor) -> bool:
    flags = array.flags
    whole = flags.c_contiguous and flags.aligned and flags.writeable
    return bool(whole and array.shape == want.shape and array.dtype == want.dtype)


def _show(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)}"


_alive: weakref.WeakSet[CompiledNetwork] = weakref.WeakSet()


def _renew_locks() -> None:
    """A forked child has none of the threads that may have held them."""
    for network in _alive:
        network._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def load(path: str | Path) -> CompiledNetwork:
    """The network of a file, ready to run.

    ModelError if the file is missing or damaged, TargetError if this CPU lacks what it needs.
    """
    image = read_network(path)
    return CompiledNetwork(image.program, image.code, image.weights).link()
