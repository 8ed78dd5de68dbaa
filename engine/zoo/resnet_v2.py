"""Residual networks with the activation before the convolution (He et al. 2016, arXiv:1603.05027).

The input passes a normalisation without scale; a bottleneck has its stride in the first 1x1; the
first unit of every stage has a 1x1 shortcut on its activated input; softmax ends the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.zoo.builder import BEFORE_SOFTMAX, RESIDUAL_BRANCH, GraphBuilder

UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
WIDTHS = (64, 128, 256, 512)
EPSILON = 2e-5


def resnet_v2(b: GraphBuilder, depth: int) -> str:
    """`depth` is a key of `UNITS`; from 50 on the units are bottlenecks."""
    x = b.scale_norm(b.input, EPSILON)
    x = _bn_relu(b, b.conv(x, 64, 7, 2, 3))
    x = b.max_pool(x, 3, 2, 1)
    x = _stages(b, x, UNITS[depth], bottleneck=depth >= 50)
    x = b.global_avg_pool(_bn_relu(b, x))
    return b.softmax(b.dense(b.flatten(x), 1000, BEFORE_SOFTMAX))


def _stages(b: GraphBuilder, x: str, units: Sequence[int], *, bottleneck: bool) -> str:
    for stage, (width, count) in enumerate(zip(WIDTHS, units, strict=True), start=1):
        for unit in range(count):
            stride = 2 if stage > 1 and unit == 0 else 1
            with b.scope(f"stage{stage}.unit{unit + 1}"):
                x = _unit(b, x, width, stride, first=unit == 0, bottleneck=bottleneck)
    return x


def _unit(
    b: GraphBuilder, x: str, width: int, stride: int, *, first: bool, bottleneck: bool
) -> str:
    channels = 4 * width if bottleneck else width
    activated = _bn_relu(b, x)
    shortcut = _shortcut(b, activated, channels, stride) if first else x
    if bottleneck:
        y = _bn_relu(b, b.conv(activated, width, 1, stride))
        y = _bn_relu(b, b.conv(y, width, 3, 1, 1))
        y = b.conv(y, channels, 1, gain=RESIDUAL_BRANCH)
    else:
        y = _bn_relu(b, b.conv(activated, width, 3, stride, 1))
        y = b.conv(y, channels, 3, 1, 1, gain=RESIDUAL_BRANCH)
    return b.add(y, shortcut)


def _shortcut(b: GraphBuilder, activated: str, channels: int, stride: int) -> str:
    with b.scope("shortcut"):
        return b.conv(activated, channels, 1, stride)


def _bn_relu(b: GraphBuilder, x: str) -> str:
    return b.relu(b.batch_norm(x, EPSILON))
