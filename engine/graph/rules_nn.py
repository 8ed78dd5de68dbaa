"""Rules for convolutions, pooling and normalisation.

In: a call.  Out: values built of the dialect in `engine.graph.canonical`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.graph.batchnorm import batch_norm
from engine.graph.builder import Builder, Call, Result, Unsupported, rule
from engine.graph.rules_math import axis_of, check_broadcast

Ints = tuple[int, ...]
rule("BatchNormalization")(batch_norm)


@rule("Conv")
def conv(b: Builder, c: Call) -> Result:
    x, w = c.inputs[0], c.inputs[1]
    group = int(c.attr("group", 1))
    _check_weight(b, c, b.shape(w)[1] * group, b.shape(w)[0] % max(group, 1))
    kernel: Ints = tuple(c.attr("kernel_shape", b.shape(w)[2:]))
    n = len(kernel)
    strides, dilations = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("dilations", (1,) * n))
    pads = _pads(c, b.shape(x)[2:], kernel, strides, dilations)
    _check_fits(b.shape(x)[2:], kernel, dilations, pads)
    y = b.emit(
        "Conv",
        x,
        w,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        group=group,
        pads=pads,
    )
    return _biased(b, y, c.input(2))


@rule("ConvTranspose")
def conv_transpose(b: Builder, c: Call) -> Result:
    x, w = c.inputs[0], c.inputs[1]
    group = int(c.attr("group", 1))
    _check_weight(b, c, b.shape(w)[0], b.shape(w)[0] % max(group, 1))
    kernel: Ints = tuple(c.attr("kernel_shape", b.shape(w)[2:]))
    n = len(kernel)
    strides, dilations = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("dilations", (1,) * n))
    pads, extra = _transposed_pads(c, b.shape(x)[2:], kernel, strides, dilations)
    y = b.emit(
        "ConvTranspose",
        x,
        w,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        group=group,
        pads=pads,
        output_padding=extra,
    )
    return _biased(b, y, c.input(2))


def _check_weight(b: Builder, c: Call, channels: int, rest: int) -> None:
    """Shape inference lets weights pass that do not fit the data; reading them would go astray."""
    shape, weight = b.shape(c.inputs[0]), b.shape(c.inputs[1])
    if len(shape) != len(weight) or len(shape) < 3:
        raise Unsupported(f"weights {list(weight)} for data {list(shape)}")
    if int(c.attr("group", 1)) < 1 or rest or channels != shape[1]:
        groups = f"{c.attr('group', 1)} groups"
        raise Unsupported(f"weights {list(weight)} in {groups} for {shape[1]} channels of data")
    kernel = tuple(c.attr("kernel_shape", weight[2:]))
    if kernel != weight[2:]:
        raise Unsupported(f"kernel_shape {list(kernel)} for weights {list(weight)}")


def _check_fits(spatial: Ints, kernel: Ints, dilations: Ints, pads: Ints) -> None:
    """Shape inference rounds towards one output cell where a window is longer than the data."""
    n = len(kernel)
    for i, size in enumerate(spatial):
        if size and (kernel[i] - 1) * dilations[i] + 1 > size + pads[i] + pads[n + i]:
            raise Unsupported(f"a window {list(kernel)} is longer than the data {list(spatial)}")


def _biased(b: Builder, y: str, bias: str) -> str:
    """The bias as an Add along channels."""
    if not bias:
        return y
    return b.emit("Add", y, b.reshape(bias, (b.shape(y)[1], *_ones(b, y))))


def _ones(b: Builder, y: str) -> Ints:
    return (1,) * (b.rank(y) - 2)


def _pads(c: Call, spatial: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> Ints:
    """Explicit padding, begins then ends (ONNX operators, auto_pad)."""
    mode, n = c.attr("auto_pad", "NOTSET"), len(kernel)
    if mode in ("NOTSET", ""):
        return tuple(c.attr("pads", (0,) * 2 * n))
    if mode == "VALID":
        return (0,) * 2 * n
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad '{mode}' is unknown")
    begins, ends = [], []
    for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return (*begins, *ends)


def _transposed_pads(
    c: Call, spatial: Ints, kernel: Ints, strides: Ints, dilations: Ints
) -> tuple[Ints, Ints]:
    """Explicit (pads, output_padding) of a ConvTranspose (ONNX operators, ConvTranspose)."""
    mode, n = c.attr("auto_pad", "NOTSET"), len(kernel)
    extra: Ints = tuple(c.attr("output_padding", (0,) * n))
    wanted = tuple(c.attr("output_shape", ()))[-n:]
    if not wanted and mode in ("NOTSET", "", "VALID"):
        zero = (0,) * 2 * n
        return (zero if mode == "VALID" else tuple(c.attr("pads", zero))), extra
    if not wanted:
        wanted = tuple(size * s for size, s in zip(spatial, strides, strict=True))
    begins, ends, outside = [], [], []
    for i in range(n):
        full = strides[i] * (spatial[i] - 1) + (kernel[i] - 1) * dilations[i] + 1 + extra[i]
        total = full - wanted[i]
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
        outside.append(extra[i] + max(-total, 0))
    return (*begins, *ends), tuple(outside)


# pooling ---------------------------------------------------------------------------------------
@rule("MaxPool", "AveragePool")
def pool(b: Builder, c: Call) -> Result | None:
    """Padding made explicit; cells that ceil_mode adds beyond it never count in an average."""
    if c.uses(1):
        return None
    x, kernel = c.inputs[0], tuple(c.attrs["kernel_shape"])
    n, spatial = len(kernel), b.shape(c.inputs[0])[2:]
    strides, dilations = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("dilations", (1,) * n))
    pads = _pads(c, spatial, kernel, strides, dilations)
    if any(p > (k - 1) * d for p, k, d in zip(pads, 2 * kernel, 2 * dilations, strict=True)):
        raise Unsupported(f"pads {list(pads)} are as large as the window {list(kernel)}")
    if not c.attr("ceil_mode", 0):
        _check_fits(spatial, kernel, dilations, pads)
    over = _overhang(c, spatial, kernel, strides, dilations, pads)
    if kernel == spatial and not any((*pads, *over)) and set(dilations) == {1}:
        return b.emit(f"Global{c.op}", x)
    include = int(c.attr("count_include_pad", 0))
    if include and any(over):
        x, pads, include = _zero_pad(b, x, pads), (0,) * 2 * n, 0
    pads = (*pads[:n], *(p + o for p, o in zip(pads[n:], over, strict=True)))
    common = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if c.op == "MaxPool":
        return b.emit("MaxPool", x, **common)
    return b.emit("AveragePool", x, **common, count_include_pad=include)


def _overhang(
    c: Call, spatial: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints
) -> list[int]:
    """Cells by which the last window of ceil_mode leaves the padded input, for each axis."""
    n = len(kernel)
    if not c.attr("ceil_mode", 0):
        return [0] * n
    over = []
    for i in range(n):
        reach, window = spatial[i] + pads[i] + pads[n + i], (kernel[i] - 1) * dilations[i] + 1
        last = -(-(reach - window) // strides[i])
        if last * strides[i] >= spatial[i] + pads[i]:
            last -= 1  # a window must begin inside the input or the padding before it
        over.append(max(last * strides[i] + window - reach, 0))
    return over


def _zero_pad(b: Builder, x: str, pads: Sequence[int]) -> str:
    n = len(pads) // 2
    if not any(pads):
        return x
    full = (0, 0, *pads[:n], 0, 0, *pads[n:])
    return b.emit("Pad", x, pads=full, mode="constant", value=0.0)


@rule("GlobalAveragePool", "GlobalMaxPool")
def global_pool(b: Builder, c: Call) -> Result:
    return b.emit(c.op, c.inputs[0])


@rule("GlobalLpPool")
def global_norm(b: Builder, c: Call) -> Result:
    """(sum of |x| ** p) ** (1 / p) over all spatial axes"""
    x, p = c.inputs[0], float(c.attr("p", 2))
    axes = tuple(range(2, b.rank(x)))
    powers = b.emit("Mul", x, x) if p == 2 else b.emit("Abs", x)
    if p not in (1, 2):
        powers = b.emit("Pow", powers, b.like(x, p))
    total = b.emit("ReduceSum", powers, axes=axes, keepdims=1)
    if p == 2:
        return b.emit("Sqrt", total)
    return total if p == 1 else b.emit("Pow", total, b.like(x, 1 / p))


# normalisation ---------------------------------------------------------------------------------
@rule("LayerNormalization")
def layer_norm(b: Builder, c: Call) -> Result | None:
    if c.uses(1) or c.uses(2):
        return None
    axis = axis_of(c.attr("axis", -1), b.rank(c.inputs[0]))
    for name in filter(None, c.inputs[1:]):
        check_broadcast(b, "scale or bias", name, b.shape(c.inputs[0])[axis:])
    return b.emit(
        "LayerNormalization",
        c.inputs[0],
        c.inputs[1],
        *([c.input(2)] if c.input(2) else []),
        axis=axis,
        epsilon=c.attr("epsilon", 1e-5),
    )


@rule("InstanceNormalization")
def instance_norm(b: Builder, c: Call) -> Result:
    """A group normalisation with one channel in a group."""
    x = c.inputs[0]
    groups, epsilon = b.shape(x)[1], c.attr("epsilon", 1e-5)
    _check_vectors(b, c, groups)
    return b.emit("GroupNormalization", *c.inputs, num_groups=groups, epsilon=epsilon)


@rule("GroupNormalization")
def group_norm(b: Builder, c: Call) -> Result | None:
    """Before operator set 21 there was one scale for each group."""
    x, scale, bias = c.inputs
    groups, epsilon = int(c.attrs["num_groups"]), c.attr("epsilon", 1e-5)
    channels = b.shape(x)[1]
    if groups < 1 or channels % groups:
        raise Unsupported(f"{channels} channels in {groups} groups")
    _check_vectors(b, c, groups if c.opset < 21 else channels)
    if c.opset < 21:
        scale, bias = (_per_channel(b, name, groups, channels) for name in (scale, bias))
    return b.emit("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=epsilon)


def _check_vectors(b: Builder, c: Call, size: int) -> None:
    """Raises Unsupported unless scale and bias are vectors of that size."""
    for name in c.inputs[1:3]:
        if b.shape(name) != (size,):
            raise Unsupported(f"a scale or bias {list(b.shape(name))} where [{size}] is needed")


def _per_channel(b: Builder, name: str, groups: int, channels: int) -> str:
    column = b.reshape(name, (groups, 1))
    each = channels // groups
    wide = column if each == 1 else b.emit("Expand", column, shape=(groups, each))
    return b.reshape(wide, (channels,))


@rule("LRN")
def local_response(b: Builder, c: Call) -> Result:
    """x / (bias + alpha * mean of squares over `size` channels) ** beta

    The window is an average pool along channels that counts the padding; an even size reaches
    one channel further up than down.  The common case,
    four axes and an odd size, has an operator of the dialect.
    """
    x, size = c.inputs[0], int(c.attrs["size"])
    if b.rank(x) == 4 and size % 2:
        more = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
        return b.emit("LRN", x, size=size, **{k: float(c.attr(k, v)) for k, v in more.items()})
    shape = b.shape(x)
    rest = int(np.prod(shape[2:], dtype=np.int64))
    squares = b.reshape(b.emit("Mul", x, x), (shape[0], 1, shape[1], rest))
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    mean = b.emit(
        "AveragePool",
        squares,
        kernel_shape=(size, 1),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(low, 0, high, 0),
        count_include_pad=1,
    )
    scaled = b.emit("Mul", b.reshape(mean, shape), b.like(x, c.attr("alpha", 1e-4)))
    base = b.emit("Add", scaled, b.like(x, c.attr("bias", 1.0)))
    return b.emit("Div", x, b.emit("Pow", base, b.like(x, c.attr("beta", 0.75))))
