"""The built-in networks, as ONNX models with seeded random weights.

In: a name of `names()`, a batch size and a seed.  Out: an `onnx.ModelProto`, float32, NCHW, static
shapes, one input and one output.  A new network is one function on a `GraphBuilder` and one row of
the table below.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from engine.errors import ModelError
from engine.zoo.bert import bert_encoder
from engine.zoo.builder import GraphBuilder
from engine.zoo.inception import inception_v3
from engine.zoo.mobilenet import mobilenet_v1, mobilenet_v2
from engine.zoo.plain import mlp, squeezenet, vgg16
from engine.zoo.resnet import resnet3d18, resnet18, resnet50
from engine.zoo.resnet_v2 import resnet_v2

IMAGE = (3, 224, 224)


@dataclass(frozen=True, slots=True)
class ZooNetwork:
    """One built-in network.

    `input_shape` leaves out the batch axis; `parameters` counts weights, biases, scales and shifts,
    but not the means and variances of batch normalisations.
    """

    name: str
    summary: str
    input_shape: tuple[int, ...]
    parameters: int
    layers: Callable[[GraphBuilder], str]
    input_name: str = "input"


def _tutorial_resnet(depth: int, parameters: int) -> ZooNetwork:
    summary = f"ResNet-{depth}, pre-activation, stride in the first convolution of a unit"
    return ZooNetwork(
        f"resnet-{depth}", summary, IMAGE, parameters, partial(resnet_v2, depth=depth)
    )


_NETWORKS = {
    network.name: network
    for network in (
        _tutorial_resnet(18, 11_691_950),
        _tutorial_resnet(34, 21_800_110),
        _tutorial_resnet(50, 25_549_486),
        _tutorial_resnet(101, 44_541_614),
        _tutorial_resnet(152, 60_185_262),
        ZooNetwork("resnet-18-v1", "ResNet-18 as in torchvision", IMAGE, 11_689_512, resnet18),
        ZooNetwork(
            "resnet-50-v1.5",
            "ResNet-50 as in torchvision, stride in the 3x3",
            IMAGE,
            25_557_032,
            resnet50,
        ),
        ZooNetwork(
            "resnet3d-18",
            "ResNet3D-18 for video, 16 frames",
            (3, 16, 112, 112),
            33_371_472,
            resnet3d18,
        ),
        ZooNetwork("mobilenet", "MobileNet v1, width 1.0", IMAGE, 4_231_976, mobilenet_v1),
        ZooNetwork(
            "mobilenet-v2", "MobileNet v2 as in torchvision", IMAGE, 3_504_872, mobilenet_v2
        ),
        ZooNetwork(
            "squeezenet_v1.1", "SqueezeNet 1.1 as in torchvision", IMAGE, 1_235_496, squeezenet
        ),
        ZooNetwork(
            "inception_v3",
            "Inception v3 as in torchvision, no auxiliary classifier",
            (3, 299, 299),
            23_834_568,
            inception_v3,
        ),
        ZooNetwork("vgg-16", "VGG-16 as in torchvision", IMAGE, 138_357_544, vgg16),
        ZooNetwork(
            "bert-base",
            "BERT-base encoder, 12 layers, 128 tokens",
            (128, 768),
            85_054_464,
            bert_encoder,
            input_name="hidden",
        ),
        ZooNetwork("mlp", "Perceptron 784-512-512-10", (784,), 669_706, mlp),
    )
}


def names() -> list[str]:
    """The names of all built-in networks."""
    return list(_NETWORKS)


def describe(name: str) -> ZooNetwork:
    """What stands behind a name; raises `ModelError` for an unknown one."""
    if name in _NETWORKS:
        return _NETWORKS[name]
    near = difflib.get_close_matches(name, _NETWORKS, n=3, cutoff=0.5)
    fix = f"Did you mean {' or '.join(near)}?" if near else "`noctune zoo` lists the names."
    raise ModelError(f"there is no built-in network {name!r}", fix=fix)


def build(name: str, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """The network as ONNX; equal seeds give equal weights, whatever the batch.

    Raises `ModelError` for an unknown name, a batch below 1 or a negative seed.
    """
    network = describe(name)
    if batch < 1:
        raise ModelError(f"batch {batch} is not a batch size", where=name, fix="Give 1 or more")
    if seed < 0:
        raise ModelError(f"seed {seed} is negative", where=name, fix="Give 0 or more")
    rng = np.random.default_rng(seed)
    builder = GraphBuilder(name, network.input_name, (batch, *network.input_shape), rng)
    return builder.finish(network.layers(builder))
