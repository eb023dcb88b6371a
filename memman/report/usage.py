"""How a session's window fills its budget: the figures of the bar in `memman stats` and in the report."""

from __future__ import annotations

import msgspec

from memman.entries import ENTRY_TYPES, MOST_TOKENS
from memman.manager import MemoryManager


class Usage(msgspec.Struct, frozen=True):
    """The use of a context window, in tokens: `parts` by type in the order of their display.

    `used` is all that is taken, `free` what is left; negative when over.
    """

    window: int
    used: int
    free: int
    parts: dict[str, int]


def usage_of(memory: MemoryManager, session_id: str) -> Usage:
    """How a session's whole window, rendered as OpenAI chat, fills its budget."""
    stats = memory.get_stats(session_id)
    # A budget that nothing exceeds: what is shown is the window, not a copy cut to fit.
    shares = memory.build_context(session_id, budget=MOST_TOKENS).breakdown
    always = (*ENTRY_TYPES, "framing", "reserved")
    extra = [name for name in shares if name not in always]
    parts = {name: shares.get(name, 0) for name in (*extra, *always)}
    used = sum(parts.values())
    return Usage(stats.max_tokens, used, stats.max_tokens - used, parts)
