"""Every operator's sample cases as one-node networks, lowered, compiled and run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_cases import network, sample

from engine.graph.partition import lower
from engine.ops import OPERATORS, Kind
from engine.runtime.build import compile_network
from engine.target import missing_features, named

TARGETS = [n for n in ("host", "sse42") if n == "host" or not missing_features(named(n))]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_compiled_operator_computes_what_onnx_says(operator, target):
    for case in operator.cases:
        node, arrays, expected = sample(operator, case)
        graph, feeds = network(node, case, arrays, expected)
        low = lower(graph, named(target))
        assert all(step.workload for step in low.steps), "no host call"
        assert operator.kind is Kind.COPY or any(
            step.workload.anchor != "copy" for step in low.steps
        )
        net = compile_network(low)
        for threads in (1, 2):
            found = net.run(feeds, threads=threads)["y"]
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=str(case))
