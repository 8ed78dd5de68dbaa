"""Running nodes outside generated code: host calls, constant folding, and the reference run.

In: a `Node` or a `Graph` and arrays.  Out: arrays.  One node becomes a one-node ONNX model for
onnxruntime where that is installed (fast), else for the onnx package's reference operators.  Both
are imported on first use only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError, ModelError
from engine.graph.dialect import OPSET_ATTR, node_opset
from engine.graph.ir import Graph, Node
from engine.graph.kernels import KERNELS
from engine.graph.single import (
    feeds_of,
    has_onnxruntime,
    in_place,
    run_onnxruntime,
    single_node_model,
)

Array = NDArray[Any]


def run_node(
    node: Node,
    opset: int,
    arrays: Sequence[Array | None],
    *,
    use_onnxruntime: bool = True,
) -> list[Array]:
    """Outputs of one node for the given inputs (None for an omitted one).

    `opset` is the graph's; a node that keeps an older meaning says so in its attributes.
    Raises ModelError when neither onnxruntime nor the reference operators can run it.
    """
    version = node_opset(node, opset)
    if use_onnxruntime:
        found = run_onnxruntime(node, version, arrays)
        if found is not None:
            return found
    kernel = None if node.domain or OPSET_ATTR in node.attrs else KERNELS.get(node.op)
    if kernel is not None and len(node.outputs) == 1:
        return [kernel(node.attrs, *arrays)]
    return _run_reference(node, version, arrays)


def run_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    *,
    use_onnxruntime: bool = True,
    keep: Sequence[str] = (),
) -> dict[str, Array]:
    """Output name -> array (also the values named in `keep`), node by node; feeds stay unchanged.

    Raises InputError for a missing, unknown or ill-shaped input.
    """
    check_feeds(graph, feeds)
    wanted = (*graph.outputs, *keep)
    values: dict[str, Array] = {**graph.constants, **{k: np.asarray(v) for k, v in feeds.items()}}
    last_use = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    for i, node in enumerate(graph.nodes):
        arrays = [values[name] if name else None for name in node.inputs]
        results = run_node(node, graph.opset, arrays, use_onnxruntime=use_onnxruntime)
        values.update((n, r) for n, r in zip(node.outputs, results, strict=False) if n)
        for name in node.inputs:
            if last_use.get(name) == i and name not in wanted:
                values.pop(name, None)
    return {name: np.array(values[name]) for name in wanted}


def check_feeds(graph: Graph, feeds: Mapping[str, Array]) -> None:
    """Raises InputError unless `feeds` holds exactly the graph's inputs, shaped and typed right."""
    for name in graph.inputs:
        if name not in feeds:
            raise InputError(f"input '{name}' is missing", where=graph.name)
        array, want = np.asarray(feeds[name]), graph.values[name]
        if array.shape != want.shape or array.dtype.name != want.dtype:
            raise InputError(
                f"input '{name}' is {array.dtype.name}{list(array.shape)}",
                where=graph.name,
                fix=f"Give {want.dtype}{list(want.shape)}",
            )
    for name in feeds:
        if name not in graph.inputs:
            known = ", ".join(graph.inputs)
            raise InputError(
                f"there is no input '{name}'", where=graph.name, fix=f"The inputs are: {known}"
            )


def _run_reference(node: Node, opset: int, arrays: Sequence[Array | None]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            model = ReferenceEvaluator(single_node_model(node, opset, arrays))
            return in_place(node, model.run(None, feeds_of(arrays)))
    except Exception as error:
        raise ModelError(
            f"operator {node.domain or 'ai.onnx'}::{node.op} (opset {opset}) cannot be run",
            why=f"{type(error).__name__}: {error}",
            fix="" if has_onnxruntime() else "Install onnxruntime, which has more operators",
        ) from error
