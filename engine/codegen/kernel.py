"""What the code generator hands over: LLVM IR and how to call it.

A kernel is a list of parallel regions.  Each is `void region(ptr args, i64 thread, i64 threads)`:
thread `thread` of `threads` does its share; all threads must have finished a region before the next
starts.  `args` points to an array of pointers: one per name in `arguments`, then the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.expr import Affine, Layout


@dataclass(frozen=True, slots=True)
class Packing:
    """Order in which a kernel reads a constant.

    The packed array has axes `loops` (name, extent) in C order; element [loops...] is the constant's
    element at `index`, an affine expression of the loops for each of its axes, 0.0 outside.
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

    def pack(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """The constant in the kernel's order, flat, contiguous float32."""
        shape = tuple(extent for _, extent in self.loops)
        grid = dict(
            zip((n for n, _ in self.loops), np.ogrid[tuple(slice(e) for e in shape)], strict=True)
        )
        inside: NDArray[np.bool_] = np.ones((1,) * len(shape), dtype=bool)
        picks = []
        for axis, affine in enumerate(self.index):
            at = np.full((1,) * len(shape), affine.const, dtype=np.int64)
            for name, coeff in affine.terms:
                at = at + grid[name] * coeff
            inside = inside & (at >= 0) & (at < array.shape[axis])
            picks.append(np.clip(at, 0, array.shape[axis] - 1))
        values = array[tuple(picks)] if picks else array
        out = np.where(inside, values, np.float32(0.0))
        return np.ascontiguousarray(np.broadcast_to(out, shape), dtype=np.float32).ravel()


@dataclass(frozen=True)
class Kernel:
    """Generated code of one step.

    `layouts` holds non-constant tensors, `packings` the constant ones; both cover `arguments`.
    A constant placeholder with `derive` is computed from its source before packing
    (`engine.codegen.constants.derive`).  Workspace bytes: `workspace` shared by all threads, plus
    `workspace_per_thread` for each, laid out [shared][thread 0][thread 1]..., 64-byte aligned.
    Outputs never alias inputs unless `layouts` places them so.
    """

    name: str
    ir: str
    regions: tuple[str, ...]
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    layouts: Mapping[str, Layout]
    packings: Mapping[str, Packing]
    workspace: int = 0
    workspace_per_thread: int = 0
