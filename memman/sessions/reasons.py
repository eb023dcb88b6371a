"""What a compression says of what it left as it was."""

from __future__ import annotations

from collections.abc import Sequence

from memman.compression import Goal, Step, View
from memman.presets import SUMMARISE

_STAY = "pinned, without a result, recent, newest, or a summary"


def why_short(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """What to say of a compression that did not come down to low water; "" where it did."""
    if goal.met(after):
        return ""
    stays = f"{after.tokens} tokens stay instead of {goal.tokens}"
    if after.tokens <= goal.tokens:
        stays = f"{after.entries} entries stay instead of {goal.entries}"
    return f"; {stays}: {why_old_stay(after, goal, stages) or _STAY}"


def why_kept(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """Why a plan leaves old entries that it might take."""
    return "the target was met first" if goal.met(after) else why_old_stay(after, goal, stages)


def why_old_stay(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """Why entries are left that might have gone; "" where there are none."""
    groups = [one for one in after.groups if one.standing == "old" and not one.is_summary]
    old = sum([group.entries for group in groups])
    if not old:
        return ""
    if SUMMARISE in stages and old < goal.budget.min_entries:
        least = f"min_entries_to_compress={goal.budget.min_entries}"
        fit = ", and they fit" if goal.within_limits(after) else ""
        return f"too few old entries for a summary ({old}, {least}){fit}"
    return f"the strategy leaves {old} old entries"


def why_hopeless(pinned: int, goal: Goal) -> str:
    """Why no compression can help; "" where one can: the pinned tokens alone are over the limit."""
    if pinned <= goal.limit:
        return ""
    return f"pinned entries alone take {pinned} of {goal.limit} tokens: unpin some, or raise max_tokens"
