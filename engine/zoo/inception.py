"""Inception v3 as torchvision evaluates it: 299x299 images, no auxiliary classifier.

Source: Szegedy et al. 2015 (arXiv:1512.00567).  Each block concatenates branches; `a` to `e` are
the paper's block kinds in the order of the network.
"""

from __future__ import annotations

from engine.zoo.builder import GraphBuilder, Size

EPSILON = 1e-3
WIDE, TALL = (1, 7), (7, 1)


def inception_v3(b: GraphBuilder) -> str:
    x = _stem(b)
    for index, pool_channels in enumerate((32, 64, 64)):
        with b.scope(f"a{index}"):
            x = _block_a(b, x, pool_channels)
    with b.scope("b0"):
        x = _block_b(b, x)
    for index, width in enumerate((128, 160, 160, 192)):
        with b.scope(f"c{index}"):
            x = _block_c(b, x, width)
    with b.scope("d0"):
        x = _block_d(b, x)
    for index in range(2):
        with b.scope(f"e{index}"):
            x = _block_e(b, x)
    return b.dense(b.flatten(b.global_avg_pool(x)), 1000)


def _stem(b: GraphBuilder) -> str:
    x = _conv(b, b.input, 32, 3, 2)
    x = _conv(b, x, 32, 3)
    x = _conv(b, x, 64, 3, padding=1)
    x = b.max_pool(x, 3, 2)
    x = _conv(b, x, 80, 1)
    x = _conv(b, x, 192, 3)
    return b.max_pool(x, 3, 2)


def _block_a(b: GraphBuilder, x: str, pool_channels: int) -> str:
    single = _conv(b, x, 64, 1)
    five = _conv(b, _conv(b, x, 48, 1), 64, 5, padding=2)
    double = _conv(b, _conv(b, x, 64, 1), 96, 3, padding=1)
    double = _conv(b, double, 96, 3, padding=1)
    return b.concat([single, five, double, _pooled(b, x, pool_channels)])


def _block_b(b: GraphBuilder, x: str) -> str:
    three = _conv(b, x, 384, 3, 2)
    double = _conv(b, _conv(b, x, 64, 1), 96, 3, padding=1)
    double = _conv(b, double, 96, 3, 2)
    return b.concat([three, double, b.max_pool(x, 3, 2)])


def _block_c(b: GraphBuilder, x: str, width: int) -> str:
    single = _conv(b, x, 192, 1)
    seven = _seven(b, _conv(b, x, width, 1), WIDE, width)
    seven = _seven(b, seven, TALL, 192)
    double = _conv(b, x, width, 1)
    for kernel, channels in ((TALL, width), (WIDE, width), (TALL, width), (WIDE, 192)):
        double = _seven(b, double, kernel, channels)
    return b.concat([single, seven, double, _pooled(b, x, 192)])


def _block_d(b: GraphBuilder, x: str) -> str:
    three = _conv(b, _conv(b, x, 192, 1), 320, 3, 2)
    seven = _seven(b, _conv(b, x, 192, 1), WIDE, 192)
    seven = _conv(b, _seven(b, seven, TALL, 192), 192, 3, 2)
    return b.concat([three, seven, b.max_pool(x, 3, 2)])


def _block_e(b: GraphBuilder, x: str) -> str:
    single = _conv(b, x, 320, 1)
    split = _split(b, _conv(b, x, 384, 1))
    double = _conv(b, _conv(b, x, 448, 1), 384, 3, padding=1)
    return b.concat([single, split, _split(b, double), _pooled(b, x, 192)])


def _split(b: GraphBuilder, x: str) -> str:
    wide = _conv(b, x, 384, (1, 3), padding=(0, 1))
    tall = _conv(b, x, 384, (3, 1), padding=(1, 0))
    return b.concat([wide, tall])


def _pooled(b: GraphBuilder, x: str, channels: int) -> str:
    return _conv(b, b.avg_pool(x, 3, 1, 1), channels, 1)


def _seven(b: GraphBuilder, x: str, kernel: tuple[int, int], channels: int) -> str:
    return _conv(b, x, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2))


def _conv(
    b: GraphBuilder, x: str, channels: int, kernel: Size, stride: Size = 1, padding: Size = 0
) -> str:
    return b.relu(b.batch_norm(b.conv(x, channels, kernel, stride, padding), EPSILON))
