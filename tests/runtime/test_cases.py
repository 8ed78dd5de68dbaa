"""Models re-made from public bug reports give the right values as compiled networks too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.graph import load_model
from engine.graph.partition import lower
from engine.runtime.build import compile_network
from engine.runtime.network import CompiledNetwork
from engine.target import host

CASES = Path(__file__).parents[1] / "data" / "cases"
MODELS = sorted(path.stem for path in CASES.glob("*.onnx"))


def compiled(case: str, shapes: dict[str, tuple[int, ...]]) -> CompiledNetwork:
    graph = load_model(CASES / f"{case}.onnx", shapes)
    return compile_network(lower(graph, host()), threads=2)


@pytest.mark.parametrize("case", MODELS)
def test_values(case: str) -> None:
    data = np.load(CASES / f"{case}.npz")
    names, outputs = (list(map(str, data[k])) for k in ("input_names", "output_names"))
    networks: dict[tuple[tuple[int, ...], ...], CompiledNetwork] = {}
    for s in range(int(data["n_sets"])):
        feeds = {name: data[f"s{s}_in_{i}"] for i, name in enumerate(names)}
        shapes = {name: array.shape for name, array in feeds.items()}
        key = tuple(shapes.values())
        if key not in networks:
            networks[key] = compiled(case, shapes)
        for threads in (1, 2):
            got = networks[key].run(feeds, threads=threads)
            assert list(got) == outputs
            for i, name in enumerate(outputs):
                want = data[f"s{s}_out_{i}"]
                assert got[name].dtype == want.dtype and got[name].shape == want.shape
                np.testing.assert_allclose(
                    got[name], want, rtol=float(data["rtol"]), atol=float(data["atol"])
                )
