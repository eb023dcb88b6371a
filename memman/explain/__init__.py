"""Explaining what compression did: the fate of entries, what a replacement lost, where a text went.

`trail` reads a log, `explanation` is what `explain` answers with, `comparing` lays originals beside what
stands for them, `surviving` says of all compressions at once which exact values came through (`values`
judges one), `tracing` follows a text. Pure functions of records; `sessions` brings them.
"""

from memman.explain.comparison import (
    ComparedReplacement,
    ComparedValue,
    Comparison,
    compare,
)
from memman.explain.explanation import Explanation, SummarizerState, Trigger, explained
from memman.explain.history import CompressionStatus, EntryStatus, LogHistory
from memman.explain.shares import LargeEntry, Share, Shares, shares_of
from memman.explain.survival import Survival, SurvivingValues, survivals
from memman.explain.trace import Found, Remnant, Trace, trace
from memman.explain.values import KeptIn

__all__ = [
    "ComparedReplacement",
    "ComparedValue",
    "Comparison",
    "CompressionStatus",
    "EntryStatus",
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
    "LogHistory",
    "Trigger",
    "compare",
    "explained",
    "shares_of",
    "survivals",
    "trace",
]
