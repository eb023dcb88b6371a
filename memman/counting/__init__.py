"""Counting: which counter answers for a model, and what it said.

`models` reads a model's name, `resolution` finds its counter, `meter` asks it and keeps its answers,
`builtin` has the counters that always answer, `estimator` the one of last resort, `calibration` learns
from what providers report.
`remote` asks a counter over a network; `failures`, `breaker` and `flight` are what it is made of.
"""

from memman.counting.breaker import Breaker
from memman.counting.builtin import BYTES4, CHARS4, builtin_specs
from memman.counting.calibration import learn, predicted
from memman.counting.estimator import TextEstimator, estimator_for
from memman.counting.failures import Fallen, failure_of
from memman.counting.meter import Meter
from memman.counting.models import FAMILIES, family_of, model_ref
from memman.counting.remote import RemoteMeter
from memman.counting.resolution import Candidate, Resolution, resolve, resolve_remote

__all__ = [
    "BYTES4",
    "CHARS4",
    "FAMILIES",
    "Breaker",
    "Candidate",
    "Fallen",
    "Meter",
    "RemoteMeter",
    "Resolution",
    "TextEstimator",
    "builtin_specs",
    "estimator_for",
    "failure_of",
    "family_of",
    "learn",
    "model_ref",
    "predicted",
    "resolve",
    "resolve_remote",
]
