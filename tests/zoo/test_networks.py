"""Every built-in network: valid, of the published size and work, finite, not saturated."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from engine import zoo
from engine.errors import ModelError

SAVED_STATISTICS = {"BatchNormalization": slice(3, 5)}

PRINTED = 3e-3
"""Relative rounding of torchvision's figures and of the MobileNet paper's."""
TWO_DIGITS = 2e-2
"""He et al. 2015, table 1."""
GMACS = {
    "resnet-18": (1.8, TWO_DIGITS),
    "resnet-34": (3.6, 2.2e-2),  # and a 1x1 shortcut in the first stage
    "resnet-50": (3.8, TWO_DIGITS),
    "resnet-101": (7.6, TWO_DIGITS),
    "resnet-152": (11.3, TWO_DIGITS),
    "resnet-18-v1": (1.814, PRINTED),
    "resnet-50-v1.5": (4.089, PRINTED),
    "resnet3d-18": (40.697, PRINTED),
    "mobilenet": (0.569, PRINTED),
    "mobilenet-v2": (0.301, PRINTED),
    "squeezenet_v1.1": (0.349, PRINTED),
    "inception_v3": (5.713, PRINTED),
    "vgg-16": (15.47, PRINTED),
    "bert-base": (12 * (12 * 768 * 768 * 128 + 2 * 128 * 128 * 768) / 1e9, 0.0),
    "mlp": ((784 * 512 + 512 * 512 + 512 * 10) / 1e9, 0.0),
}


def dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def run(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float32]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (output,) = session.run(None, {model.graph.input[0].name: x})
    return output


def parameters(model: onnx.ModelProto) -> int:
    skipped = {
        name
        for node in model.graph.node
        for name in node.input[SAVED_STATISTICS.get(node.op_type, slice(0, 0))]
    }
    return sum(
        math.prod(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims and tensor.name not in skipped
    )


def multiply_adds(model: onnx.ModelProto) -> int:
    """Of the convolutions and matrix products, as shape inference sees them."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {value.name: dims(value) for value in (*inferred.value_info, *inferred.output)}
    shapes |= {value.name: dims(value) for value in inferred.input}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    total = 0
    for node in inferred.node:
        outputs = math.prod(shapes[node.output[0]])
        if node.op_type in ("Conv", "Gemm"):
            total += outputs * math.prod(shapes[node.input[1]][1:])
        elif node.op_type == "MatMul":
            total += outputs * shapes[node.input[0]][-1]
    return total


def test_passes_the_checker(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)


def test_has_the_described_size(network: str, model: onnx.ModelProto) -> None:
    described = zoo.describe(network)
    assert parameters(model) == described.parameters
    assert dims(model.graph.input[0]) == (1, *described.input_shape)
    assert [value.name for value in model.graph.input] == [described.input_name]


def test_does_the_published_work(network: str, model: onnx.ModelProto) -> None:
    gmacs, rounding = GMACS[network]
    assert multiply_adds(model) / 1e9 == pytest.approx(gmacs, rel=rounding or 1e-9)


def test_runs_and_sees_its_input(network: str, model: onnx.ModelProto) -> None:
    x = np.random.default_rng(7).standard_normal((2, *zoo.describe(network).input_shape))
    x = x.astype(np.float32)
    single = run(model, x[:1])
    pair = run(zoo.build(network, batch=2), x)
    assert single.shape == dims(model.graph.output[0])
    assert pair.shape == (2, *single.shape[1:])
    assert np.isfinite(pair).all()
    scale = float(np.abs(pair).max())
    np.testing.assert_allclose(pair[:1], single, atol=1e-4 * scale)
    assert np.abs(pair[0] - pair[1]).max() > 1e-2 * scale
    if model.graph.node[-1].op_type == "Softmax":
        assert pair.max() < 0.5
        assert pair.std() > 0.1 * pair.mean()
    else:
        assert 0.1 < pair.std() < 30.0


def test_equal_seeds_give_equal_weights() -> None:
    one, same, other = (zoo.build("squeezenet_v1.1", seed=seed) for seed in (3, 3, 4))
    assert one.SerializeToString() == same.SerializeToString()
    assert one.graph.initializer[0].raw_data != other.graph.initializer[0].raw_data


def test_names_of_one_model_are_unique(model: onnx.ModelProto) -> None:
    nodes = [node.name for node in model.graph.node]
    tensors = [tensor.name for tensor in model.graph.initializer]
    assert len(set(nodes)) == len(nodes)
    assert len(set(tensors)) == len(tensors)


def test_unknown_name_says_what_is_near() -> None:
    with pytest.raises(ModelError, match="resnet-50"):
        zoo.build("resnet50")


@pytest.mark.parametrize("arguments", [{"batch": 0}, {"batch": -1}, {"seed": -1}])
def test_bad_arguments_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ModelError):
        zoo.build("mlp", **arguments)
