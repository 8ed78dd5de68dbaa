"""The ONNX standard's own test cases, for every operator of the dialect and what leads to it.

Operands that the standard feeds at run time (axes, shapes, scales) are given as constants where
the import asks for that.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg Not OneHot Or
    PRelu Pad Pow QLinearConv QuantizeLinear RMSNormalization Range Reciprocal ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize RotaryEmbedding Round ScatterElements ScatterND Selu Shape
    Shrink Sigmoid Sign Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
    Sum Swish Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905 - a list of 100 strings reads worse
)
HALF = ("float16", "bfloat16")

NEWER = (
    "attention_24", "bidirectional_window", "local_window", "nonpad", "padded_kv", "crd_mode",
    "qk_matmul_output_mode3_softmax_precision", "layer_normalization_default_epsilon_bf16",
)  # fmt: skip
"""Cases of later operator sets than those supported, under an operator that existed before."""

NOT_SUPPORTED = {
    "training mode": ("batchnorm", "dropout"),
    "depends on data": ("range_",),
    "must be constant": ("constantofshape", "attention"),
}
"""Reason for a refusal -> names it is allowed for."""

DIFFERENT = ("downsample_scales_linear_align_corners", "downsample_scales_cubic_align_corners")
"""onnxruntime rounds the output size before it derives the scale."""


def cases() -> Iterator[object]:
    for case in collect_testcases():
        if case.model is None or "expanded" in case.name or not case.data_sets[0][0]:
            continue
        numbers = all(isinstance(x, np.ndarray | np.generic) for x in case.data_sets[0][0])
        covered = all(node.op_type in OPERATORS for node in case.model.graph.node)
        newer = any(word in case.name for word in NEWER)
        if numbers and covered and not newer and _lowered(case.model):
            yield pytest.param(case, id=case.name)


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
@pytest.mark.parametrize("case", cases())
def test_standard_case(case: object) -> None:
    model, (inputs, outputs) = case.model, case.data_sets[0]  # type: ignore[attr-defined]
    feeds = dict(zip((i.name for i in model.graph.input), inputs, strict=False))
    try:
        graph = _load(model, feeds)
    except ModelError as error:
        name = case.name  # type: ignore[attr-defined]
        allowed = [n for why, names in NOT_SUPPORTED.items() if why in str(error) for n in names]
        assert any(word in name for word in allowed), str(error)
        return
    fed = {name: feeds[name] for name in graph.inputs}
    for backend in (True, False):
        if backend and any(word in case.name for word in DIFFERENT):  # type: ignore[attr-defined]
            continue
        got = run_graph(graph, fed, use_onnxruntime=backend)
        for name, want in zip(graph.outputs, outputs, strict=True):
            if isinstance(want, onnx.TensorProto):
                want = numpy_helper.to_array(want)
            _compare(got[name], np.asarray(want), graph, name)


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


def _compare(got: np.ndarray, want: np.ndarray, graph: Graph, name: str) -> None:
    assert got.shape == want.shape == graph.shape(name)
    assert got.dtype == want.dtype and got.dtype.name == graph.values[name].dtype
    if want.dtype.kind in "OU":
        np.testing.assert_array_equal(got, want)
        return
    half = want.dtype.name in HALF
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-3, "atol": 1e-5}
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), **tolerance)
