"""Programs as text: the loops of every sketch of a few computations."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.space import sketches
from tests.codegen.golden import compare
from tests.space.samples import AVX2, WORKLOADS, small_row

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["convolution", "winograd", "long_product", "softmax", "pool"])
def test_printed_programs(name, request):
    parts = []
    for sketch in sketches(WORKLOADS[name](), AVX2, accuracy="fast")[:3]:
        schedule = sketch.schedule(small_row(sketch))
        parts.append(f"# {schedule.key}\n{sketch.program(schedule)}\n")
    compare("\n".join(parts), GOLDEN / f"{name}.txt", request.config)
