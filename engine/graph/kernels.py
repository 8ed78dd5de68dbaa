"""Convolution and pooling in plain NumPy, for any number of spatial axes.

In: a node of the dialect and its arrays.  Out: its result.  They stand in for the onnx package's
reference operators, which are wrong for grouped transposed convolutions and for global maxima
outside two dimensions, and slow.  Every kernel runs over the window's cells and treats all
output positions of a cell at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Attrs = Mapping[str, Any]
Cell = tuple[tuple[int, ...], tuple[slice, ...]]


def conv(attrs: Attrs, x: Array, w: Array) -> Array:
    """x[N,C,*], w[M,C/group,*] -> [N,M,*]"""
    group = attrs["group"]
    out = _spatial_out(attrs, x)
    padded = _padded(attrs, x, 0).reshape(x.shape[0], group, x.shape[1] // group, *_grown(attrs, x))
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    y = np.zeros((x.shape[0], group, w.shape[0] // group, int(np.prod(out))), x.dtype)
    for offset, window in _cells(attrs, out):
        part = padded[_at(window)].reshape(*padded.shape[:3], -1)
        y += np.matmul(weights[_at(offset)], part)
    return y.reshape(x.shape[0], w.shape[0], *out)


def conv_transpose(attrs: Attrs, x: Array, w: Array) -> Array:
    """x[N,C,*], w[C,M/group,*] -> [N,M,*]"""
    group, n, spatial = attrs["group"], len(attrs["kernel_shape"]), x.shape[2:]
    full = [
        (spatial[i] - 1) * attrs["strides"][i]
        + (attrs["kernel_shape"][i] - 1) * attrs["dilations"][i]
        + 1
        + attrs["output_padding"][i]
        for i in range(n)
    ]
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    flat = x.reshape(x.shape[0], group, x.shape[1] // group, -1)
    y = np.zeros((x.shape[0], group, w.shape[1], *full), x.dtype)
    for offset, window in _cells(attrs, spatial):
        part = np.matmul(weights[_at(offset)].swapaxes(1, 2), flat)
        y[_at(window)] += part.reshape(*part.shape[:3], *spatial)
    pads = attrs["pads"]
    inner = tuple(slice(pads[i], full[i] - pads[n + i]) for i in range(n))
    whole = y.reshape(x.shape[0], group * w.shape[1], *full)
    return np.asarray(whole[_at(inner)])


def max_pool(attrs: Attrs, x: Array) -> Array:
    """Maximum of each window; padding never wins."""
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    out = _spatial_out(attrs, x)
    padded = _padded(attrs, x, low)
    y = np.full((*x.shape[:2], *out), low, x.dtype)
    for _, window in _cells(attrs, out):
        np.maximum(y, padded[_at(window)], out=y)
    return y


def average_pool(attrs: Attrs, x: Array) -> Array:
    """Mean of each window, over the padding too if count_include_pad."""
    out = _spatial_out(attrs, x)
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    padded = _padded(attrs, x, 0)
    counted = _padded(attrs, ones, 1 if attrs["count_include_pad"] else 0)
    total, count = np.zeros((*x.shape[:2], *out), x.dtype), np.zeros((1, 1, *out), x.dtype)
    for _, window in _cells(attrs, out):
        total += padded[_at(window)]
        count += counted[_at(window)]
    return np.asarray(total / count, x.dtype)


def global_average_pool(attrs: Attrs, x: Array) -> Array:
    """Mean over all spatial axes, which stay as 1."""
    return np.asarray(x.mean(axis=tuple(range(2, x.ndim)), keepdims=True))


def global_max_pool(attrs: Attrs, x: Array) -> Array:
    """Maximum over all spatial axes, which stay as 1."""
    return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))


KERNELS: dict[str, Callable[..., Array]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
}


def _at(cells: Any) -> Any:
    """An index of the trailing axes."""
    return (..., *cells)


def _grown(attrs: Attrs, x: Array) -> tuple[int, ...]:
    """Spatial sizes with padding."""
    n, pads = x.ndim - 2, attrs["pads"]
    return tuple(x.shape[2 + i] + pads[i] + pads[n + i] for i in range(n))


def _padded(attrs: Attrs, x: Array, value: float) -> Array:
    n, pads = x.ndim - 2, attrs["pads"]
    widths = [(0, 0), (0, 0), *((pads[i], pads[n + i]) for i in range(n))]
    return np.pad(x, widths, constant_values=value) if any(pads) else x


def _spatial_out(attrs: Attrs, x: Array) -> tuple[int, ...]:
    return tuple(
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(
            _grown(attrs, x),
            attrs["kernel_shape"],
            attrs["dilations"],
            attrs["strides"],
            strict=True,
        )
    )


def _cells(attrs: Attrs, positions: tuple[int, ...]) -> Iterator[Cell]:
    """Each cell of the window with the slices that it covers over all positions."""
    strides, dilations = attrs["strides"], attrs["dilations"]
    for offset in product(*map(range, attrs["kernel_shape"])):
        starts = [o * d for o, d in zip(offset, dilations, strict=True)]
        yield (
            offset,
            tuple(
                slice(start, start + (count - 1) * s + 1, s)
                for start, count, s in zip(starts, positions, strides, strict=True)
            ),
        )
