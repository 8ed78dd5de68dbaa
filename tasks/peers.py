"""Other inference engines behind one small interface, for comparing outputs and times.

In: an ONNX model (path or bytes), a number of threads.  Out: a `Peer` to call with arrays.  Each
engine is imported only when it is asked for.  A new one is one function and one row of `PEERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import NoctuneError

Array = NDArray[Any]
Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Peer:
    """An engine with a network loaded; `run` gives the outputs by name."""

    name: str
    version: str
    run: Callable[[Feeds], dict[str, Array]]


def open_onnxruntime(model: str | bytes, threads: int, shapes: Mapping[str, Any]) -> Peer:
    """All graph optimisations, `threads` threads inside an operator, one operator at a time."""
    import onnxruntime as ort

    ort.disable_telemetry_events()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Feeds) -> dict[str, Array]:
        return dict(zip(names, session.run(None, dict(feeds)), strict=True))

    return Peer("onnxruntime", ort.__version__, run)


def open_openvino(model: str | bytes, threads: int, shapes: Mapping[str, Any]) -> Peer:
    """Latency hint, float32 (its default is bf16 on some CPUs), inputs fixed to `shapes`."""
    import openvino as ov

    core = ov.Core()
    network = core.read_model(model)
    if network.is_dynamic():
        network.reshape({name: list(shape) for name, shape in shapes.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    outputs = [(port.get_any_name(), port) for port in compiled.outputs]

    def run(feeds: Feeds) -> dict[str, Array]:
        request.infer(dict(feeds))
        return {name: request.get_tensor(port).data for name, port in outputs}

    return Peer("openvino", ov.__version__.split("-")[0], run)


PEERS: dict[str, Callable[[str | bytes, int, Mapping[str, Any]], Peer]] = {
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
}


def is_installed(name: str) -> bool:
    """Whether the engine can be imported here."""
    return find_spec(name) is not None


def check_names(names: Sequence[str]) -> None:
    """Raises NoctuneError for an unknown engine."""
    for name in names:
        if name not in PEERS:
            raise NoctuneError(
                f"unknown engine '{name}'", fix=f"The engines are: {', '.join(PEERS)}."
            )


def check_peers(names: Sequence[str]) -> None:
    """Raises NoctuneError for an unknown engine or one that is not installed."""
    check_names(names)
    for name in names:
        if not is_installed(name):
            raise NoctuneError(
                f"{name} is not installed", fix='Install it: pip install "noctune[compare]"'
            )


def open_peer(
    name: str, model: str | bytes, threads: int, shapes: Mapping[str, tuple[int, ...]]
) -> Peer:
    """Load a model (path or bytes) into an engine.  Raises NoctuneError if it refuses, and when it
    cannot run what it is given."""
    check_peers([name])
    try:
        return _guarded(PEERS[name](model, threads, shapes))
    except Exception as error:
        raise NoctuneError(
            f"{name} cannot load the model", why=" ".join(str(error).split())[:300]
        ) from error


def _guarded(peer: Peer) -> Peer:
    def run(feeds: Feeds) -> dict[str, Array]:
        try:
            return peer.run(feeds)
        except Exception as error:
            raise NoctuneError(
                f"{peer.name} cannot run the model on the network's inputs",
                why=" ".join(str(error).split())[:300],
                fix="Name the model that the network was compiled from.",
            ) from error

    return replace(peer, run=run)


def random_feeds(
    inputs: Mapping[str, tuple[tuple[int, ...], str]], rng: np.random.Generator
) -> dict[str, Array]:
    """An array for each input (name -> shape, dtype name).

    Floats are normally distributed; integers are 0 or 1, valid as indices, lengths and masks.
    """
    feeds: dict[str, Array] = {}
    for name, (shape, dtype) in inputs.items():
        kind = np.dtype(dtype)
        if kind.kind == "f":
            feeds[name] = rng.standard_normal(shape).astype(kind)
        else:
            feeds[name] = rng.integers(0, 2, shape).astype(kind)
    return feeds


def differences(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> tuple[float, float]:
    """Largest absolute error, and that relative to the largest value of the same output.

    Outputs are matched by name, by position where the names differ.  A value that is finite on one
    side only makes both infinite, and so does another number of outputs.
    """
    if set(ours) <= set(theirs):
        pairs = [(ours[name], theirs[name]) for name in ours]
    elif len(ours) == len(theirs):
        pairs = list(zip(ours.values(), theirs.values(), strict=True))
    else:
        return float("inf"), float("inf")
    absolute = relative = 0.0
    for a, b in pairs:
        error, scale = _difference(np.asarray(a), np.asarray(b))
        absolute = max(absolute, error)
        relative = max(relative, error / scale)
    return absolute, relative


def _difference(a: Array, b: Array) -> tuple[float, float]:
    if a.shape != b.shape:
        return float("inf"), 1.0
    if a.size == 0:
        return 0.0, 1.0
    if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
        return (0.0 if np.array_equal(a, b) else float("inf")), 1.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf"), 1.0
    if not finite.any():
        return 0.0, 1.0
    return float(np.abs(x[finite] - y[finite]).max()), max(float(np.abs(y[finite]).max()), 1e-30)
