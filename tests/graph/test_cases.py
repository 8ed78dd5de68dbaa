"""Models re-made from public bug reports: every one gives the right values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.graph import load_model
from engine.graph.host import run_graph

CASES = Path(__file__).parents[1] / "data" / "cases"
MODELS = sorted(path.stem for path in CASES.glob("*.onnx"))


def feeds_and_wants(case: str) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    data = np.load(CASES / f"{case}.npz")
    ins, outs = (list(map(str, data[k])) for k in ("input_names", "output_names"))
    return [
        (
            {name: data[f"s{s}_in_{i}"] for i, name in enumerate(ins)},
            {name: data[f"s{s}_out_{i}"] for i, name in enumerate(outs)},
        )
        for s in range(int(data["n_sets"]))
    ]


@pytest.mark.parametrize("onnxruntime", [True, False], ids=["onnxruntime", "reference"])
@pytest.mark.parametrize("case", MODELS)
def test_values(case: str, onnxruntime: bool) -> None:
    data = np.load(CASES / f"{case}.npz")
    for feeds, wants in feeds_and_wants(case):
        shapes = {name: array.shape for name, array in feeds.items()}
        graph = load_model(CASES / f"{case}.onnx", shapes)
        assert graph.outputs == tuple(wants)
        got = run_graph(graph, feeds, use_onnxruntime=onnxruntime)
        for name, want in wants.items():
            assert got[name].dtype == want.dtype and got[name].shape == want.shape
            assert graph.values[name].shape == want.shape
            np.testing.assert_allclose(
                got[name], want, rtol=float(data["rtol"]), atol=float(data["atol"])
            )
