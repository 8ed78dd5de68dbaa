"""The commands that are killed: a small tuning run and a small night, on networks made here.

In: a folder and a database.  Out: command lines that end within seconds when nobody disturbs them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TUNE_TRIALS, NIGHT_TRIALS = 15, 10


@dataclass(frozen=True, slots=True)
class Job:
    """A command; `lines` is about how many it prints before the result, `tuning` the first and last
    of those between which workers run."""

    name: str
    arguments: tuple[str, ...]
    lines: int
    tuning: tuple[int, int]


def write_network(path: Path, widths: Sequence[int]) -> Path:
    """Convolutions of these widths, each with a ReLU: as many search tasks."""
    rng = np.random.default_rng(list(widths))
    nodes, weights, value, channels = [], [], "x", 3
    for place, width in enumerate(widths):
        size = 3 if place == 0 else 1
        data = rng.standard_normal((width, channels, size, size)).astype(np.float32) / 4
        weights.append(numpy_helper.from_array(data, f"w{place}"))
        call = helper.make_node(
            "Conv", [value, f"w{place}"], [f"c{place}"], kernel_shape=[size, size],
            pads=[size // 2] * 4,
        )  # fmt: skip
        nodes.append(call)
        value = "y" if place == len(widths) - 1 else f"r{place}"
        nodes.append(helper.make_node("Relu", [f"c{place}"], [value]))
        channels = width
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 12, 12])
    graph = helper.make_graph(nodes, path.stem, [x], [y], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def write_models(folder: Path) -> None:
    """Two networks for the nights, and one for the tuning runs."""
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    write_network(models / "first.onnx", (8, 16))
    write_network(models / "second.onnx", (8, 12, 16))
    write_network(folder / "single.onnx", (8, 24, 16))


def jobs(db: str) -> tuple[Job, ...]:
    """The commands, to be run in the folder of `write_models`."""
    noctune = (sys.executable, "-m", "flows.cli")
    common = ("--db", db, "--threads", "1")
    return (
        Job("tune", (*noctune, "tune", "single.onnx", "--trials", str(TUNE_TRIALS), *common),
            9, (2, 4)),
        Job(
            "night",
            (*noctune, "nightly", "models", "--trials", str(NIGHT_TRIALS), "--folder", "published",
             "--keep", "2", "--against", "", *common),
            14, (3, 5),
        ),
    )  # fmt: skip
