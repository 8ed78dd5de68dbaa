"""What each kernel prefetches for a later one.

In: the steps of a program and their kernels.  Out: the steps, those whose kernels look ahead with
the place of the largest constant of the next such step that has any.  Kernels between the two have
few weights or none (pooling, depthwise convolutions, products of activations).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.codegen.kernel import Kernel
from engine.runtime.program import WEIGHT, HostStep, KernelStep

_LINE = 64
_LARGEST = 4 << 20
"""Bytes; what comes too early is gone again when it is needed."""


def look_ahead(
    steps: Sequence[KernelStep | HostStep], kernels: Mapping[str, Kernel]
) -> tuple[KernelStep | HostStep, ...]:
    """The steps with `ahead` filled in."""
    found: list[KernelStep | HostStep] = []
    offset, size = 0, 0
    for step in reversed(steps):
        if isinstance(step, KernelStep) and kernels[step.kernel].bodies:
            kernel = kernels[step.kernel]
            stride = min(_LINE, -(-min(size, _LARGEST) // kernel.bodies))
            step = replace(step, ahead=(offset, stride))
            offset, size = _largest_constant(step, kernel) or (offset, size)
        found.append(step)
    return tuple(reversed(found))


def _largest_constant(step: KernelStep, kernel: Kernel) -> tuple[int, int] | None:
    """(offset into the weights, bytes), None if it has none."""
    constants = [
        (4 * kernel.packings[name].size, offset)
        for name, (place, offset) in zip(kernel.arguments, step.args, strict=True)
        if place == WEIGHT
    ]
    return max(constants)[::-1] if constants else None
