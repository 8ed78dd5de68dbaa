"""The ONNX standard's own test cases, for every operator of the dialect and what leads to it.

Operands that the standard feeds at run time (axes, shapes, scales) are given as constants where
the import asks for that.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from engine.errors import ModelError
from engine.graph import Graph, load_proto
from engine.graph.host import run_graph
from engine.graph.proto import OPSETS

OPERATORS = set(
    """
    Abs Acos Add And ArgMax ArgMin Attention AveragePool BatchNormalization Cast Ceil Celu Clip
    Concat ConstantOfShape Conv ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div Dropout
    Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm
    GlobalAveragePool GlobalMaxPool Greater GroupNormalization HardSigmoid HardSwish Hardmax
    Identity InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less Log LogSoftmax MatMul
    MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg OneHot Or
    PRelu Pad Pow QLinearConv QuantizeLinear RMSNormalization Range Reciprocal ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize RotaryEmbedding Round ScatterElements ScatterND Selu Shape
    Shrink Sigmoid Sign Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
    Sum Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905 - a list of 100 strings reads worse
)
HALF = ("float16", "bfloat16")

NEWER = (
    "attention_24", "bidirectional_window", "local_window", "nonpad", "padded_kv", "crd_mode",
    "qk_matmul_output_mode3_softmax_precision", "layer_normalization_default_epsilon_bf16",
)  # fmt: skip
"""Cases of later operator sets than those supported, under an operator that existed before."""

PACKED = ("FLOAT8", "FLOAT4", "INT4", "INT2", "E8M0", "e4m3", "e5m2", "float4", "int4", "int2")
"""Types of less than eight bits and eight-bit floats, which onnxruntime hands out as bytes."""

NOT_SUPPORTED = {
    "training mode": ("batchnorm", "dropout"),
    "depends on data": ("range_",),
    "must be constant": ("constantofshape", "attention"),
}
"""Reason for a refusal -> names it is allowed for."""

DIFFERENT = ("downsample_scales_linear_align_corners", "downsample_scales_cubic_align_corners")
"""onnxruntime rounds the output size before it derives the scale."""


@cache
def cases() -> Mapping[str, list[Any]]:
    """Operator -> its cases; making them all takes seconds, so only once and on first use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases()
    found: dict[str, list[Any]] = {}
    for case in collected:
        if case.model is None or "expanded" in case.name or not case.data_sets[0][0]:
            continue
        kinds = (np.ndarray, np.generic, onnx.TensorProto)
        numbers = all(isinstance(x, kinds) for x in case.data_sets[0][0])
        newer = any(word in case.name for word in (*NEWER, *PACKED))
        if numbers and len(case.model.graph.node) == 1 and not newer and _lowered(case.model):
            found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def _lowered(model: onnx.ModelProto) -> bool:
    """Whether the model means the same under the newest supported operator set; then it says so."""
    default = next((o for o in model.opset_import if o.domain == ""), None)
    if default is None:
        return False
    for node in model.graph.node:
        try:
            onnx.defs.get_schema(node.op_type, min(default.version, OPSETS[-1]), node.domain)
        except onnx.defs.SchemaError:
            return False
    default.version = min(default.version, OPSETS[-1])
    return default.version in OPSETS


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_standard_cases(op: str) -> None:
    """Right values by both backends, or one of the allowed refusals; not refusals only."""
    assert sum([_check(case) for case in cases()[op]]) or op in ("ConstantOfShape", "Range")


def _check(case: Any) -> bool:
    model, (inputs, outputs) = case.model, case.data_sets[0]
    feeds = {i.name: _array(x) for i, x in zip(model.graph.input, inputs, strict=False)}
    try:
        graph = _load(model, feeds)
    except ModelError as error:
        allowed = [n for why, names in NOT_SUPPORTED.items() if why in str(error) for n in names]
        assert any(word in case.name for word in allowed), str(error)
        return False
    fed = {name: feeds[name] for name in graph.inputs}
    for backend in (True, False):
        if backend and any(word in case.name for word in DIFFERENT):
            continue
        got = run_graph(graph, fed, use_onnxruntime=backend)
        for name, want in zip(graph.outputs, outputs, strict=True):
            _compare(got[name], want, graph, name, case.name)
    return True


def _load(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Graph:
    try:
        return load_proto(model, shapes={name: a.shape for name, a in feeds.items()})
    except ModelError:
        if len(feeds) < 2:
            raise
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for name in list(feeds)[1:]:
        fixed.graph.initializer.append(numpy_helper.from_array(feeds[name], name))
    return load_proto(fixed)


def _array(given: Any) -> np.ndarray:
    is_message = isinstance(given, onnx.TensorProto)
    return numpy_helper.to_array(given) if is_message else np.asarray(given)


def _compare(got: np.ndarray, given: Any, graph: Graph, name: str, case: str) -> None:
    want = _array(given)
    assert got.shape == want.shape == graph.shape(name), case
    assert got.dtype == want.dtype and got.dtype.name == graph.values[name].dtype, case
    if want.dtype.kind in "OU":
        np.testing.assert_array_equal(got, want, err_msg=case)
        return
    half = want.dtype.name in HALF
    rtol, atol = (2e-2, 2e-2) if half else (1e-3, 1e-5)
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=case)
