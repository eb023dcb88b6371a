"""How a session's window fills its budget: the figures of the bar in `memman stats` and in the report."""

from __future__ import annotations

import msgspec

from memman.entries import ENTRY_TYPES
from memman.manager import MemoryManager


class Usage(msgspec.Struct, frozen=True):
    """The use of a context window, in tokens: `parts` by type in the order of their display.

    `used` is all that is taken, `free` what is left; negative when over. Without a known limit `window` and
    `free` are None.
    """

    window: int | None
    used: int
    free: int | None
    parts: dict[str, int]


def usage_of(memory: MemoryManager, session_id: str, limited: bool = True) -> Usage:
    """How a session's whole window, with what stands beside its entries, fills its budget.

    With `limited=False` the manager's budget is a default that nobody chose, and is left out.
    """
    stats, types = memory.get_stats(session_id), memory.explain(session_id).shares.types
    parts = {str(kind): types.get(kind, 0) for kind in ENTRY_TYPES}
    parts["framing"] = max(0, stats.overhead_tokens)
    used = sum(parts.values())
    if not limited:
        return Usage(None, used, None, parts)
    return Usage(stats.max_tokens, used, stats.max_tokens - used, parts)
