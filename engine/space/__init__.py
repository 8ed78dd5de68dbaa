"""The search space: sketches derived from a compute DAG by rules, and their knobs."""

from engine.space.features import FEATURES, prior
from engine.space.sketch import Sketch, find, sketches
from engine.space.tiling import Knob
from engine.space.winograd import BOUND, allowed

__all__ = ["BOUND", "FEATURES", "Knob", "Sketch", "allowed", "find", "prior", "sketches"]
