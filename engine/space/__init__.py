"""The search space: sketches derived from a compute DAG by rules, and their knobs."""

from engine.space.algorithms import BOUND, allowed
from engine.space.features import FEATURES, prior
from engine.space.sketch import Sketch, find, find_sketch, sketches
from engine.space.tiling import Knob

__all__ = [
    "BOUND", "FEATURES", "Knob", "Sketch", "allowed", "find", "find_sketch", "prior", "sketches",
]  # fmt: skip
