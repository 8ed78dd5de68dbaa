"""Operators that move elements: a stage that reads one element of the source for each of its own.

In: one operand.  Out: one stage.  Reshape, Concat and Split are views or copies that the layout
planner makes (`identity` is the copy).
"""

from __future__ import annotations

from engine.expr import Affine, Axis, Read, Stage, var
from engine.ops.conv import leaves
from engine.ops.registry import Call, Case, Kind, Stages, operator


def _axes(call: Call) -> tuple[Axis, ...]:
    return tuple(Axis(a, e) for a, e in zip(call.axes, call.shape, strict=True))


@operator("Identity", Kind.COPY, cases=(Case(((2, 3, 4, 5),)), Case(((7,),))))
def identity(call: Call) -> Stages:
    """The copy of a tensor, from one layout to another."""
    axes = _axes(call)
    body = Read(call.operand(0).tensor, tuple(var(a.name) for a in axes))
    return (Stage(call.namer.unique("copy"), axes, body),)


@operator(
    "Transpose",
    Kind.COPY,
    cases=(
        Case(((2, 3, 4),), {"perm": (1, 0, 2)}),
        Case(((2, 3, 4, 5),), {"perm": (0, 2, 3, 1)}),
    ),
)
def transpose(call: Call) -> Stages:
    """out[i] = data[i permuted back]"""
    axes = _axes(call)
    index = [Affine()] * len(axes)
    for position, source in enumerate(call.ints("perm")):
        index[source] = var(axes[position].name)
    body = Read(call.operand(0).tensor, tuple(index))
    return (Stage(call.namer.unique("transpose"), axes, body),)


@operator(
    "Pad",
    Kind.COPY,
    cases=(
        Case(((1, 2, 3, 4),), {"pads": (0, 0, 1, 2, 0, 1, 0, 3), "mode": "constant", "value": 0.5}),
        Case(((2, 3),), {"pads": (0, 1, 0, 0), "mode": "constant", "value": 0.0}),
    ),
)
def pad(call: Call) -> Stages | None:
    """Pad with a constant."""
    if call.attrs["mode"] != "constant":
        return None
    axes, begins = _axes(call), call.ints("pads")
    index = tuple(var(a.name) - begins[i] for i, a in enumerate(axes))
    outside = leaves(index, axes, call.operand(0).shape)
    fill = call.number("value") if outside else None
    return (Stage(call.namer.unique("pad"), axes, Read(call.operand(0).tensor, index, fill)),)


@operator(
    "Slice",
    Kind.COPY,
    cases=(
        Case(((3, 8),), {"starts": (1,), "ends": (7,), "axes": (1,), "steps": (2,)}),
        Case(((6, 4),), {"starts": (5, 0), "ends": (-1, 2), "axes": (0, 1), "steps": (-1, 1)}),
    ),
)
def slice_(call: Call) -> Stages:
    """out[i] = data[start + i * step]"""
    axes = _axes(call)
    index = [var(a.name) for a in axes]
    triples = zip(call.ints("axes"), call.ints("starts"), call.ints("steps"), strict=True)
    for axis, start, step in triples:
        index[axis] = index[axis] * step + start
    body = Read(call.operand(0).tensor, tuple(index))
    return (Stage(call.namer.unique("slice"), axes, body),)


@operator(
    "Expand",
    Kind.COPY,
    cases=(Case(((3, 1),), {"shape": (2, 3, 4)}), Case(((1,),), {"shape": (5,)})),
)
def expand(call: Call) -> Stages:
    """NumPy broadcasting to a longer shape."""
    return (Stage(call.namer.unique("expand"), _axes(call), call.read(0)),)


@operator(
    "Tile",
    Kind.COPY,
    cases=(Case(((2, 3),), {"repeats": (2, 3)}), Case(((2, 1, 3),), {"repeats": (1, 4, 1)})),
)
def tile(call: Call) -> Stages:
    """out[r * size + i] = data[i]"""
    axes: list[Axis] = []
    source, target = [], []
    shape = call.operand(0).shape
    for name, size, times in zip(call.axes, shape, call.ints("repeats"), strict=True):
        inner = Axis(name, size)
        source.append(var(name))
        target.append(var(name))
        if times > 1:
            axes.append(Axis(f"r_{name}", times))
            target[-1] = var(f"r_{name}") * size + var(name)
        axes.append(inner)
    body = Read(call.operand(0).tensor, tuple(source))
    name = call.namer.unique("tile")
    return (Stage(name, tuple(axes), body, index=tuple(target), out_shape=call.shape),)


_NEAREST = {
    "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
    "cubic_coeff_a": -0.75, "exclude_outside": 0, "extrapolation_value": 0.0, "antialias": 0,
    "sizes": (), "roi": (),
}  # fmt: skip


@operator(
    "Resize",
    Kind.COPY,
    cases=(
        Case(((1, 3, 4, 5),), {**_NEAREST, "scales": (1.0, 1.0, 2.0, 2.0)}),
        Case(
            ((1, 2, 4, 3),),
            {
                **_NEAREST,
                "coordinate_transformation_mode": "half_pixel",
                "nearest_mode": "round_prefer_floor",
                "scales": (1.0, 1.0, 3.0, 1.0),
            },
        ),
    ),
)
def resize(call: Call) -> Stages | None:
    """Nearest neighbour, enlarged by whole factors: out[i * factor + r] = data[i]"""
    data, attrs = call.operand(0), call.attrs
    coordinates, rounding = attrs["coordinate_transformation_mode"], attrs["nearest_mode"]
    simple = (coordinates == "asymmetric" and rounding == "floor") or (
        coordinates in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
        and rounding in ("round_prefer_floor", "round_prefer_ceil")
    )
    whole = all(o % i == 0 for o, i in zip(call.shape, data.shape, strict=True))
    factors = tuple(o // i for o, i in zip(call.shape, data.shape, strict=True))
    scales = tuple(float(s) for s in attrs["scales"])
    if attrs["mode"] != "nearest" or not (simple and whole):
        return None
    if scales and scales != tuple(float(f) for f in factors):
        return None
    axes: list[Axis] = []
    source, target = [], []
    for name, size, factor in zip(call.axes, data.shape, factors, strict=True):
        axes.append(Axis(name, size))
        source.append(var(name))
        target.append(var(name) * factor)
        if factor > 1:
            axes.append(Axis(f"r_{name}", factor))
            target[-1] = target[-1] + var(f"r_{name}")
    name = call.namer.unique("resize")
    body = Read(data.tensor, tuple(source))
    return (Stage(name, tuple(axes), body, index=tuple(target), out_shape=call.shape),)
