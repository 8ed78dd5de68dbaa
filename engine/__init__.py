"""noctune's engine: networks in, search tasks, tuned kernels and compiled networks out.

    graph = engine.load_model("model.onnx")
    lowered = engine.lower(graph, engine.host())
    tasks = engine.extract_search_tasks(lowered)
    network = engine.compile_network(lowered, schedules)
    network.save("model.net")
    outputs = engine.load("model.net").run({"data": x})

Names are imported at first use: `import engine` and `engine.load` need no onnx package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import zoo
    from engine.errors import (
        InputError,
        ModelError,
        NoctuneError,
        StoreError,
        TargetError,
    )
    from engine.graph.onnx_import import load_model
    from engine.graph.partition import extract_search_tasks, lower
    from engine.graph.task import LoweredGraph, SearchTask, Workload
    from engine.records import MeasureRecord, Schedule
    from engine.runtime.build import compile_network
    from engine.runtime.network import CompiledNetwork, load
    from engine.target import Target, host, named

__all__ = [
    "CompiledNetwork", "InputError", "LoweredGraph", "MeasureRecord", "ModelError", "NoctuneError",
    "Schedule", "SearchTask", "StoreError", "Target", "TargetError", "Workload", "compile_network",
    "extract_search_tasks", "host", "load", "load_model", "lower", "named", "zoo",
]  # fmt: skip

_HOME = {
    "engine.errors": ("InputError", "ModelError", "NoctuneError", "StoreError", "TargetError"),
    "engine.graph.onnx_import": ("load_model",),
    "engine.graph.partition": ("extract_search_tasks", "lower"),
    "engine.graph.task": ("LoweredGraph", "SearchTask", "Workload"),
    "engine.records": ("MeasureRecord", "Schedule"),
    "engine.runtime.build": ("compile_network",),
    "engine.runtime.network": ("CompiledNetwork", "load"),
    "engine.target": ("Target", "host", "named"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "zoo":
        return import_module("engine.zoo")
    if name not in _MODULE:
        raise AttributeError(f"module 'engine' has no attribute '{name}'")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
