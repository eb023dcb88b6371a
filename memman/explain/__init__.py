"""Explanations of what compression did with a session. Pure functions of its records.

`history` has the status of every entry and compression, `explanation` is the result of `explain`, and
`cache_state` has its part about the provider's cache. `shares` lists the largest parts of a window, and
`state_block` has its outline.
"""

from memman.explain.explanation import Explanation, explained
from memman.explain.history import CompressionStatus, LogHistory
from memman.explain.shares import LargeEntry, Share, Shares, shares_of
from memman.explain.state_block import StateBlock, sections_of, state_block_of

__all__ = [
    "CompressionStatus",
    "Explanation",
    "LargeEntry",
    "Share",
    "Shares",
    "StateBlock",
    "LogHistory",
    "explained",
    "sections_of",
    "shares_of",
    "state_block_of",
]
