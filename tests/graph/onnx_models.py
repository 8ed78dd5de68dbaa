"""Small ONNX models for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine.graph import Graph
from engine.graph.host import run_graph

Shape = Sequence[int | str | None]


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """A node; names are split at blanks, "_" stands for an omitted input or output."""
    names = [["" if n == "_" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, **attrs)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
    dtype: int = onnx.TensorProto.FLOAT,
    **more: Any,
) -> onnx.ModelProto:
    """A model with typed inputs and outputs of unknown shape."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(k, dtype, v) for k, v in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *more.pop("imports", ())]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers of both signs."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops(graph: Graph) -> list[str]:
    """The operators in order."""
    return [n.op for n in graph.nodes]


def run_one(graph: Graph, **feeds: np.ndarray) -> np.ndarray:
    """The first output, by the reference operators."""
    return run_graph(graph, feeds, use_onnxruntime=False)[graph.outputs[0]]
