"""Sketch rules, in the order in which they are applied.

Each rule is a module with `apply(skeleton) -> [skeleton, ...]`; a new one is a file and a row here.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.space.rules import attach, fuse, inline, vectorize
from engine.space.skeleton import Skeleton

RULES: dict[str, Callable[[Skeleton], list[Skeleton]]] = {
    "inline": inline.apply,
    "fuse": fuse.apply,
    "attach": attach.apply,
    "vectorize": vectorize.apply,
}


def derive(start: Skeleton) -> list[Skeleton]:
    """All skeletons that the rules make of one DAG."""
    found = [start]
    for rule in RULES.values():
        found = [new for old in found for new in rule(old)]
    return found
