"""A small network for the flows' tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_model(path: Path, width: int = 8) -> Path:
    """A network of two small convolutions."""
    rng = np.random.default_rng(width)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name)
        for name, shape in (("w0", (width, 3, 3, 3)), ("w1", (width, width, 1, 1)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["y"], kernel_shape=[1, 1]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, width, 12, 12])
    graph = helper.make_graph(nodes, path.stem, [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path
