"""Checking and timing compiled networks.

In: the path of a compiled network, the model it came from.  Out: plain mappings, as the command
line prints them in JSON and as the database keeps them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from db.store import open_store
from engine.errors import NoctuneError
from engine.runtime.network import CompiledNetwork, load
from engine.target import usable_cores
from tasks.networks import Shapes, check_model, is_builtin, load_graph, model_proto
from tasks.peers import check_peers, differences, is_installed, open_peer, random_feeds
from tasks.sidebyside import Timing, side_by_side

TOLERANCE = 1e-3
"""Largest error of a verified network, relative to its largest output."""


PUBLISHED = "published"
"""Name of the network that is current, where a new one is timed beside it."""


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inputs_of(net: CompiledNetwork) -> dict[str, tuple[tuple[int, ...], str]]:
    """Input name -> shape and dtype name."""
    return {spec.name: (tuple(spec.shape), spec.dtype) for spec in net.inputs}


def verify(
    path: str,
    model: str,
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare the outputs on random inputs with ONNX Runtime's, or with the reference operators'.

    The batch of a built-in model is the network's.  Keys: ok, reference, max_abs_error,
    max_rel_error, tolerance.
    """
    net = load(path)
    inputs = inputs_of(net)
    feeds = random_feeds(inputs, np.random.default_rng(seed))
    fixed = {name: shape for name, (shape, _) in inputs.items()}
    ours = {k: np.array(v) for k, v in net.run(feeds, threads=threads).items()}
    if is_installed("onnxruntime"):
        peer = open_peer("onnxruntime", _peer_model(model, fixed), threads or 1, fixed)
        reference, theirs = f"onnxruntime {peer.version}", peer.run(feeds)
    else:
        from engine.graph.host import run_graph

        graph = load_graph(model, {**fixed, **(shapes or {})}, _batch(model, fixed))
        reference, theirs = "the reference operators of onnx", run_graph(graph, feeds)
    absolute, relative = differences(ours, theirs)
    return {
        "ok": relative < TOLERANCE,
        "reference": reference,
        "max_abs_error": absolute,
        "max_rel_error": relative,
        "tolerance": TOLERANCE,
    }


def open_network(path: str, against: Sequence[str] = (), model: str = "") -> CompiledNetwork:
    """The network, linked.  Raises NoctuneError for what `bench` refuses without running it."""
    check_peers(against)
    if model:
        check_model(model)
    elif against:
        raise NoctuneError(
            "other engines need the model that the network was compiled from",
            where=path,
            fix="Give --model MODEL.",
        )
    return load(path).link()


def bench(
    path: str,
    *,
    against: Sequence[str] = (),
    model: str = "",
    threads: int | None = None,
    repeat: int = 3,
    min_repeat_ms: float = 500.0,
    seed: int = 0,
    published: str | None = None,
) -> dict[str, Any]:
    """Time a compiled network, interleaved with its peers, and compare their outputs.

    Keys: network, threads, noctune, peers, ratio, estimated_ms, max_abs_error, max_rel_error (the
    errors are the largest over the peers, None without one); times in milliseconds.  With the path
    of a `published` network of equal inputs, its times are there, too, and `published_ratio`.
    """
    net = open_network(path, against, model)
    inputs = inputs_of(net)
    count = threads or min(net.program.threads, usable_cores())
    feeds = random_feeds(inputs, np.random.default_rng(seed))
    shapes = {name: shape for name, (shape, _) in inputs.items()}
    engines: dict[str, Any] = {"noctune": lambda: net.run(feeds, threads=count)}
    errors: list[tuple[float, float]] = []
    ours = {k: np.array(v) for k, v in net.run(feeds, threads=count).items()}
    for name in against:
        peer = open_peer(name, _peer_model(model, shapes), count, shapes)
        errors.append(differences(ours, peer.run(feeds)))
        engines[name] = lambda peer=peer: peer.run(feeds)
    if published is not None:
        older = load(published)
        if inputs_of(older) == inputs:
            engines[PUBLISHED] = lambda: older.run(feeds, threads=count)
    timings = side_by_side(engines, repeat, min_repeat_ms / 1e3)
    mine, old = timings.pop("noctune"), timings.pop(PUBLISHED, None)
    more = {} if old is None else {
        "published": _own(old), "published_ratio": old.median / mine.median
    }  # fmt: skip
    return {
        "network": net.name,
        "threads": count,
        "noctune": _own(mine),
        "peers": {name: _peer(t) for name, t in timings.items()},
        "ratio": {name: t.median / mine.median for name, t in timings.items()},
        "estimated_ms": None if net.program.estimate is None else net.program.estimate * 1e3,
        "max_abs_error": _largest([e[0] for e in errors]),
        "max_rel_error": _largest([e[1] for e in errors]),
        **more,
    }


def _peer_model(model: str, shapes: Mapping[str, tuple[int, ...]]) -> str | bytes:
    found: str | bytes = model_proto(model, _batch(model, shapes))
    return found


def _batch(model: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The batch size that a built-in model was compiled for."""
    first = next(iter(shapes.values()), ())
    return first[0] if first and is_builtin(model) else 1


def _own(t: Timing) -> dict[str, float]:
    return {
        "median_ms": t.median * 1e3,
        "min_ms": t.minimum * 1e3,
        "mean_ms": t.mean * 1e3,
        "std_ms": t.deviation * 1e3,
    }


def _peer(t: Timing) -> dict[str, float]:
    return {"median_ms": t.median * 1e3, "min_ms": t.minimum * 1e3}


def _largest(errors: Sequence[float]) -> float | None:
    if not errors:
        return None
    worst = max(errors)
    return worst if math.isfinite(worst) else None


def note(db: str, path: str, timing: Mapping[str, Any]) -> bool:
    """Keep a timing in the database beside the compiled file; False if the file is not in there."""
    where, digest = str(Path(path).resolve()), file_hash(path)
    with open_store(db) as store:
        for info in reversed(store.compiled_networks()):
            if info.path == where and info.file_hash == digest:
                store.add_evaluation(info.id, timing)
                return True
    return False
