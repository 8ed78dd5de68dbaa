"""Networks: the graph types, ONNX import and the passes before search tasks are cut out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.graph.ir import Graph, Node, Value

if TYPE_CHECKING:
    from engine.graph.onnx_import import load_model, load_proto

__all__ = ["Graph", "Node", "Value", "load_model", "load_proto"]


def __getattr__(name: str) -> Any:
    """The importer on first use, so that a compiled network loads without the onnx package."""
    if name not in ("load_model", "load_proto"):
        raise AttributeError(name)
    from engine.graph import onnx_import

    return getattr(onnx_import, name)
