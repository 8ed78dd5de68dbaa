"""The search space: sketches derived from a compute DAG by rules, and their knobs."""

from engine.space.features import FEATURES, prior
from engine.space.sketch import Sketch, find, sketches
from engine.space.tiling import Knob

__all__ = ["FEATURES", "Knob", "Sketch", "find", "prior", "sketches"]
