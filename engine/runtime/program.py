"""A compiled network as plain data: what the file's manifest says.

In: `engine.runtime.build` fills it.  Out: `engine.runtime.network` runs it,
`engine.runtime.netfile` writes and reads it.  Offsets are in bytes: into the arena for buffers,
into the weights for constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.expr import Layout
from engine.records import GENERATOR_VERSION, Schedule
from engine.target import Target

BUFFER, WEIGHT, WORKSPACE, HOST = "buffer", "weight", "workspace", "host"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that enters or leaves the network or a host call.

    `place` is BUFFER (float32 in the arena at `offset`, laid out by `layout`), WEIGHT (a constant
    of `dtype` at `offset`, row-major) or HOST (an array of any type that only host calls touch).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    place: str
    offset: int = 0
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Functions of one generated kernel and their units; several steps may share it.  Workspace in
    bytes."""

    name: str
    regions: tuple[str, ...]
    units: tuple[int, ...]
    workspace: int
    workspace_per_thread: int


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One call of a kernel: `args` holds (BUFFER or WEIGHT, offset), workspace follows them.

    `estimate` is the tuner's seconds for it, None if it was never measured; `tuned` is False if the
    default schedule was taken.  `work` are the FLOPs that the algorithm really makes, `bytes` those
    of its constants, inputs and outputs; 0 if a file does not say.
    """

    name: str
    kernel: str
    args: tuple[tuple[str, int], ...]
    workload_key: str
    anchor: str
    algorithm: str
    flops: int
    schedule: Schedule
    tuned: bool
    estimate: float | None
    work: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostStep:
    """One operator run outside generated code; an input is None where the operator omits it."""

    name: str
    op: str
    domain: str
    attrs: Mapping[str, Any]
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The whole network; `arena` is the size of its activations in bytes, slack included."""

    name: str
    target: Target
    threads: int
    opset: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    kernels: tuple[KernelCode, ...]
    steps: tuple[KernelStep | HostStep, ...]
    arena: int
    generator: str = GENERATOR_VERSION

    @property
    def untuned(self) -> tuple[KernelStep, ...]:
        """Steps that run with the default schedule."""
        return tuple(s for s in self.steps if isinstance(s, KernelStep) and not s.tuned)

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        return tuple(s for s in self.steps if isinstance(s, HostStep))

    @property
    def estimate(self) -> float | None:
        """Seconds: the sum of the steps' estimates, None unless every kernel that computes has one.

        Kernels that only move data are no search tasks; they count nothing.
        """
        kernels = [s for s in self.steps if isinstance(s, KernelStep)]
        if any(s.estimate is None and s.flops for s in kernels):
            return None
        return sum(s.estimate or 0.0 for s in kernels)

    def workspace(self, threads: int) -> int:
        """Bytes of scratch memory that the hungriest kernel needs."""
        sizes = [k.workspace + threads * k.workspace_per_thread for k in self.kernels]
        return max(sizes, default=0)


def to_json(program: Program) -> dict[str, Any]:
    """The program as JSON values; arrays in host attributes become lists with their type."""
    data = asdict(program)
    for step, plain in zip(program.steps, data["steps"], strict=True):
        plain["kind"] = "kernel" if isinstance(step, KernelStep) else "host"
        if isinstance(step, KernelStep):
            plain["schedule"] = step.schedule.to_json()
        else:
            plain["attrs"] = {k: _encode(v) for k, v in step.attrs.items()}
    return data


def from_json(data: Mapping[str, Any]) -> Program:
    """The program of a manifest; KeyError, TypeError or ValueError if it is not one."""
    return Program(
        name=str(data["name"]),
        target=_target(data["target"]),
        threads=int(data["threads"]),
        opset=int(data["opset"]),
        inputs=tuple(_tensor(t) for t in data["inputs"]),
        outputs=tuple(_tensor(t) for t in data["outputs"]),
        kernels=tuple(_kernel(k) for k in data["kernels"]),
        steps=tuple(_step(s) for s in data["steps"]),
        arena=int(data["arena"]),
        generator=str(data["generator"]),
    )


def _target(data: Mapping[str, Any]) -> Target:
    known = {f.name for f in fields(Target)}
    values = {k: v for k, v in data.items() if k in known}
    return Target(**{**values, "features": tuple(values["features"])})


def _layout(data: Mapping[str, Any]) -> Layout:
    return Layout(
        tuple(data["shape"]), tuple(data["strides"]), int(data["offset"]), int(data["size"]),
        int(data["block_axis"]), int(data["block"]), tuple((a, b) for a, b in data["halo"]),
    )  # fmt: skip


def _tensor(data: Mapping[str, Any]) -> Tensor:
    layout = None if data["layout"] is None else _layout(data["layout"])
    shape = tuple(int(n) for n in data["shape"])
    return Tensor(data["name"], shape, data["dtype"], data["place"], int(data["offset"]), layout)


def _kernel(data: Mapping[str, Any]) -> KernelCode:
    regions, units = tuple(data["regions"]), tuple(int(n) for n in data["units"])
    if len(regions) != len(units) or min(units, default=1) < 1:
        raise ValueError(f"{len(regions)} regions with units {units}")
    return KernelCode(
        data["name"], regions, units, int(data["workspace"]), int(data["workspace_per_thread"])
    )


def _step(data: Mapping[str, Any]) -> KernelStep | HostStep:
    values = {k: v for k, v in data.items() if k != "kind"}
    if data["kind"] == "kernel":
        values["args"] = tuple((str(kind), int(offset)) for kind, offset in data["args"])
        values["schedule"] = Schedule.from_json(data["schedule"])
        return KernelStep(**values)
    values["attrs"] = {k: _decode(v) for k, v in data["attrs"].items()}
    for side in ("inputs", "outputs"):
        values[side] = tuple(None if t is None else _tensor(t) for t in data[side])
    return HostStep(**values)


def _encode(value: Any) -> Any:
    """JSON of an attribute; what JSON lacks is an object with one key that names its kind."""
    import numpy as np

    match value:
        case None | bool() | str() | int():
            return value
        case np.ndarray() if value.dtype.hasobject:
            words = {"shape": list(value.shape)}
            return {"strings": {**words, "values": [str(v) for v in value.flat]}}
        case np.ndarray():
            words = {"dtype": value.dtype.str, "shape": list(value.shape)}
            return {"array": {**words, "hex": value.tobytes().hex()}}
        case np.generic():
            return _encode(value.item())
        case float():
            return {"float": value.hex()}  # exact, and infinities are no JSON numbers
        case bytes():
            return {"bytes": value.hex()}
        case tuple() | list():
            return [_encode(v) for v in value]
    raise TypeError(f"attribute of type {type(value).__name__}")


def _decode(value: Any) -> Any:
    import numpy as np

    match value:
        case list():
            return tuple(_decode(v) for v in value)
        case {"float": text}:
            return float.fromhex(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"array": {"dtype": dtype, "shape": shape, "hex": text}}:
            flat = np.frombuffer(bytes.fromhex(text), dtype=np.dtype(dtype))
            return flat.reshape(shape).copy()
        case {"strings": {"shape": shape, "values": values}}:
            return np.array(values, dtype=object).reshape(shape)
    return value
