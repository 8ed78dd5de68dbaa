"""A kernel's arguments, the packing of its constants, and its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.codegen.kernel import Packing
from engine.expr import Affine, Layout, Read, reads, var
from engine.space.nest import Nest, Program

_ALIGN = 64
_PAD = 64  # floats of slack after each temporary: vector over-reads stay inside the workspace


class KernelPlan:
    """Arguments, packings and the workspace of one kernel."""

    def __init__(self, program: Program, layouts: Mapping[str, Layout]) -> None:
        self.program, self.dag = program, program.dag
        used = {r.tensor for s in self.dag.stages for r in reads(s.body)}
        placeholders = [p for p in self.dag.placeholders if p.name in used]
        self.constant = {p.name: p for p in placeholders if p.constant}
        self.arguments = [p.name for p in placeholders] + list(self.dag.outputs)
        self.layouts = {n: layouts[n] for n in self.arguments if n not in self.constant}
        self.packings: dict[str, Packing] = {}
        self.offsets: dict[str, tuple[int, bool]] = {}
        sizes = {False: 0, True: 0}
        for tensor, (layout, per_thread) in program.temporaries.items():
            self.layouts[tensor] = layout
            self.offsets[tensor] = (sizes[per_thread], per_thread)
            sizes[per_thread] += -(-(layout.size + _PAD) * 4 // _ALIGN) * _ALIGN
        self.shared_bytes, self.thread_bytes = sizes[False], sizes[True]
        self._plain = self._read_differently()

    def _read_differently(self) -> set[str]:
        """Constants read by more than one nest or in more than one way: kept in plain order."""
        ways: dict[str, set[object]] = {}
        for region in self.program.regions:
            for number, nest in enumerate(region.nests):
                stages = (nest.stage, *nest.epilogue, *self.program.inlined.values())
                for stage in stages:
                    for r in reads(stage.body):
                        if r.tensor in self.constant:
                            ways.setdefault(r.tensor, set()).add((id(region), number, r.index))
        return {name for name, found in ways.items() if len(found) > 1}

    def packing(self, read: Read, index: Sequence[Affine], nest: Nest, counts: Mapping[str, int],
                order: Sequence[str]) -> Packing:  # fmt: skip
        """How the nest reads a constant; the first reader decides."""
        known = self.packings.get(read.tensor)
        if known is not None:
            return known
        shape = self.constant[read.tensor].shape
        if read.tensor in self._plain or not shape:
            padded = [*shape[:-1], -(-shape[-1] // nest.lanes) * nest.lanes] if shape else []
            names = [f"d{i}" for i in range(len(shape))]
            packing = Packing(tuple(zip(names, padded, strict=True)), tuple(var(n) for n in names))
        else:
            touched = {n for affine in index for n in affine.axes}
            loops = tuple((n, counts[n]) for n in order if n in touched)
            packing = Packing(loops, tuple(index))
        self.packings[read.tensor] = packing
        return packing

    def is_plain(self, tensor: str) -> bool:
        return tensor in self._plain
