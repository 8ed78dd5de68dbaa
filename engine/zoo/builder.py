"""Writes an ONNX model layer by layer, with seeded random weights.

In: layer calls on value names, first argument to result.  Out: `finish` gives the `ModelProto`
(float32, NCHW, static shapes).  The scales are chosen so that a signal of unit second moment keeps
it from layer to layer, however deep the network: He's initialisation before a ReLU, and batch
normalisation whose scale and variance cancel on average.  Random networks then give finite outputs
that are neither constant nor saturated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

OPSET = 17
IR_VERSION = 8

LINEAR_INPUT = math.sqrt(0.5)
"""Gain for a layer whose input did not pass a ReLU, which would have halved its second moment."""
RESIDUAL_BRANCH = 0.2
"""Gain for the last layer of a residual branch; the sum of many units then grows slowly."""
BEFORE_SOFTMAX = 0.1
"""Gain for the last dense layer where a softmax follows, which large values would saturate."""
CENTRED = 0.25
"""Share of its mean that a filter gives up.  Without it all inputs of a deep random network end in
nearly the same output, and comparing outputs would find few faults."""

Size = int | Sequence[int]


class GraphBuilder:
    """Adds nodes and initialisers to one model.

    Every layer method takes and returns value names.  `gain` multiplies the standard deviation of
    He's initialisation, sqrt(2 / fan-in).
    """

    def __init__(
        self, name: str, input_name: str, input_shape: Sequence[int], rng: np.random.Generator
    ) -> None:
        self._rng = rng
        self._scope = ""
        self._counts: Counter[str] = Counter()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="noctune.zoo")
        self._model.opset_import.add(domain="", version=OPSET)
        self._graph = self._model.graph
        self._graph.name = name
        self._graph.input.append(_tensor_info(input_name, input_shape))
        self._shapes[input_name] = tuple(input_shape)
        self.input = input_name

    def shape(self, value: str) -> tuple[int, ...]:
        return self._shapes[value]

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Puts `name` before the names of the nodes added inside."""
        outer = self._scope
        self._scope = f"{outer}{name}."
        try:
            yield
        finally:
            self._scope = outer

    def finish(self, value: str, output_name: str = "output") -> onnx.ModelProto:
        """The model whose only output is `value`, which the last node must have made."""
        last = self._graph.node[-1]
        if list(last.output) != [value]:
            raise ValueError(f"{value} is not the output of the last node {last.name}")
        last.output[0] = output_name
        self._graph.output.append(_tensor_info(output_name, self._shapes[value]))
        return self._model

    # Layers with weights

    def conv(
        self,
        x: str,
        channels: int,
        kernel: Size,
        stride: Size = 1,
        padding: Size = 0,
        *,
        groups: int = 1,
        bias: bool = False,
        gain: float = 1.0,
    ) -> str:
        batch, in_channels, *spatial = self._shapes[x]
        rank = len(spatial)
        kernels, strides, pads = (_spread(size, rank) for size in (kernel, stride, padding))
        name = self._next_name("conv")
        weight_shape = (channels, in_channels // groups, *kernels)
        inputs = [x, self._weight(f"{name}.weight", weight_shape, gain)]
        if bias:
            inputs.append(self._small(f"{name}.bias", channels))
        return self.node(
            "Conv",
            inputs,
            (batch, channels, *_window(spatial, kernels, strides, pads)),
            name=name,
            kernel_shape=kernels,
            strides=strides,
            pads=pads * 2,
            group=groups,
            dilations=(1,) * rank,
        )

    def batch_norm(self, x: str, epsilon: float = 1e-5) -> str:
        """Keeps the second moment: the mean of scale^2 / variance over both ranges is 0.99."""
        channels = self._shapes[x][1]
        name = self._next_name("bn")
        inputs = [
            x,
            self._uniform(f"{name}.scale", channels, 0.5, 1.5),
            self._small(f"{name}.shift", channels),
            self._small(f"{name}.mean", channels),
            self._uniform(f"{name}.variance", channels, 0.6, 1.8),
        ]
        return self.node("BatchNormalization", inputs, self._shapes[x], name=name, epsilon=epsilon)

    def scale_norm(self, x: str, epsilon: float = 1e-5) -> str:
        """Batch normalisation that only divides by the deviation: scale 1, shift 0, mean 0."""
        channels = self._shapes[x][1]
        name = self._next_name("bn")
        zeros = np.zeros(channels, np.float32)
        inputs = [
            x,
            self.constant(f"{name}.scale", np.ones(channels, np.float32)),
            self.constant(f"{name}.shift", zeros),
            self.constant(f"{name}.mean", zeros),
            self._uniform(f"{name}.variance", channels, 0.6, 1.8),
        ]
        return self.node("BatchNormalization", inputs, self._shapes[x], name=name, epsilon=epsilon)

    def layer_norm(self, x: str, epsilon: float) -> str:
        """Over the last axis."""
        features = self._shapes[x][-1]
        name = self._next_name("norm")
        inputs = [
            x,
            self._uniform(f"{name}.scale", features, 0.5, 1.5),
            self._small(f"{name}.shift", features),
        ]
        return self.node(
            "LayerNormalization", inputs, self._shapes[x], name=name, axis=-1, epsilon=epsilon
        )

    def dense(self, x: str, features: int, gain: float = 1.0) -> str:
        """[batch, in] -> [batch, features], weight [features, in], with bias."""
        batch, in_features = self._shapes[x]
        name = self._next_name("dense")
        weight = self._weight(f"{name}.weight", (features, in_features), gain)
        bias = self._small(f"{name}.bias", features)
        return self.node("Gemm", [x, weight, bias], (batch, features), name=name, transB=1)

    def linear(self, x: str, features: int) -> str:
        """[..., in] -> [..., features] as MatMul and Add, weight [in, features]."""
        *outer, in_features = self._shapes[x]
        name = self._next_name("linear")
        deviation = 1.0 / math.sqrt(in_features)
        weight = self._normal(f"{name}.weight", (in_features, features), deviation)
        product = self.node("MatMul", [x, weight], (*outer, features), name=f"{name}.matmul")
        bias = self._small(f"{name}.bias", features)
        return self.node("Add", [product, bias], (*outer, features), name=f"{name}.add")

    # Layers without weights

    def relu(self, x: str) -> str:
        return self.node("Relu", [x], self._shapes[x])

    def relu6(self, x: str) -> str:
        low, high = self.scalar("zero", 0.0), self.scalar("six", 6.0)
        return self.node("Clip", [x, low, high], self._shapes[x])

    def softmax(self, x: str) -> str:
        """Over the last axis."""
        return self.node("Softmax", [x], self._shapes[x], axis=-1)

    def add(self, a: str, b: str) -> str:
        return self.node("Add", [a, b], self._shapes[a])

    def concat(self, values: Sequence[str]) -> str:
        """Along the channels."""
        batch, _, *spatial = self._shapes[values[0]]
        channels = sum(self._shapes[value][1] for value in values)
        return self.node("Concat", values, (batch, channels, *spatial), axis=1)

    def max_pool(self, x: str, kernel: Size, stride: Size, padding: Size = 0) -> str:
        return self._pool("MaxPool", x, kernel, stride, padding)

    def avg_pool(self, x: str, kernel: Size, stride: Size, padding: Size = 0) -> str:
        """Padding counts as zeros in the mean."""
        return self._pool("AveragePool", x, kernel, stride, padding, count_include_pad=1)

    def global_avg_pool(self, x: str) -> str:
        batch, channels, *spatial = self._shapes[x]
        return self.node("GlobalAveragePool", [x], (batch, channels, *(1 for _ in spatial)))

    def flatten(self, x: str) -> str:
        """[batch, ...] -> [batch, features]."""
        batch, *rest = self._shapes[x]
        return self.node("Flatten", [x], (batch, math.prod(rest)), axis=1)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        name = self._next_name("reshape")
        target = self.constant(f"{name}.shape", np.array(shape, np.int64))
        return self.node("Reshape", [x, target], shape, name=name)

    def transpose(self, x: str, order: Sequence[int]) -> str:
        shape = self._shapes[x]
        return self.node("Transpose", [x], [shape[axis] for axis in order], perm=order)

    # The parts that layers are made of

    def node(
        self, op: str, inputs: Sequence[str], shape: Sequence[int], name: str = "", **attrs: Any
    ) -> str:
        """Adds one node; `shape` is its output's shape."""
        name = name or self._next_name(op.lower())
        self._graph.node.append(onnx.helper.make_node(op, inputs, [name], name=name, **attrs))
        self._shapes[name] = tuple(shape)
        return name

    def scalar(self, name: str, value: float) -> str:
        """A float32 scalar, shared by all layers that ask for the same name."""
        if name in self._shapes:
            return name
        return self.constant(name, np.array(value, np.float32))

    def constant(self, name: str, array: NDArray[np.float32] | NDArray[np.int64]) -> str:
        # Written in place: a helper that returns a TensorProto would copy every weight once more.
        self._graph.initializer.add(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            raw_data=array.tobytes(),
        )
        self._shapes[name] = array.shape
        return name

    def _pool(
        self, op: str, x: str, kernel: Size, stride: Size, padding: Size, **attrs: Any
    ) -> str:
        batch, channels, *spatial = self._shapes[x]
        kernels, strides, pads = (_spread(s, len(spatial)) for s in (kernel, stride, padding))
        shape = (batch, channels, *_window(spatial, kernels, strides, pads))
        window: dict[str, Any] = {"kernel_shape": kernels, "strides": strides, "pads": pads * 2}
        return self.node(op, [x], shape, **window, **attrs)

    def _weight(self, name: str, shape: Sequence[int], gain: float) -> str:
        """He's initialisation, less a share of each filter's mean, at the same output scale.

        The mean of a rectified normal signal carries 1 / pi of its second moment.
        """
        array = self._rng.standard_normal(tuple(shape), dtype=np.float32)
        array -= CENTRED * array.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        kept = 1.0 - (1.0 - (1.0 - CENTRED) ** 2) / math.pi
        array *= np.float32(gain * math.sqrt(2.0 / (math.prod(shape[1:]) * kept)))
        return self.constant(name, array)

    def _normal(self, name: str, shape: Sequence[int], deviation: float) -> str:
        array = self._rng.standard_normal(tuple(shape), dtype=np.float32)
        array *= np.float32(deviation)
        return self.constant(name, array)

    def _small(self, name: str, count: int) -> str:
        return self._normal(name, (count,), 0.1)

    def _uniform(self, name: str, count: int, low: float, high: float) -> str:
        return self.constant(name, self._rng.uniform(low, high, count).astype(np.float32))

    def _next_name(self, kind: str) -> str:
        stem = self._scope + kind
        self._counts[stem] += 1
        return f"{stem}{self._counts[stem]}"


def _tensor_info(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape))


def _spread(size: Size, rank: int) -> tuple[int, ...]:
    return (size,) * rank if isinstance(size, int) else tuple(size)


def _window(
    spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> tuple[int, ...]:
    sizes = zip(spatial, kernel, stride, pad, strict=True)
    return tuple((extent + 2 * p - k) // s + 1 for extent, k, s, p in sizes)
