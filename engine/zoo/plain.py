"""Networks without normalisation: VGG-16, SqueezeNet 1.1 (both as torchvision has them), an MLP.

Sources: Simonyan and Zisserman 2014 (arXiv:1409.1556); Iandola et al. 2016 (arXiv:1602.07360).
"""

from __future__ import annotations

from engine.zoo.builder import GraphBuilder

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3x3 convolutions before each pooling."""

FIRES = ((16, 64, 2), (32, 128, 2), (48, 192, 2), (64, 256, 2))
"""Squeezed channels, channels of each expansion, number of fire modules of that size."""


def vgg16(b: GraphBuilder) -> str:
    x = b.input
    for stage, (channels, count) in enumerate(VGG16, start=1):
        with b.scope(f"stage{stage}"):
            for _ in range(count):
                x = b.relu(b.conv(x, channels, 3, 1, 1, bias=True))
            x = b.max_pool(x, 2, 2)
    x = b.flatten(x)
    for _ in range(2):
        x = b.relu(b.dense(x, 4096))
    return b.dense(x, 1000)


def squeezenet(b: GraphBuilder) -> str:
    x = b.relu(b.conv(b.input, 64, 3, 2, bias=True))
    for group, (squeezed, expanded, count) in enumerate(FIRES, start=1):
        if group < 4:  # the last two sizes share one resolution
            x = b.max_pool(x, 3, 2)
        for unit in range(count):
            with b.scope(f"fire{group}.{unit}"):
                x = _fire(b, x, squeezed, expanded)
    x = b.relu(b.conv(x, 1000, 1, bias=True))
    return b.flatten(b.global_avg_pool(x))


def mlp(b: GraphBuilder) -> str:
    x = b.input
    for _ in range(2):
        x = b.relu(b.dense(x, 512))
    return b.dense(x, 10)


def _fire(b: GraphBuilder, x: str, squeezed: int, expanded: int) -> str:
    x = b.relu(b.conv(x, squeezed, 1, bias=True))
    narrow = b.relu(b.conv(x, expanded, 1, bias=True))
    wide = b.relu(b.conv(x, expanded, 3, 1, 1, bias=True))
    return b.concat([narrow, wide])
