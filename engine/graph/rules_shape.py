"""Rules for operators that move data or speak of shapes.

In: a call.  Out: values built of the dialect in `engine.graph.canonical`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.graph.builder import Array, Builder, Call, Result, Unsupported, rule
from engine.graph.rules_math import axis_of

_CONSTANT_KINDS: dict[str, Callable[[Any], Array]] = {
    "value": lambda v: v,
    "sparse_value": lambda v: v,
    "value_float": lambda v: np.asarray(v, np.float32),
    "value_floats": lambda v: np.asarray(v, np.float32),
    "value_int": lambda v: np.asarray(v, np.int64),
    "value_ints": lambda v: np.asarray(v, np.int64),
    "value_string": lambda v: np.asarray(v, object),
    "value_strings": lambda v: np.asarray(v, object),
}


# constants and shapes --------------------------------------------------------------------------
@rule("Constant")
def constant(b: Builder, c: Call) -> Result:
    for key, convert in _CONSTANT_KINDS.items():
        if key in c.attrs:
            return b.constant(convert(c.attrs[key]))
    raise Unsupported("it holds no value")


@rule("Shape")
def shape_of(b: Builder, c: Call) -> Result:
    shape = b.shape(c.inputs[0])
    part = shape[slice(c.attr("start", 0), c.attr("end", None))]
    return b.constant(np.asarray(part, np.int64))


@rule("Size")
def size_of(b: Builder, c: Call) -> Result:
    return b.constant(np.asarray(np.prod(b.shape(c.inputs[0]), dtype=np.int64), np.int64))


@rule("ConstantOfShape")
def constant_of_shape(b: Builder, c: Call) -> Result:
    value = np.asarray(c.attr("value", np.zeros(1, np.float32))).reshape(())
    return b.emit("Expand", b.constant(value), shape=b.ints(c.inputs[0], "shape"))


@rule("EyeLike")
def eye_like(b: Builder, c: Call) -> Result | None:
    if "dtype" in c.attrs:
        return None
    rows, columns = b.shape(c.inputs[0])
    return b.constant(np.eye(rows, columns, c.attr("k", 0), b.dtype(c.inputs[0])))


@rule("Reshape")
def reshape(b: Builder, c: Call) -> Result:
    x, want = c.inputs[0], list(b.ints(c.inputs[1], "shape"))
    have = b.shape(x)
    if not c.attr("allowzero", 0):
        if any(d == 0 and i >= len(have) for i, d in enumerate(want)):
            raise Unsupported(f"{list(have)} cannot take the shape {want}")
        want = [have[i] if d == 0 else d for i, d in enumerate(want)]
    if -1 in want:
        known = int(np.prod([d for d in want if d != -1], dtype=np.int64))
        total = int(np.prod(have, dtype=np.int64))
        if want.count(-1) > 1 or known == 0 or total % known:
            raise Unsupported(f"{list(have)} cannot take the shape {want}")
        want[want.index(-1)] = total // known
    if min(want, default=0) < 0:
        raise Unsupported(f"{list(have)} cannot take the shape {want}")
    return b.reshape(x, want)


@rule("Flatten")
def flatten(b: Builder, c: Call) -> Result:
    shape, axis = b.shape(c.inputs[0]), int(c.attr("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        raise Unsupported(f"axis {axis} is out of range for {len(shape)} dimensions")
    axis = axis + len(shape) if axis < 0 else axis
    sides = (np.prod(side, dtype=np.int64) for side in (shape[:axis], shape[axis:]))
    return b.reshape(c.inputs[0], [int(s) for s in sides])


def _axes(b: Builder, c: Call) -> tuple[int, ...] | None:
    if c.opset >= 13:
        return b.ints(c.input(1), "list of axes") if c.input(1) else None
    return tuple(c.attrs["axes"]) if "axes" in c.attrs else None


@rule("Squeeze")
def squeeze(b: Builder, c: Call) -> Result:
    shape, axes = b.shape(c.inputs[0]), _axes(b, c)
    if axes is None:
        return b.reshape(c.inputs[0], [d for d in shape if d != 1])
    gone = {axis_of(a, len(shape)) for a in axes}
    if any(shape[a] != 1 for a in gone):
        raise Unsupported(f"axes {list(axes)} of {list(shape)} are not all 1")
    return b.reshape(c.inputs[0], [d for i, d in enumerate(shape) if i not in gone])


@rule("Unsqueeze")
def unsqueeze(b: Builder, c: Call) -> Result:
    shape, axes = list(b.shape(c.inputs[0])), _axes(b, c) or ()
    for axis in sorted(axis_of(a, len(shape) + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return b.reshape(c.inputs[0], shape)


@rule("Transpose")
def transpose(b: Builder, c: Call) -> Result:
    rank = b.rank(c.inputs[0])
    perm = tuple(axis_of(p, rank) for p in c.attr("perm", tuple(reversed(range(rank)))))
    return b.transpose(c.inputs[0], perm)


@rule("DepthToSpace", "SpaceToDepth")
def depth_space(b: Builder, c: Call) -> Result:
    """Reshape, Transpose, Reshape"""
    x, block = c.inputs[0], int(c.attrs["blocksize"])
    n, channels, height, width = b.shape(x)
    parts_of = (height, width) if c.op == "SpaceToDepth" else (channels,)
    unit = block if c.op == "SpaceToDepth" else block * block
    if block < 1 or any(size % unit for size in parts_of):
        raise Unsupported(f"blocks of {block} do not fit {list(b.shape(x))}")
    if c.op == "SpaceToDepth":
        parts = (n, channels, height // block, block, width // block, block)
        y = b.transpose(b.reshape(x, parts), (0, 3, 5, 1, 2, 4))
        return b.reshape(y, (n, channels * block * block, height // block, width // block))
    depth = channels // (block * block)
    if c.attr("mode", "DCR") == "DCR":
        y = b.reshape(x, (n, block, block, depth, height, width))
        y = b.transpose(y, (0, 3, 4, 1, 5, 2))
    else:
        y = b.reshape(x, (n, depth, block, block, height, width))
        y = b.transpose(y, (0, 1, 4, 2, 5, 3))
    return b.reshape(y, (n, depth, height * block, width * block))


# copies ----------------------------------------------------------------------------------------
@rule("Expand")
def expand(b: Builder, c: Call) -> Result:
    x, want = c.inputs[0], b.ints(c.inputs[1], "shape")
    shape = tuple(int(d) for d in np.broadcast_shapes(b.shape(x), want))
    return x if shape == b.shape(x) else b.emit("Expand", x, shape=shape)


@rule("Scatter", "ScatterElements")
def scatter(b: Builder, c: Call) -> Result:
    """The old name of ScatterElements"""
    axis = axis_of(c.attr("axis", 0), b.rank(c.inputs[0]))
    return b.emit("ScatterElements", *c.inputs, axis=axis, reduction=c.attr("reduction", "none"))


@rule("Tile")
def tile(b: Builder, c: Call) -> Result:
    repeats = b.ints(c.inputs[1], "list of repeats")
    return c.inputs[0] if set(repeats) <= {1} else b.emit("Tile", c.inputs[0], repeats=repeats)


@rule("Concat")
def concat(b: Builder, c: Call) -> Result:
    axis = axis_of(c.attrs["axis"], b.rank(c.inputs[0]))
    parts = [name for name in c.inputs if b.shape(name)[axis]] or list(c.inputs[:1])
    return parts[0] if len(parts) == 1 else b.emit("Concat", *parts, axis=axis)


@rule("Gather")
def gather(b: Builder, c: Call) -> Result:
    """One constant index is a Slice without its axis."""
    x, indices, axis = c.inputs[0], c.inputs[1], axis_of(c.attr("axis", 0), b.rank(c.inputs[0]))
    shape, index = b.shape(x), b.const(c.inputs[1])
    if index is None or index.ndim or b.const(x) is not None:
        return b.emit("Gather", x, indices, axis=axis)
    at = axis_index(int(index), shape[axis])
    one = slice_values(b, x, {axis: (at, at + 1, 1)})
    return b.reshape(one, shape[:axis] + shape[axis + 1 :])


def axis_index(index: int, size: int) -> int:
    if not -size <= index < size:
        raise Unsupported(f"index {index} is out of range for {size} elements")
    return index % size


# slices ----------------------------------------------------------------------------------------
Ranges = dict[int, tuple[int, int, int]]


def slice_values(b: Builder, x: str, ranges: Ranges) -> str:
    """A Slice by (start, end, step) per axis; axes that are taken whole are left out."""
    shape = b.shape(x)
    kept = {a: r for a, r in sorted(ranges.items()) if r != (0, shape[a], 1)}
    if not kept:
        return x
    starts, ends, steps = zip(*kept.values(), strict=True)
    return b.emit("Slice", x, starts=starts, ends=ends, axes=tuple(kept), steps=steps)


@rule("Slice")
def slice_(b: Builder, c: Call) -> Result:
    x, shape = c.inputs[0], b.shape(c.inputs[0])
    if c.opset < 10:
        starts, ends = tuple(c.attrs["starts"]), tuple(c.attrs["ends"])
        axes, steps = c.attr("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = b.ints(c.inputs[1], "starts"), b.ints(c.inputs[2], "ends")
        axes = b.ints(c.input(3), "axes") if c.input(3) else range(len(starts))
        steps = b.ints(c.input(4), "steps") if c.input(4) else (1,) * len(starts)
    ranges: Ranges = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(axis, len(shape))
        ranges[axis] = _range(start, end, step, shape[axis])
    return slice_values(b, x, ranges)


def _range(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    """Clamped as Python does; the end is exactly start + count * step."""
    if step == 0:
        raise Unsupported("its step is 0")
    picked = range(*slice(start, end, step).indices(size))
    if not len(picked):
        return 0, 0, 1
    if len(picked) == 1:
        return picked[0], picked[0] + 1, 1
    last = picked[-1] + (1 if step > 0 else -1)
    return picked[0], last, step


@rule("Split")
def split(b: Builder, c: Call) -> Result:
    """One Slice per part"""
    x, count = c.inputs[0], len(c.outputs)
    axis = axis_of(c.attr("axis", 0), b.rank(x))
    size = b.shape(x)[axis]
    if c.opset >= 13:
        parts = b.ints(c.input(1), "list of sizes") if c.input(1) else ()
    else:
        parts = tuple(c.attr("split", ()))
    if not parts:
        step = -(-size // count)
        parts = tuple(max(min(step, size - i * step), 0) for i in range(count))
    if sum(parts) != size or len(parts) != count or min(parts) < 0:
        raise Unsupported(f"{size} elements cannot be split into {list(parts)}")
    edges = [sum(parts[:i]) for i in range(count + 1)]
    return [slice_values(b, x, {axis: (edges[i], edges[i + 1], 1)}) for i in range(count)]


# padding and resizing --------------------------------------------------------------------------
@rule("Pad")
def pad(b: Builder, c: Call) -> Result:
    """Negative padding is a Slice; the rest an explicit Pad."""
    x, rank, mode = c.inputs[0], b.rank(c.inputs[0]), c.attr("mode", "constant")
    value: Any = 0
    if c.opset < 11:
        pads, value = list(c.attrs["pads"]), c.attr("value", 0.0)
    else:
        pads = list(b.ints(c.inputs[1], "padding"))
        if c.input(2):
            value = _one(b, c.input(2))
        if c.input(3):
            pads = _spread(b.ints(c.input(3), "axes"), pads, rank)
    cut = {i: (max(-pads[i], 0), b.shape(x)[i] - max(-pads[rank + i], 0), 1) for i in range(rank)}
    x = slice_values(b, x, cut)
    grown = tuple(max(p, 0) for p in pads)
    return b.emit("Pad", x, pads=grown, mode=mode, value=value) if any(grown) else x


def _one(b: Builder, name: str) -> Any:
    array = b.const(name)
    if array is None:
        raise Unsupported("the fill value must be constant, not computed from the input data")
    return array.reshape(-1)[0].item() if array.size else 0


def _spread(axes: Sequence[int], values: Sequence[int], rank: int) -> list[int]:
    """Pads given for some axes only, as pads of all axes."""
    full = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        full[axis_of(axis, rank)] = values[i]
        full[rank + axis_of(axis, rank)] = values[len(axes) + i]
    return full


@rule("Upsample")
def upsample(b: Builder, c: Call) -> Result:
    """The forerunner of Resize: asymmetric coordinates, rounded down."""
    scales = c.attrs["scales"] if c.opset < 9 else _floats(b, c.inputs[1])
    return _resize(b, c, tuple(scales), (), "asymmetric", "floor", ())


@rule("Resize")
def resize(b: Builder, c: Call) -> Result:
    shape = b.shape(c.inputs[0])
    if c.opset < 11:
        return _resize(b, c, _floats(b, c.inputs[1]), (), "asymmetric", "floor", ())
    axes = [axis_of(a, len(shape)) for a in c.attr("axes", range(len(shape)))]
    roi = _floats(b, c.input(1)) if c.input(1) else ()
    sizes: tuple[int, ...] = ()
    if c.input(3) and b.shape(c.input(3)) != (0,):
        chosen = b.ints(c.input(3), "size")
        sizes, scales = _sizes(c, shape, axes, chosen)
    else:
        scales = list(np.ones(len(shape)))
        for axis, scale in zip(axes, _floats(b, c.input(2)), strict=True):
            scales[axis] = scale
    mode = c.attr("coordinate_transformation_mode", "half_pixel")
    if mode != "tf_crop_and_resize":
        roi = ()
    elif len(roi) != 2 * len(shape):
        roi = _spread_roi(roi, axes, len(shape))
    nearest = c.attr("nearest_mode", "round_prefer_floor")
    return _resize(b, c, tuple(scales), sizes, mode, nearest, roi)


def _sizes(
    c: Call, shape: Sequence[int], axes: Sequence[int], chosen: Sequence[int]
) -> tuple[tuple[int, ...], list[float]]:
    """Whole output sizes and the scales they imply (ONNX operators, Resize)."""
    policy, sizes, scales = c.attr("keep_aspect_ratio_policy", "stretch"), list(shape), None
    if policy != "stretch":
        ratios = [size / shape[axis] for axis, size in zip(axes, chosen, strict=True)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        chosen = [int(np.floor(scale * shape[axis] + 0.5)) for axis in axes]
        scales = [scale if i in axes else 1.0 for i in range(len(shape))]
    for axis, size in zip(axes, chosen, strict=True):
        sizes[axis] = size
    if scales is None:
        scales = [n / o if o else 1.0 for n, o in zip(sizes, shape, strict=True)]
    return tuple(sizes), scales


def _spread_roi(roi: Sequence[float], axes: Sequence[int], rank: int) -> tuple[float, ...]:
    full = [0.0] * rank + [1.0] * rank
    for i, axis in enumerate(axes):
        full[axis], full[rank + axis] = roi[i], roi[len(axes) + i]
    return tuple(full)


def _floats(b: Builder, name: str) -> tuple[float, ...]:
    array: Array | None = b.const(name)
    if array is None:
        raise Unsupported("the scales must be constant, not computed from the input data")
    return tuple(float(v) for v in array.reshape(-1))


def _resize(
    b: Builder,
    c: Call,
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
    coordinates: str,
    nearest: str,
    roi: tuple[float, ...],
) -> str:
    if set(scales) == {1.0} and not roi:
        return c.inputs[0]
    return b.emit(
        "Resize",
        c.inputs[0],
        mode=c.attr("mode", "nearest"),
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
        cubic_coeff_a=c.attr("cubic_coeff_a", -0.75),
        exclude_outside=int(c.attr("exclude_outside", 0)),
        extrapolation_value=c.attr("extrapolation_value", 0.0),
        antialias=int(c.attr("antialias", 0)),
        scales=scales,
        sizes=sizes,
        roi=roi,
    )
