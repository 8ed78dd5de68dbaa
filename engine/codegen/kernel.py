"""What the code generator hands over: LLVM IR and how to call it.

A kernel is a list of parallel regions.  Each is `void region(ptr args, i64 thread, i64 first, i64
past)`: thread `thread` does units `first` to before `past` of the region's `units`; all units must
be done before the next region starts.  `args` points to an array of pointers: one per name in
`arguments`, then the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from engine.expr import Affine, Layout


@dataclass(frozen=True, slots=True)
class Packing:
    """Order in which a kernel reads a constant.

    The packed array has axes `loops` (name, extent) in C order; element [loops...] is the
    constant's element at `index`, an affine expression of the loops for each of its axes, 0.0
    outside.
    """

    loops: tuple[tuple[str, int], ...]
    index: tuple[Affine, ...]

    @property
    def size(self) -> int:
        """Floats in the packed array."""
        total = 1
        for _, extent in self.loops:
            total *= extent
        return total

    def view(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """The packed array, axis by axis, as a read-only view of the (padded) constant."""
        extents = dict(self.loops)
        bounds = [affine.bounds(extents) for affine in self.index]
        pads = [
            (max(0, -low), max(0, high - size + 1))
            for (low, high), size in zip(bounds, array.shape, strict=True)
        ]
        padded = np.pad(array, pads) if any(p != (0, 0) for p in pads) else array
        start = [affine.const + pad for affine, (pad, _) in zip(self.index, pads, strict=True)]
        steps = [dict(affine.terms) for affine in self.index]
        strides = [
            sum(
                step.get(name, 0) * stride
                for step, stride in zip(steps, padded.strides, strict=True)
            )
            for name, _ in self.loops
        ]
        corner = padded[tuple(slice(at, at + 1) for at in start)]
        return as_strided(corner, [e for _, e in self.loops], strides, writeable=False)

    def pack(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """The constant in the kernel's order, flat, contiguous float32."""
        return np.array(self.view(array), dtype=np.float32, order="C").ravel()


@dataclass(frozen=True)
class Kernel:
    """Generated code of one step: `functions` holds the IR of each region, `units` how many units
    of work there are in each.

    `layouts` holds non-constant tensors, `packings` the constant ones; both cover `arguments`.
    A constant placeholder with `derive` is computed from its source before packing
    (`engine.codegen.constants.derive`).  Workspace bytes: `workspace` shared by all threads, plus
    `workspace_per_thread` for each, laid out [shared][thread 0][thread 1]..., 64-byte aligned.
    Outputs never alias inputs unless `layouts` places them so.
    """

    name: str
    functions: tuple[str, ...]
    regions: tuple[str, ...]
    units: tuple[int, ...]
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    layouts: Mapping[str, Layout]
    packings: Mapping[str, Packing]
    workspace: int = 0
    workspace_per_thread: int = 0

    @property
    def ir(self) -> str:
        """The IR of all regions."""
        return "\n".join(self.functions)

    def without_ir(self) -> Kernel:
        """What is needed of it once it is compiled."""
        return replace(self, functions=())
