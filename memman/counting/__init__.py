"""Counting: which counter answers for a model, and what it said.

`models` reads a model's name, `resolution` finds its counter, `meter` asks it and keeps its answers,
`strangers` looks at what plugins list and make before it is used.
`builtin` has the estimators that always answer, `calibration` learns from what providers report.
`remote` asks a counter over a network; `failures`, `breaker` and `flight` are what it is made of.
"""

from memman.counting.breaker import Breaker
from memman.counting.builtin import BYTES4, CHARS4, builtin_specs
from memman.counting.calibration import learn, predicted
from memman.counting.failures import Fallen, failure_of
from memman.counting.meter import Meter
from memman.counting.models import FAMILIES, family_of, model_ref
from memman.counting.remote import RemoteMeter
from memman.counting.resolution import Candidate, Resolution, resolve, resolve_remote
from memman.counting.strangers import sound_specs

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
    "builtin_specs",
    "failure_of",
    "family_of",
    "learn",
    "model_ref",
    "predicted",
    "resolve",
    "resolve_remote",
    "sound_specs",
]
