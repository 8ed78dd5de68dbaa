"""MobileNets: depthwise-separable convolutions, and inverted residuals with linear bottlenecks.

Sources: Howard et al. 2017 (arXiv:1704.04861); Sandler et al. 2018 (arXiv:1801.04381), as
torchvision has it.
"""

from __future__ import annotations

from engine.zoo.builder import LINEAR_INPUT, RESIDUAL_BRANCH, GraphBuilder

SEPARABLE = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *((512, 1),) * 5,
    (1024, 2),
    (1024, 1),
)
"""Output channels and stride of each separable block of version 1."""

INVERTED = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, output channels, number of blocks, stride of the first: version 2."""


def mobilenet_v1(b: GraphBuilder) -> str:
    x = b.relu(b.batch_norm(b.conv(b.input, 32, 3, 2, 1)))
    for index, (channels, stride) in enumerate(SEPARABLE):
        with b.scope(f"block{index}"):
            x = b.relu(b.batch_norm(_depthwise(b, x, stride)))
            x = b.relu(b.batch_norm(b.conv(x, channels, 1)))
    return b.softmax(b.dense(b.flatten(b.global_avg_pool(x)), 1000))


def mobilenet_v2(b: GraphBuilder) -> str:
    x = b.relu6(b.batch_norm(b.conv(b.input, 32, 3, 2, 1)))
    index = 0
    for expansion, channels, count, first_stride in INVERTED:
        for unit in range(count):
            index += 1
            with b.scope(f"block{index}"):
                x = _inverted(b, x, expansion, channels, first_stride if unit == 0 else 1)
    x = b.relu6(b.batch_norm(b.conv(x, 1280, 1, gain=LINEAR_INPUT)))
    return b.dense(b.flatten(b.global_avg_pool(x)), 1000)


def _inverted(b: GraphBuilder, x: str, expansion: int, channels: int, stride: int) -> str:
    in_channels = b.shape(x)[1]
    residual = stride == 1 and in_channels == channels
    y = x
    if expansion != 1:
        y = b.relu6(b.batch_norm(b.conv(y, expansion * in_channels, 1, gain=LINEAR_INPUT)))
    y = b.relu6(b.batch_norm(_depthwise(b, y, stride)))
    y = b.batch_norm(b.conv(y, channels, 1, gain=RESIDUAL_BRANCH if residual else 1.0))
    return b.add(x, y) if residual else y


def _depthwise(b: GraphBuilder, x: str, stride: int) -> str:
    channels = b.shape(x)[1]
    return b.conv(x, channels, 3, stride, 1, groups=channels)
