"""Programs survive JSON, whatever attributes their host calls have."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np

from engine.expr import channel_blocked
from engine.records import Schedule
from engine.runtime.program import (
    BUFFER,
    HOST,
    WEIGHT,
    HostStep,
    KernelCode,
    KernelStep,
    Program,
    Tensor,
    from_json,
    to_json,
)
from engine.target import host

LAYOUT = channel_blocked((1, 20, 4, 4), 8, ((0, 0), (0, 0), (1, 1), (0, 2)))
ATTRS = {
    "axis": -1, "alpha": 0.1, "low": -math.inf, "mode": "linear", "empty": (), "raw": b"\x00\xff",
    "floats": (0.5, 1e-30), "names": ("a", "b"), "none": None, "flag": True,
}  # fmt: skip


def program(**attrs: object) -> Program:
    x = Tensor("x", (1, 20, 4, 4), "float32", BUFFER, 256, LAYOUT)
    k = Tensor("k", (2,), "int64", HOST)
    w = Tensor("w", (), "bool", WEIGHT, 64)
    return Program(
        "net", host(), 2, 21, (x,), (x, k),
        (KernelCode("k0", ("k0_r0", "k0_r1"), (8, 3), 64, 128),),
        (
            KernelStep("conv", "k0", ((BUFFER, 256), (WEIGHT, 512)), "key", "conv2d", "direct", 99,
                       Schedule("direct.tiled", {"a": 1}), True, 1e-5),
            HostStep("top", "TopK", "", attrs, (x, None, w), (None, k)),
        ), 4096,
    )  # fmt: skip


def test_json_round_trip() -> None:
    before = program(**ATTRS)
    after = from_json(json.loads(json.dumps(to_json(before), allow_nan=False)))
    assert after == before
    assert after.workspace(3) == 64 + 3 * 128
    assert after.estimate == 1e-5 and after.untuned == () and len(after.host_steps) == 1


def test_a_step_that_computes_without_a_record_leaves_no_estimate() -> None:
    known = program()
    conv = known.steps[0]
    assert isinstance(conv, KernelStep)
    copy, unknown = replace(conv, flops=0, estimate=None), replace(conv, estimate=None)
    assert replace(known, steps=(conv, copy, conv)).estimate == 2e-5
    assert replace(known, steps=(conv, copy, unknown)).estimate is None


def test_arrays_in_attributes() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    step = from_json(json.loads(json.dumps(to_json(program(value=array))))).host_steps[0]
    np.testing.assert_array_equal(step.attrs["value"], array)
    assert step.attrs["value"].dtype == np.int16


def test_strings_in_attributes() -> None:
    array = np.array([["a", "\u00fc"]], dtype=object)
    step = from_json(json.loads(json.dumps(to_json(program(value=array))))).host_steps[0]
    assert step.attrs["value"].shape == (1, 2) and step.attrs["value"].tolist() == [["a", "\u00fc"]]
