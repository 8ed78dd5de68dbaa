"""A scheduled program to a Kernel: one LLVM function per parallel region.

In: `space.nest.Program` and the layouts of its tensors.  Out: `codegen.kernel.Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from engine.codegen.access import Memory
from engine.codegen.emitter import Emitter
from engine.codegen.kernel import Kernel
from engine.codegen.nest_writer import NestWriter
from engine.codegen.plan import KernelPlan
from engine.expr import Layout
from engine.space.nest import Program, Region


def lower(
    program: Program, layouts: Mapping[str, Layout], name: str, *, fused: bool = True
) -> Kernel:
    """LLVM IR for a program whose inputs and outputs lie as `layouts` says.

    `fused` says that the target has fused multiply-add instructions.
    """
    plan = KernelPlan(program, layouts)
    functions = []
    regions = []
    units = []
    for number, region in enumerate(program.regions):
        symbol = f"{name}_r{number}"
        regions.append(symbol)
        writer = _RegionWriter(plan, region, symbol, fused)
        functions.append(writer.write())
        units.append(writer.units)
    return Kernel(
        name, tuple(functions), tuple(regions), tuple(units), tuple(plan.arguments),
        program.dag.outputs,
        {k: v for k, v in plan.layouts.items() if k in plan.arguments},
        plan.packings, plan.shared_bytes, plan.thread_bytes,
    )  # fmt: skip


class _RegionWriter:
    """Writes the function of one region."""

    def __init__(self, plan: KernelPlan, region: Region, symbol: str, fused: bool) -> None:
        self.plan, self.region, self.symbol = plan, region, symbol
        self.e = Emitter(fused=fused)
        self.memory = Memory(self.e, {})
        self.fixed = {a.name: a.extent for a in region.shared}
        self.units = 1

    def write(self) -> str:
        self._bases()
        if self.region.shared:
            self._shared()
        else:
            nest = self.region.nests[0]
            NestWriter(self, nest).parallel(self.region.parallel)
        self.e.put("ret void")
        return (
            f"define void @{self.symbol}(ptr %args, i64 %thread, i64 %first, i64 %past) #0 {{\n"
            f"{self.e.text()}\n}}\n"
        )

    def _bases(self) -> None:
        for number, name in enumerate(self.plan.arguments):
            slot = self.e.op(f"getelementptr ptr, ptr %args, i64 {number}")
            self.memory.bases[name] = self.e.op(f"load ptr, ptr {slot}, align 8", "base")
        if not self.plan.offsets:
            return
        slot = self.e.op(f"getelementptr ptr, ptr %args, i64 {len(self.plan.arguments)}")
        workspace = self.e.op(f"load ptr, ptr {slot}, align 8", "ws")
        mine = self.e.op(f"mul i64 %thread, {self.plan.thread_bytes}")
        mine = self.e.op(f"add i64 {mine}, {self.plan.shared_bytes}")
        own = self.e.op(f"getelementptr i8, ptr {workspace}, i64 {mine}")
        for name, (offset, per_thread) in self.plan.offsets.items():
            base = own if per_thread else workspace
            self.memory.bases[name] = self.e.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def share(self, total: int, body: Callable[[str], None]) -> None:
        """The units of `range(total)` that this call is to do."""
        self.units = total

        def run(_: list[str]) -> list[str]:
            body(self.e.value_of("@p"))
            return []

        self.e.loop("@p", "%first", "%past", [], run, guarded=True)

    def decode(self, point: str, extents: Sequence[int]) -> list[str]:
        """Indices of a point of a flattened space, first axis slowest."""
        out = []
        stride = prod(extents)
        for extent in extents:
            stride //= extent
            value = point
            if stride > 1:
                value = self.e.op(f"udiv i64 {value}, {stride}")
            out.append(self.e.op(f"urem i64 {value}, {extent}"))
        return out

    def _shared(self) -> None:
        extents = [a.extent for a in self.region.shared]

        def body(point: str) -> None:
            for axis, value in zip(self.region.shared, self.decode(point, extents), strict=True):
                self.e.open_scope(axis.name, value)
            for nest in self.region.nests:
                NestWriter(self, nest).serial()
            for _ in self.region.shared:
                self.e.close_scope()

        self.share(prod(extents), body)
