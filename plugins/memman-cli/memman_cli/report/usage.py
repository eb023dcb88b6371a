"""The use of a session's budget: the figures of the bar in `memman stats` and in the report."""

from __future__ import annotations

import msgspec

from memman.entries import ENTRY_TYPES
from memman.manager import MemoryManager


class Usage(msgspec.Struct, frozen=True):
    """The use of a context window in tokens, with `parts` by type in the order of display.

    `free` is negative if the window is over its limit. Without a known limit, `window` and `free` are None.
    """

    window: int | None
    used: int
    free: int | None
    parts: dict[str, int]


def usage_of(memory: MemoryManager, session_id: str, limited: bool = True) -> Usage:
    """Return the use of a session's budget by its window and its overhead.

    `limited=False` leaves out the manager's budget, if it is only a default.
    """
    stats, types = memory.get_stats(session_id), memory.explain(session_id).shares.types
    parts = {str(kind): types.get(kind, 0) for kind in ENTRY_TYPES}
    parts["state"] = types.get("state", 0)
    parts["framing"] = max(0, stats.overhead_tokens)
    used = sum(parts.values())
    if not limited:
        return Usage(None, used, None, parts)
    return Usage(stats.max_tokens, used, stats.max_tokens - used, parts)
