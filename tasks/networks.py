"""Networks by name or path: from what a user writes to a lowered graph.

In: the name of a built-in network or the path of an ONNX file.  Out: a `Network` with its lowered
graph, the hash of its content, and how often it holds each search task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelError
from engine.graph import load_model, load_proto
from engine.graph.ir import Graph
from engine.graph.partition import extract_search_tasks, lower
from engine.graph.proto import read_model
from engine.graph.task import LoweredGraph, SearchTask
from engine.target import Target
from engine.zoo import build, names

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Network:
    """A network that is to be tuned, compiled or checked, lowered for one target."""

    name: str
    source: str
    graph: Graph
    lowered: LoweredGraph

    @cached_property
    def content_hash(self) -> str:
        """Equal for equal networks with equal input shapes, wherever the file lies."""
        return graph_hash(self.graph)

    def search_tasks(self, threads: int) -> tuple[SearchTask, ...]:
        """The network's own search tasks with their weights in it."""
        return extract_search_tasks(self.lowered, threads)


def is_builtin(text: str) -> bool:
    """Whether `text` names a built-in network (a file of that name comes first)."""
    return text in names() and not Path(text).is_file()


def check_model(text: str, shapes: Shapes | None = None, batch: int = 1) -> None:
    """Raises ModelError unless `text` names something that takes these options; quick, for the
    start of a command."""
    if is_builtin(text):
        if shapes:
            raise ModelError(
                "a built-in network has no dynamic shapes", where=text,
                fix="Give --batch N instead of --shape.",
            )  # fmt: skip
        return
    if Path(text).is_file():
        if batch > 1:
            raise ModelError(
                "--batch is for built-in networks", where=text,
                fix="Fix the file's inputs by --shape NAME=N,...",
            )  # fmt: skip
        return
    if Path(text).is_dir():
        raise ModelError("this is a folder, not a model", where=text, fix="Name an ONNX file.")
    if Path(text).suffix:
        raise ModelError("there is no such file", where=text)
    raise _unknown(text)


def model_files(text: str) -> tuple[Path, ...]:
    """What a model is read from: the file and its external data; nothing if it is built in."""
    if is_builtin(text):
        return ()
    path = Path(text)
    entries = (e for t in read_model(path).graph.initializer for e in t.external_data)
    names = {entry.value for entry in entries if entry.key == "location"}
    return (path, *(path.parent / name for name in sorted(names)))


def load_graph(text: str, shapes: Shapes | None = None, batch: int = 1) -> Graph:
    """The graph of a built-in network or an ONNX file.  Raises ModelError."""
    if is_builtin(text):
        return load_proto(build(text, batch=batch), name=text)
    check_model(text)
    return load_model(text, dict(shapes or {}))


def model_proto(text: str, batch: int = 1) -> Any:
    """What another engine loads: a path, or the bytes of a built-in network."""
    if is_builtin(text):
        return build(text, batch=batch).SerializeToString()
    check_model(text)
    return str(text)


def load_network(
    text: str, target: Target, shapes: Shapes | None = None, batch: int = 1
) -> Network:
    """Load and lower one network.  Raises ModelError."""
    graph = load_graph(text, shapes, batch)
    name = f"{graph.name}-b{batch}" if batch > 1 and is_builtin(text) else graph.name
    return Network(name, text, graph, lower(graph, target))


def merge_tasks(networks: Sequence[Network], threads: int) -> tuple[SearchTask, ...]:
    """The search tasks of all networks: shared ones once, with their weights summed."""
    return extract_search_tasks([(n.lowered, 1) for n in networks], threads)


def distinct_names(networks: Sequence[Network]) -> None:
    """Raises ModelError if two networks have one name: records could not tell them apart."""
    seen: dict[str, str] = {}
    for network in networks:
        if network.name in seen:
            raise ModelError(
                f"two networks are named '{network.name}'",
                where=network.source,
                why=f"the other one is {seen[network.name]}",
                fix="Rename one of the files, or tune them one after the other.",
            )
        seen[network.name] = network.source


def graph_hash(graph: Graph) -> str:
    """SHA-256 over inputs, nodes and constants."""
    digest = hashlib.sha256()
    for name in graph.inputs + graph.outputs:
        digest.update(repr(graph.values[name]).encode())
    for node in graph.nodes:
        attrs = sorted((k, _plain(v)) for k, v in node.attrs.items())
        digest.update(repr((node.op, node.domain, node.inputs, node.outputs, attrs)).encode())
    for name in sorted(graph.constants):
        array = np.ascontiguousarray(graph.constants[name])
        digest.update(repr((name, array.dtype.name, array.shape)).encode())
        if array.dtype.hasobject:
            digest.update(repr(array.tolist()).encode())
        else:
            digest.update(array.reshape(-1).view("u1").data)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, value.tobytes())
    return value


def _unknown(text: str) -> ModelError:
    from difflib import get_close_matches

    near = get_close_matches(text, names(), n=1)
    hint = f"Did you mean '{near[0]}'?" if near else "`noctune zoo` lists the built-in networks."
    return ModelError(f"'{text}' is neither a file nor a built-in network", fix=hint)
