"""Explanations of what compression did with a session. Pure functions of its records.

`history` has the status of every entry and compression, `explanation` is the result of `explain`, and
`cache_state` has its part about the provider's cache.
`comparison` compares the originals of one compression with their replacements, and `survival` those of all
compressions; `values` finds their exact values. `traces` follows a text, `shares` lists the largest parts
of a window, and `state_block` has its state block.
"""

from typing import TYPE_CHECKING

from memman.explain.cache_state import CacheState, cache_state
from memman.explain.explanation import Explanation, SummarizerState, Trigger, explained
from memman.explain.history import CompressionStatus, EntryStatus, LogHistory
from memman.explain.shares import LargeEntry, Share, Shares, shares_of
from memman.explain.state_block import StateBlock, sections_of, state_block_of
from memman.lazy_imports import on_first_use

if TYPE_CHECKING:
    from memman.explain.comparison import ComparedReplacement, ComparedValue, Comparison, compare
    from memman.explain.survival import Survival, SurvivalFold, SurvivingValues, survivals
    from memman.explain.traces import Found, Remnant, Trace, trace
    from memman.explain.values import KeptIn
else:
    __getattr__ = on_first_use(
        "memman.explain",
        {
            "comparison": "ComparedReplacement ComparedValue Comparison compare",
            "survival": "Survival SurvivalFold SurvivingValues survivals",
            "traces": "Found Remnant Trace trace",
            "values": "KeptIn",
        },
    )

__all__ = [
    "CacheState",
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
    "StateBlock",
    "SummarizerState",
    "Survival",
    "SurvivalFold",
    "SurvivingValues",
    "Trace",
    "LogHistory",
    "Trigger",
    "cache_state",
    "compare",
    "explained",
    "sections_of",
    "shares_of",
    "state_block_of",
    "survivals",
    "trace",
]
