"""Formats: which values are channel-blocked and which are plain.

In: items of `engine.graph.fuse`.  Out: a `Format` for every value that enters or is computed.
Windows (convolutions, pools) make blocked tensors; operators that treat each channel by itself keep
what they are given, or write blocks where a window reads them; all others are plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from engine.graph.cells import Format, Shape, block_of
from engine.graph.fuse import Item, Role
from engine.graph.ir import Graph, Node
from engine.ops import Kind


def choose_formats(
    graph: Graph, items: Sequence[Item], readers: Mapping[str, Sequence[Item]], lanes: int
) -> dict[str, Format]:
    """Value -> format; constants are left out.  `readers` lists the items that use each value."""
    chooser = _Chooser(graph, readers, lanes)
    chooser.forms.update(dict.fromkeys(graph.inputs, Format.PLAIN))
    for item in items:
        for out in item.nodes[-1].outputs:
            if out:
                chooser.forms[out] = chooser.choose(item, out)
    return chooser.forms


def keeps_channels(graph: Graph, item: Item) -> bool:
    """Whether the anchor works on each channel by itself, so that it takes any format."""
    anchor = item.anchor
    if anchor is None:
        return True
    source = graph.shape(anchor.inputs[0])
    if len(source) < 3:
        return False
    if item.kind is Kind.COPY:
        same_channels = source[1:2] == graph.shape(anchor.output)[1:2]
        return anchor.op in ("Pad", "Resize", "Identity") and same_channels
    if anchor.op == "LayerNormalization":
        return int(anchor.attrs["axis"]) >= 2
    return anchor.op.startswith("Reduce") and min(anchor.attrs["axes"], default=0) >= 2


@dataclass
class _Chooser:
    graph: Graph
    readers: Mapping[str, Sequence[Item]]
    lanes: int
    forms: dict[str, Format] = field(default_factory=dict)

    def choose(self, item: Item, out: str) -> Format:
        shape = self.graph.shape(out)
        if len(shape) < 3 or item.role is Role.HOST:
            return Format.PLAIN
        if item.role is Role.VIEW:
            return self._view(item.nodes[0])
        if item.kind is Kind.WINDOW:
            point = prod(shape[2:]) == 1 and not self._window_reads(out)
            return Format.PLAIN if point else Format.BLOCKED
        if item.kind is Kind.MATRIX or not keeps_channels(self.graph, item):
            return Format.PLAIN
        if item.kind is Kind.COPY:
            return self._neutral(item, None)
        if item.anchor is None:
            return self._neutral(item, shape)
        return self._neutral(item, self.graph.shape(item.anchor.inputs[0]))

    def _neutral(self, item: Item, shape: Shape | None) -> Format:
        """Blocked if an input of that shape (any, for None) is, or if a window reads the result."""
        alike = [n for n in item.inputs if n in self.forms and shape in (None, self.graph.shape(n))]
        blocked = any(self.forms[n] is Format.BLOCKED for n in alike)
        return Format.BLOCKED if blocked or self._window_reads(item.output) else Format.PLAIN

    def _window_reads(self, value: str) -> bool:
        return any(
            reader.role is Role.KERNEL and reader.kind is Kind.WINDOW
            for reader in self.readers.get(value, ())
        )

    def _view(self, node: Node) -> Format:
        source = self.forms.get(node.inputs[0], Format.PLAIN)
        keeps = (
            node.op == "Identity"
            or (node.op == "Concat" and self._blocks_fit(node))
            or (node.op == "Slice" and source is Format.BLOCKED and self._whole_blocks(node))
        )
        if not keeps:
            return Format.PLAIN
        return source if node.op == "Identity" else Format.BLOCKED

    def _blocks_fit(self, node: Node) -> bool:
        """Whether the parts of a Concat are whole blocks of channels of its result."""
        if node.attrs["axis"] != 1:
            return False
        block = block_of(self.graph.shape(node.output), self.lanes)
        parts = [self.graph.shape(n)[1] for n in node.inputs]
        whole = all(c % block == 0 for c in parts[:-1]) and block in (1, self.lanes)
        return whole and any(self.forms.get(n) is Format.BLOCKED for n in node.inputs)

    def _whole_blocks(self, node: Node) -> bool:
        """Whether a Slice takes whole blocks of channels and nothing less of other axes."""
        if node.attrs["axes"] != (1,) or node.attrs["steps"] != (1,):
            return False
        source, (start,), (end,) = node.inputs[0], node.attrs["starts"], node.attrs["ends"]
        block, own = (block_of(self.graph.shape(n), self.lanes) for n in (source, node.output))
        last = end == self.graph.shape(source)[1]
        return own == block and start % block == 0 and (end % block == 0 or last)
