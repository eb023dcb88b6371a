"""Explaining what compression did: the fate of entries, what a replacement lost, where a text went.

`trail` reads a log, `explanation` is what `explain` answers with, `comparing` lays originals beside what
stands for them, `tracing` follows a text. Pure functions of records; `sessions` brings them.
"""

from memman.explaining.comparing import (
    ComparedReplacement,
    ComparedValue,
    Comparison,
    KeptIn,
    compare,
    comparisons,
)
from memman.explaining.explanation import Explanation, SummarizerState, Trigger, explained
from memman.explaining.tracing import Found, Remnant, Trace, trace
from memman.explaining.trail import CompressionFate, EntryFate, Trail

__all__ = [
    "ComparedReplacement",
    "ComparedValue",
    "Comparison",
    "CompressionFate",
    "EntryFate",
    "Explanation",
    "Found",
    "KeptIn",
    "Remnant",
    "SummarizerState",
    "Trace",
    "Trail",
    "Trigger",
    "compare",
    "comparisons",
    "explained",
    "trace",
]
