"""Residual networks with the activation after the sum, as torchvision has them, in 2-D and 3-D.

Sources: He et al. 2015 (arXiv:1512.03385); for 1.5, with the stride in the 3x3, torchvision;
for 3-D, Tran et al. 2017 (arXiv:1711.11248).
"""

from __future__ import annotations

from engine.zoo.builder import RESIDUAL_BRANCH, GraphBuilder, Size

WIDTHS = (64, 128, 256, 512)


def resnet18(b: GraphBuilder) -> str:
    x = _image_stem(b)
    for stage, width in enumerate(WIDTHS, start=1):
        for unit in range(2):
            with b.scope(f"layer{stage}.{unit}"):
                x = _basic_block(b, x, width, _stride(stage, unit))
    return _classifier(b, x, 1000)


def resnet50(b: GraphBuilder) -> str:
    x = _image_stem(b)
    for stage, (width, units) in enumerate(zip(WIDTHS, (3, 4, 6, 3), strict=True), start=1):
        for unit in range(units):
            with b.scope(f"layer{stage}.{unit}"):
                x = _bottleneck(b, x, width, _stride(stage, unit))
    return _classifier(b, x, 1000)


def resnet3d18(b: GraphBuilder) -> str:
    x = _conv_bn_relu(b, b.input, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3))
    for stage, width in enumerate(WIDTHS, start=1):
        for unit in range(2):
            with b.scope(f"layer{stage}.{unit}"):
                x = _basic_block(b, x, width, _stride(stage, unit))
    return _classifier(b, x, 400)


def _stride(stage: int, unit: int) -> int:
    return 2 if stage > 1 and unit == 0 else 1


def _image_stem(b: GraphBuilder) -> str:
    return b.max_pool(_conv_bn_relu(b, b.input, 64, 7, 2, 3), 3, 2, 1)


def _basic_block(b: GraphBuilder, x: str, width: int, stride: int) -> str:
    shortcut = _shortcut(b, x, width, stride)
    y = _conv_bn_relu(b, x, width, 3, stride, 1)
    y = b.batch_norm(b.conv(y, width, 3, 1, 1, gain=RESIDUAL_BRANCH))
    return b.relu(b.add(y, shortcut))


def _bottleneck(b: GraphBuilder, x: str, width: int, stride: int) -> str:
    shortcut = _shortcut(b, x, 4 * width, stride)
    y = _conv_bn_relu(b, x, width, 1)
    y = _conv_bn_relu(b, y, width, 3, stride, 1)
    y = b.batch_norm(b.conv(y, 4 * width, 1, gain=RESIDUAL_BRANCH))
    return b.relu(b.add(y, shortcut))


def _shortcut(b: GraphBuilder, x: str, channels: int, stride: int) -> str:
    if stride == 1 and b.shape(x)[1] == channels:
        return x
    with b.scope("shortcut"):
        return b.batch_norm(b.conv(x, channels, 1, stride))


def _conv_bn_relu(
    b: GraphBuilder,
    x: str,
    channels: int,
    kernel: Size,
    stride: Size = 1,
    padding: Size = 0,
) -> str:
    return b.relu(b.batch_norm(b.conv(x, channels, kernel, stride, padding)))


def _classifier(b: GraphBuilder, x: str, classes: int) -> str:
    return b.dense(b.flatten(b.global_avg_pool(x)), classes)
