"""What compressions kept and lost, for people. Pure functions of a session's records.

`comparison` compares the originals of one compression with their replacements, and `survival` those of all
compressions; `values` finds their exact values. `traces` follows a text.
"""

from memman_cli.explain.comparison import ComparedReplacement, ComparedValue, Comparison, compare
from memman_cli.explain.survival import Survival, SurvivalFold, SurvivingValues
from memman_cli.explain.traces import Found, Remnant, Trace, trace
from memman_cli.explain.values import KeptIn

__all__ = [
    "ComparedReplacement",
    "ComparedValue",
    "Comparison",
    "Found",
    "KeptIn",
    "Remnant",
    "Survival",
    "SurvivalFold",
    "SurvivingValues",
    "Trace",
    "compare",
    "trace",
]
