"""Names of search tasks for people.

In: a workload.  Out: one line that tells it from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.graph.task import Workload


def task_name(workload: Workload) -> str:
    """Anchor, shapes and epilogue: "conv2d 1x7x7x512, 3x3x512x512, stride 1, pad 1 + relu"."""
    d: Mapping[str, Any] = workload.description
    parts = [_shape(d.get("data_shape")), _shape(d.get("weight_shape"))]
    for word, name in (("stride", "strides"), ("pad", "pads"), ("group", "groups")):
        text = _numbers(d.get(name))
        if text and not (word in ("stride", "group") and text == "1") and text != "0":
            parts.append(f"{word} {text}")
    epilogue = "".join(f" + {op}" for op in d.get("epilogue") or ())
    return f"{workload.anchor} {', '.join(p for p in parts if p)}{epilogue}".strip()


def _shape(value: object) -> str:
    return "x".join(str(v) for v in value) if isinstance(value, Sequence) else ""


def _numbers(value: object) -> str:
    """ "2" of [2, 2]; "1,0" of [1, 0]; "" of nothing."""
    if value is None or isinstance(value, str):
        return value or ""
    values = [str(v) for v in value] if isinstance(value, Sequence) else [str(value)]
    return values[0] if len(set(values)) == 1 else ",".join(values)
