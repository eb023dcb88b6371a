"""Explaining what compression did: the fate of entries, what a replacement lost, where a text went.

`trail` reads a log, `explanation` is what `explain` answers with, `comparing` lays originals beside what
stands for them, `surviving` says of all compressions at once which exact values came through (`values`
judges one), `tracing` follows a text. Pure functions of records; `sessions` brings them.
"""

from memman.explaining.comparing import (
    ComparedReplacement,
    ComparedValue,
    Comparison,
    compare,
)
from memman.explaining.explanation import Explanation, SummarizerState, Trigger, explained
from memman.explaining.shares import LargeEntry, Share, Shares, shares_of
from memman.explaining.surviving import Survival, SurvivingValues, survivals
from memman.explaining.tracing import Found, Remnant, Trace, trace
from memman.explaining.trail import CompressionFate, EntryFate, Trail
from memman.explaining.values import KeptIn

__all__ = [
    "ComparedReplacement",
    "ComparedValue",
    "Comparison",
    "CompressionFate",
    "EntryFate",
    "Explanation",
    "Found",
    "KeptIn",
    "LargeEntry",
    "Remnant",
    "Share",
    "Shares",
    "SummarizerState",
    "Survival",
    "SurvivingValues",
    "Trace",
    "Trail",
    "Trigger",
    "compare",
    "explained",
    "shares_of",
    "survivals",
    "trace",
]
