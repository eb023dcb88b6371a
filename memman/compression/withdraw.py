"""The second look at a plan: what it removed and what still fits with the outline is put back."""

from __future__ import annotations

from typing import Final

from memman.compression.clips import clip
from memman.compression.view import EntryFactory, Goal, Group, Item, View

_LEAST_SHARE: Final = 16  # of a target, one part: a smaller clip is not worth it
_LEAST_CLIP: Final = 48  # tokens
_FIRST: Final = ("protected", "newest")  # they come before what is new
_CLIPPED: Final = ("tool_result", "message", "context")
# Replacements whose originals are in the window, or are in a summary.
_COPIES: Final = ("fold", "summary")


def withdrawn(before: View, after: View, goal: Goal, room: int, make_entry: EntryFactory) -> View:
    """Return a view without the replacements that the target does not need, the newest put back first.

    Whole exchanges return as long as no newer one is missing; results return one by one. An entry that is
    larger than `max_entry_ratio` allows is clipped to that size first, and gets more if the others leave
    it.

    Args:
        before: the view that the plan began with.
        after: the view that it came to.
        goal: the goal. A thorough one is left as it is.
        room: the tokens that may return.
        make_entry: makes the entries of clips.
    """
    if goal.thorough:
        return after
    originals = {id(group.window_items[0]): group for group in before.groups if group.window_items}
    groups = list(after.groups)
    order = sorted(range(len(groups)), key=lambda n: (groups[n].status not in _FIRST, -n))
    entries = 1 << 60 if goal.entries is None else goal.entries - after.entries
    for most in (goal.budget.entry_tokens, room):
        missing = False  # a newer exchange
        for number in order:
            group = groups[number]
            original = originals.get(id(group.window_items[0])) if group.window_items else None
            gone = not group.entries
            if original is None or len(original.items) != len(group.items):
                missing = True
            elif not gone or not (missing or original.entries > entries):
                put = _put_back(original, group, (room, most), goal, make_entry)
                room -= put.tokens - group.tokens
                entries -= put.entries - group.entries
                groups[number] = put
            missing = missing or not groups[number].entries
    return View.of(groups)


def _put_back(
    original: Group, group: Group, limits: tuple[int, int], goal: Goal, make_entry: EntryFactory
) -> Group:
    """Return an exchange with as many of its originals as fit, the newest first.

    `limits` are the tokens that may return, and those that one entry may have.
    """
    room, most = limits
    least = max(_LEAST_CLIP, goal.tokens // _LEAST_SHARE)
    gone = not group.entries
    left = room - sum(min(old.tokens, least) for old in original.items) if gone else room
    items: list[Item] = []
    for old, new in zip(reversed(original.items), reversed(group.items), strict=True):
        taken = min(old.tokens, least) if gone else new.tokens
        item = _more_of(old, new, min(most, left + taken), least, make_entry)
        if item.entry is None:
            return group
        left -= item.tokens - taken
        items.append(item)
    return group if left < 0 else group.with_items(reversed(items))


def _more_of(old: Item, new: Item, most: int, least: int, make_entry: EntryFactory) -> Item:
    """Return an entry in at most so many tokens: as it was, clipped, or in its replacement."""
    if new.method is None or new.method in _COPIES or old.recalled:
        return new
    if old.tokens <= most:
        return old
    if most < least or most <= new.tokens or old.entry is None or old.entry.type not in _CLIPPED:
        return new
    clipped = clip(old, most, make_entry)
    fits = clipped is not None and new.tokens < clipped.tokens <= most
    return clipped if clipped is not None and fits else new
