"""What fits: whether a window came down to where it should, and which budget would serve."""

from __future__ import annotations

from collections.abc import Callable

from memman.cli.problems import FindingError
from memman.manager import MemoryManager

_TRIES = 8


def enough(budget: int, required: int, tried: Callable[[int], int | None]) -> int | None:
    """A budget above `budget` that serves, found by trying; None when it is not found soon.

    `tried` says what is still required at a budget, None when it serves. What must stay grows a
    little with the budget, as larger pieces of entries may stay.
    """
    for _ in range(_TRIES):
        budget = max(required, budget + budget // 50 + 1)
        still = tried(budget)
        if still is None:
            return budget
        required = still
    return None


def check_fit(memory: MemoryManager, session_id: str, target: int | None = None) -> None:
    """Raises `FindingError` when the window is over its budget, or over a `target` in tokens."""
    stats = memory.get_stats(session_id)
    window = stats.active_tokens + stats.overhead_tokens
    if window > stats.max_tokens:
        raise FindingError(
            f"the window still has {window:,} tokens, over its budget of {stats.max_tokens:,}: "
            "the rest is pinned or recent (a context is cut to fit where what is pinned leaves room for it)"
        )
    if target is not None and stats.active_tokens > target:
        raise FindingError(
            f"the window still has {stats.active_tokens:,} tokens, over the target of {target:,}: "
            "the rest is pinned or recent"
        )
