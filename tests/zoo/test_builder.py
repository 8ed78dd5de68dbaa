"""The builder's shapes agree with ONNX's inference, and its layers keep the signal's scale."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from engine.zoo.builder import LINEAR_INPUT, GraphBuilder


def builder(*shape: int, seed: int = 0) -> GraphBuilder:
    return GraphBuilder("net", "input", shape, np.random.default_rng(seed))


def inferred_output(model: onnx.ModelProto) -> tuple[int, ...]:
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims)


@pytest.mark.parametrize("extent", [7, 8, 15])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (1, 2, 0), (5, 3, 2)])
@pytest.mark.parametrize("layer", ["conv", "max_pool", "avg_pool"])
def test_window_shapes(layer: str, extent: int, kernel: int, stride: int, padding: int) -> None:
    b = builder(2, 4, extent, extent)
    if layer == "conv":
        value = b.conv(b.input, 6, kernel, stride, padding, groups=2, bias=True)
    else:
        value = getattr(b, layer)(b.input, kernel, stride, min(padding, kernel // 2))
    expected = b.shape(value)
    assert inferred_output(b.finish(value)) == expected


def test_rectangular_and_volume_windows() -> None:
    flat = builder(1, 3, 9, 9)
    value = flat.conv(flat.input, 5, (1, 7), padding=(0, 3))
    assert flat.shape(value) == inferred_output(flat.finish(value)) == (1, 5, 9, 9)
    volume = builder(1, 3, 4, 9, 9)
    value = volume.conv(volume.input, 5, (3, 7, 7), (1, 2, 2), (1, 3, 3))
    assert volume.shape(value) == inferred_output(volume.finish(value)) == (1, 5, 4, 5, 5)


def test_concat_flatten_and_reshape_shapes() -> None:
    b = builder(2, 3, 4, 4)
    joined = b.concat([b.input, b.relu(b.input), b.input])
    assert b.shape(joined) == (2, 9, 4, 4)
    turned = b.transpose(b.reshape(b.flatten(joined), (2, 3, 48)), (0, 2, 1))
    assert b.shape(turned) == inferred_output(b.finish(turned)) == (2, 48, 3)


def test_conv_batch_norm_relu_keeps_the_second_moment() -> None:
    b = builder(1, 64, 16, 16)
    value = b.relu(b.batch_norm(b.conv(b.input, 64, 3, padding=1, gain=LINEAR_INPUT)))
    for _ in range(6):
        value = b.relu(b.batch_norm(b.conv(value, 64, 3, padding=1)))
    x = np.random.default_rng(1).standard_normal((1, 64, 16, 16)).astype(np.float32)
    (y,) = ReferenceEvaluator(b.finish(value)).run(None, {"input": x})
    assert 0.1 < float(np.mean(y**2)) < 2.5


def test_scopes_name_nodes_and_weights() -> None:
    b = builder(1, 3, 4, 4)
    with b.scope("stage1"), b.scope("unit2"):
        first = b.conv(b.input, 4, 1)
        second = b.conv(first, 4, 1)
    third = b.conv(second, 4, 1)
    assert [first, second, third] == ["stage1.unit2.conv1", "stage1.unit2.conv2", "conv1"]
    assert b.finish(third).graph.initializer[1].name == "stage1.unit2.conv2.weight"


def test_scalars_are_shared() -> None:
    b = builder(1, 3)
    model = b.finish(b.relu6(b.relu6(b.input)))
    assert [tensor.name for tensor in model.graph.initializer] == ["zero", "six"]


def test_only_the_last_value_can_be_the_output() -> None:
    b = builder(1, 3)
    first = b.relu(b.input)
    b.relu(first)
    with pytest.raises(ValueError, match="last node"):
        b.finish(first)
