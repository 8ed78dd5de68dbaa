"""Reading ONNX files and their tensors.

In: a path, or tensor messages of a parsed model.  Out: a `ModelProto` without its external data,
and NumPy arrays.  Large external tensors are mapped, not read; every failure is a `ModelError`
that names the file or tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from engine.errors import ModelError

Array = NDArray[Any]

OPSETS = range(7, 24)
"""Operator sets of the default domain that can be imported."""

_MAP_ABOVE = 64 << 20
"""Bytes above which external data is mapped into memory instead of read."""

HALF = ("float16", "bfloat16")
"""Types that are computed in float32."""


def read_model(path: str | Path) -> onnx.ModelProto:
    """The parsed file; raises ModelError for a missing, empty, truncated or foreign file."""
    path, fix = Path(path), "Give an ONNX model file"
    if not path.exists():
        raise ModelError("no such model file", where=str(path), fix="Check the path")
    if not path.is_file():
        raise ModelError("not a file", where=str(path), fix=fix)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError("cannot read the model", where=str(path), why=str(error)) from error
    if not data:
        raise ModelError("the file is empty", where=str(path), fix=fix)
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        why = "truncated, or not ONNX"
        raise ModelError("cannot parse the model", where=str(path), why=why, fix=fix) from error
    check_model(model, str(path))
    return model


def check_model(model: onnx.ModelProto, where: str) -> None:
    """Raises ModelError unless the model has a graph and a known default operator set."""
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        why = "truncated, or not ONNX"
        raise ModelError("the file holds no network", where=where, why=why)
    versions = opsets_of(model.opset_import)
    if not versions:
        raise ModelError("the model names no operator set", where=where, why="truncated?")
    version = versions.get("", OPSETS[-1])
    if version not in OPSETS:
        raise ModelError(
            f"operator set {version} is not supported",
            where=where,
            why=f"supported are {OPSETS[0]} to {OPSETS[-1]}",
            fix="Export or convert the model with another opset_version",
        )


def opsets_of(imports: Any) -> dict[str, int]:
    """Domain -> version; the default domain is ""."""
    return {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in imports}


def tensor_array(tensor: TensorProto, base_dir: Path, where: str) -> Array:
    """The tensor's values, half precision widened to float32."""
    try:
        if min(tensor.dims, default=0) < 0:
            raise ValueError(f"its shape is {list(tensor.dims)}")
        if tensor.data_location == TensorProto.EXTERNAL:
            return widen(_external(tensor, base_dir, where))
        return widen(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OSError) as error:
        name = tensor.name or "unnamed"
        raise ModelError(f"tensor '{name}' is damaged", where=where, why=str(error)) from error


def sparse_array(sparse: onnx.SparseTensorProto, base_dir: Path, where: str) -> Array:
    """A sparse tensor as a dense array."""
    values = tensor_array(sparse.values, base_dir, where)
    indices = tensor_array(sparse.indices, base_dir, where)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def widen(array: Array) -> Array:
    """Half precision as float32; anything else as it is."""
    return array.astype(np.float32) if array.dtype.name in HALF else array


def attribute_value(attribute: AttributeProto, base_dir: Path, where: str) -> Any:
    """A Python value: int, float, str, tuple of these, array, or a graph message."""
    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        return tensor_array(attribute.t, base_dir, where)
    if kind == AttributeProto.SPARSE_TENSOR:
        return sparse_array(attribute.sparse_tensor, base_dir, where)
    value = helper.get_attribute_value(attribute)
    if kind == AttributeProto.STRING:
        return value.decode("utf-8", "replace")
    if kind == AttributeProto.STRINGS:
        return tuple(v.decode("utf-8", "replace") for v in value)
    if kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        return tuple(value)
    return value


def _external(tensor: TensorProto, base_dir: Path, where: str) -> Array:
    """Values kept in another file, which must lie in the model's folder."""
    info = {entry.key: entry.value for entry in tensor.external_data}
    label = f"external data of tensor '{tensor.name}'"
    location = info.get("location", "")
    path = base_dir / location
    # by name only: links out of the folder are how download caches store their files
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        why = "the location must be a path inside the model's folder"
        raise ModelError(f"{label} has the location '{location}'", where=where, why=why)
    if not path.is_file():
        fix = f"Put '{location}' next to the model"
        raise ModelError(f"{label} is missing", where=where, why=f"no file {path}", fix=fix)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape, offset = tuple(tensor.dims), int(info.get("offset", 0))
    packed = numpy_packed(tensor.data_type)
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    length = int(info.get("length", size)) if packed else size
    if int(info.get("length", length)) != length or path.stat().st_size < offset + length:
        why = f"{path} should hold {length} bytes from byte {offset} on"
        raise ModelError(f"{label} is incomplete", where=where, why=why)
    if packed:
        copy = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        with path.open("rb") as file:
            file.seek(offset)
            copy.raw_data = file.read(length)
        return numpy_helper.to_array(copy)
    little = np.dtype(dtype).newbyteorder("<")
    if length > _MAP_ABOVE:
        return np.memmap(path, little, "r", offset, shape)
    count = length // little.itemsize
    return np.fromfile(path, little, count, offset=offset).reshape(shape).astype(dtype, copy=False)


def numpy_packed(data_type: int) -> bool:
    """Whether several elements share a byte in a file."""
    return "INT4" in (name := TensorProto.DataType.Name(data_type)) or name in (
        "FLOAT4E2M1",
        "UINT2",
        "INT2",
    )
