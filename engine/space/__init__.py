"""The search space: sketches derived from a compute DAG by rules, and their knobs."""

from engine.space.features import FEATURES, prior
from engine.space.sketch import Sketch, find, find_sketch, sketches
from engine.space.tiling import Knob
from engine.space.winograd import BOUND, allowed

__all__ = [
    "BOUND", "FEATURES", "Knob", "Sketch", "allowed", "find", "find_sketch", "prior", "sketches",
]  # fmt: skip
