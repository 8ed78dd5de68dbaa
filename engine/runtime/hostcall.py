"""Host calls: operators of a network that no kernel covers.

In: a `HostStep` and where its values lie.  Out: its outputs, written there.  The onnx package (or
onnxruntime) is imported at the first call only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import NoctuneError
from engine.runtime.buffers import from_buffer, write_buffer
from engine.runtime.program import BUFFER, WEIGHT, HostStep, Program, Tensor

Array = NDArray[Any]


class HostValues:
    """The values of one run: inputs, the arena, constants, and what host calls made."""

    def __init__(
        self, program: Program, arena: NDArray[np.float32], weights: NDArray[np.uint8],
        given: Mapping[str, Array],
    ) -> None:  # fmt: skip
        self.program, self.given = program, given
        self._arena, self._weights = arena, weights
        self._made: dict[str, Array] = {}

    def read(self, tensor: Tensor) -> Array:
        """The value as a row-major array, a fresh one unless it is a constant or an input."""
        if tensor.place == BUFFER:
            assert tensor.layout is not None
            return from_buffer(self._buffer(tensor), tensor.layout)
        if tensor.place == WEIGHT:
            dtype = np.dtype(tensor.dtype)
            count = int(np.prod(tensor.shape, dtype=np.int64))
            part = self._weights[tensor.offset : tensor.offset + count * dtype.itemsize]
            return part.view(dtype).reshape(tensor.shape)
        if tensor.name in self._made:
            return self._made[tensor.name]
        return self.given[tensor.name]

    def write(self, tensor: Tensor, array: Array) -> None:
        if tensor.place == BUFFER:
            assert tensor.layout is not None
            write_buffer(array, self._buffer(tensor), tensor.layout)
        else:
            self._made[tensor.name] = array

    def _buffer(self, tensor: Tensor) -> NDArray[np.float32]:
        assert tensor.layout is not None
        start = tensor.offset // 4
        return self._arena[start : start + tensor.layout.size]


def run_host_step(step: HostStep, values: HostValues) -> None:
    """Run one operator; NoctuneError if it fails or gives something else than it should."""
    try:
        from engine.graph.host import run_node
        from engine.graph.ir import Node
    except ImportError as error:
        raise NoctuneError(
            f"operator {step.op} of '{step.name}' runs outside generated code",
            where=values.program.name, why=str(error), fix="Install the onnx package.",
        ) from error  # fmt: skip
    inputs, outputs = (tuple(t.name if t else "" for t in x) for x in (step.inputs, step.outputs))
    node = Node(step.name, step.op, inputs, outputs, step.attrs, step.domain)
    arrays = [values.read(t) if t else None for t in step.inputs]
    found = run_node(node, values.program.opset, arrays)
    for tensor, array in zip(step.outputs, found, strict=False):
        if tensor is None:
            continue
        array = np.asarray(array)
        if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
            raise NoctuneError(
                f"operator {step.op} of '{step.name}' gave {array.dtype.name}{list(array.shape)}",
                where=values.program.name,
                why=f"{tensor.dtype}{list(tensor.shape)} was expected",
            )  # fmt: skip
        values.write(tensor, array)
