"""Counting: which counter answers for a model, and what it said.

`resolution` finds the counter, `meter` asks it and keeps its answers, `builtin` has the estimators that
always answer.
"""

from memman.counting.builtin import BYTES4, CHARS4, builtin_specs
from memman.counting.meter import Meter
from memman.counting.resolution import Candidate, Resolution, model_ref, resolve

__all__ = [
    "BYTES4",
    "CHARS4",
    "Candidate",
    "Meter",
    "Resolution",
    "builtin_specs",
    "model_ref",
    "resolve",
]
