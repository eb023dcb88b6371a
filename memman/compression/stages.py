"""The steps of a compression that need no summary: each a pure function of a view and a goal.

Order matters and is the preset's business: clear old tool results (in real agent traffic they are
72-90 % of the tokens), fold repeated reads (`memman.compression.repeats`), summarise, clip what is out
of proportion, drop the oldest, clip the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Literal

import msgspec

from memman.compression.clips import clip
from memman.compression.view import (
    EntryFactory,
    Goal,
    Group,
    GroupIndex,
    Item,
    Later,
    Standing,
    View,
    question_of,
)
from memman.display import safe_repr
from memman.errors import ConfigError
from memman.window import WindowItem

LEAST_GAIN = 20  # tokens: less is not worth a change of the prompt's prefix
_SMALLEST_CLIP = 48  # tokens: below this little more than the notice would be left
Floor = tuple[GroupIndex, int]
"""A place, and the tokens that a clip leaves of it at least."""


class ClearToolResults(msgspec.Struct, frozen=True, kw_only=True):
    """The step that replaces old tool results by stubs that name the original and its size, oldest first.

    Args:
        protect_tokens: so many tokens of the newest results stay, beside the recent window.
        keep_tools: the results of these tools stay.
        minimum_gain: tokens; with less to be gained in all nothing is cleared, because each change
            costs the provider's prompt cache.
    """

    protect_tokens: int = 0
    keep_tools: tuple[str, ...] = ()
    minimum_gain: int = 0

    def __post_init__(self) -> None:
        for name in ("protect_tokens", "minimum_gain"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(f"{name} must be a number of tokens, not {safe_repr(value)}")
        if not isinstance(self.keep_tools, tuple) or not all(
            isinstance(name, str) for name in self.keep_tools
        ):
            raise ConfigError(
                f"keep_tools must be a tuple of names, not {safe_repr(self.keep_tools)}"
            )

    def __call__(self, view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
        """The view with results cleared until low water; None where there is too little to clear."""
        tokens = view.tokens
        groups = list(view.groups)
        for number, group in enumerate(view.groups[: self._reach(view)]):
            if group.results and group.standing == "old":
                if tokens <= goal.tokens and not goal.thorough:
                    break
                groups[number] = cleared = self._cleared(group, make_entry)
                tokens += cleared.tokens - group.tokens
        enough = view.tokens - tokens >= max(1, self.minimum_gain)
        return View(tuple(groups), tokens, view.entries) if enough else None

    def _reach(self, view: View) -> int:
        """How many of the groups lie before the results that are protected for being new."""
        protected = self.protect_tokens
        if not protected:
            return len(view.groups)
        for number in reversed(range(len(view.groups))):
            group = view.groups[number]
            if group.results:
                results = [slot for slot in group.window_items if slot.entry.type == "tool_result"]
                protected -= sum(slot.tokens for slot in results)
                if protected < 0:
                    return number + 1
        return 0

    def _cleared(self, group: Group, make_entry: EntryFactory) -> Group:
        """The exchange with a stub for each result that is worth it."""
        items: list[Item] | None = None
        for index, slot in enumerate(group.window_items):
            entry = slot.entry
            if (
                entry.type == "tool_result"
                and slot.tokens > LEAST_GAIN
                and group.is_added(index)
                and entry.name not in self.keep_tools
            ):
                stub = stub_of(slot, make_entry, _STUB, (slot.position, slot.tokens))
                if stub is not None:
                    items = items or list(group.items)
                    items[index] = stub
        return group if items is None else group.with_items(items)


clear_tool_results = ClearToolResults()
"""`ClearToolResults` with its defaults: any old result may be cleared, whatever is gained."""
_STUB = "[memman: this tool result was cleared to save space; it is entry #{}, {} tokens]"


def stub_of(
    slot: WindowItem,
    make_entry: EntryFactory,
    template: str,
    numbers: tuple[int, ...],
    method: Literal["stub", "fold"] = "stub",
) -> Item | None:
    """The place of a slot, shown as added, with a text of ours in it; None where that gains too little.

    With nines for the digits of its numbers it costs as much and comes up again.
    """
    like = _like(template, *map(len, map(str, numbers)))
    later = Later(slot.entry, template, numbers, like, make_entry)
    tokens = make_entry.price(like)
    stub = (
        Item((slot,), later, tokens, method)
        if tokens is not None
        else Item((slot,), None, 0).replaced(later.made(), method)
    )
    return stub if slot.tokens - stub.tokens >= LEAST_GAIN else None


@cache
def _like(template: str, *digits: int) -> str:
    """A text of ours with numbers of so many digits, all nines."""
    return template.format(*["9" * length for length in digits])


def drop_oldest(view: View, goal: Goal, _craft: EntryFactory) -> View | None:
    """Replaces whole exchanges by nothing, oldest first, until low water.

    Recent exchanges go only while the limit is exceeded, and a summary of what went before last.
    """
    return _without(view, goal, _dropping_order(view))


def drop_over_limit(view: View, goal: Goal, _craft: EntryFactory) -> View | None:
    """Drops as `drop_oldest` does, but no summary, and only where a limit is exceeded or low water was
    asked for by hand and is not out of reach. What fits is kept until there is enough for a summary.
    """
    if goal.within_limits(view) and (not goal.demanded or _out_of_reach(view, goal)):
        return None
    order = [number for number in _dropping_order(view) if not view.groups[number].is_summary]
    return _without(view, goal, order)


def _out_of_reach(view: View, goal: Goal) -> bool:
    """Whether low water is not met even without old entries that are too few for a summary."""
    old = [group for group in view.groups if group.standing == "old" and not group.is_summary]
    few = sum(group.entries for group in old) < goal.budget.min_entries
    return few and view.tokens - sum(group.tokens for group in old) > goal.tokens


def drop_summaries(view: View, goal: Goal, _craft: EntryFactory) -> View | None:
    """Drops summaries, oldest first, when nothing else kept the limit and that does."""
    order = [number for number in _dropping_order(view) if view.groups[number].is_summary]
    least = view.tokens - sum(view.groups[number].tokens for number in order)
    return _without(view, goal, order) if least <= goal.limit else None


def _without(view: View, goal: Goal, order: Sequence[int]) -> View | None:
    """The view without the first of these groups that it needs to lose."""
    tokens, entries = view.tokens, view.entries
    dropped: set[int] = set()
    for number in order:
        group = view.groups[number]
        if group.standing == "old" and not group.is_summary:
            enough = tokens <= goal.tokens and (goal.entries is None or entries <= goal.entries)
        else:
            enough = tokens <= goal.limit
        if enough:
            continue
        dropped.add(number)
        tokens -= group.tokens
        entries -= group.entries
    return view.without(dropped) if dropped else None


def _dropping_order(view: View) -> list[int]:
    numbered = [
        (number, group)
        for number, group in enumerate(view.groups)
        if group.standing in ("old", "recent") and group.entries
    ]
    rank = {"old": 0, "recent": 1}
    return [
        number
        for number, _ in sorted(
            numbered, key=lambda pair: (pair[1].is_summary, rank[pair[1].standing], pair[0])
        )
    ]


def clip_large(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Cuts the middle out of what is out of proportion, until the limit is kept.

    Older entries above `max_entry_ratio` of the budget first, then the newest exchange, each entry down
    to an even share, tool results first; the largest are cut to one size. Pinned entries are never cut.
    An exchange that no summary may take, such as one with an unanswered call, is held to that ratio whole;
    the newest user message is cut to no less.
    """
    if goal.within_limit(view):
        return None
    allowed = max(goal.budget.entry_tokens, _SMALLEST_CLIP)
    older, results, others = _clippable(view)
    fixed = Counter(number for number, _ in older if view.groups[number].standing == "fixed")
    share = max(_SMALLEST_CLIP, goal.limit // max(1, 2 * len(results + others)))
    question = question_of(view)

    def floor(place: GroupIndex, least: int) -> Floor:
        return place, max(least, allowed) if place == question else least

    floors = [
        floor(p, max(_SMALLEST_CLIP, allowed // fixed[p[0]]) if fixed[p[0]] else allowed)
        for p in older
    ]
    newest = [[floor(p, share) for p in places] for places in (results, others)]
    return _clipped_in_order(view, goal, make_entry, floors, newest)


def clip_few(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Cuts old entries that are too few for a summary, then recent ones, where that keeps the limit.

    The largest are cut to one size. For a target given by hand the newest user message is cut too, to no
    less than half of that. `drop_over_limit` would take them away; so something of each stays
    until there is enough for a summary.
    """
    aim = goal.tokens if goal.demanded else goal.limit
    old, recent = _of_standing(view, "old"), _of_standing(view, "recent")
    if view.tokens <= aim or len(old) >= goal.budget.min_entries:
        return None
    if goal.demanded and (question := _clippable_question(view)) is not None:
        old.append((question, max(_SMALLEST_CLIP, goal.tokens // 2)))
    clipped = _clipped(view, make_entry, old, aim if goal.demanded else _half_way(goal))
    if not goal.within_limit(clipped):
        clipped = _clipped(clipped, make_entry, recent, _half_way(goal))
    fits = clipped.tokens <= aim or (goal.within_limit(clipped) and _out_of_reach(view, goal))
    return clipped if fits else None


def _of_standing(view: View, standing: Standing) -> list[Floor]:
    """The places in exchanges that stand so, summaries left out."""
    return [
        ((number, index), _SMALLEST_CLIP)
        for number, group in enumerate(view.groups)
        if group.standing == standing and not group.is_summary
        for index, item in enumerate(group.items)
        if item.entry is not None
    ]


def clip_rest(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Cuts whatever may be cut, as far down as a notice allows, when nothing else kept the limit.

    The newest user message is cut last.
    """
    if goal.within_limit(view):
        return None
    question = question_of(view)
    older, *newest = [
        [(place, _SMALLEST_CLIP) for place in places if place != question]
        for places in _clippable(view)
    ]
    if question is not None and not _is_pinned(view, question):
        newest.append([(question, _SMALLEST_CLIP)])
    return _clipped_in_order(view, goal, make_entry, older, newest)


def _clippable_question(view: View) -> GroupIndex | None:
    """The place of the newest user message, if it is not pinned and not in the newest exchange."""
    place = question_of(view)
    if place is None or _is_pinned(view, place):
        return None
    return None if view.groups[place[0]].standing == "newest" else place


def _is_pinned(view: View, place: GroupIndex) -> bool:
    number, index = place
    return any(slot.pinned for slot in view.groups[number].items[index].run)


def _half_way(goal: Goal) -> int:
    """Half-way from the limit to low water, so that the next small entry does not ask for the same."""
    return (goal.limit + min(goal.tokens, goal.limit)) // 2


def _clippable(view: View) -> tuple[list[GroupIndex], list[GroupIndex], list[GroupIndex]]:
    """The places of older entries, and of the newest exchange those of tool results and the others."""
    older: list[GroupIndex] = []
    results: list[GroupIndex] = []
    others: list[GroupIndex] = []
    for number, group in enumerate(view.groups):
        for index, item in enumerate(group.items):
            if item.entry is None or _is_pinned(view, (number, index)):
                continue
            if number < len(view.groups) - 1:
                older.append((number, index))
            else:
                result = item.entry.type == "tool_result"
                (results if result else others).append((number, index))
    return older, results, others


def _clipped_in_order(
    view: View,
    goal: Goal,
    make_entry: EntryFactory,
    older: list[Floor],
    newest: list[list[Floor]],
) -> View | None:
    """The view with older places clipped and then, as long as the limit is exceeded, the newest."""
    clipped = _clipped(view, make_entry, older, _half_way(goal))
    for places in newest:
        if not goal.within_limit(clipped):
            clipped = _clipped(clipped, make_entry, places, goal.limit)
    return clipped if clipped.tokens < view.tokens else None


def _clipped(view: View, make_entry: EntryFactory, places: list[Floor], aim: int) -> View:
    """The view with the largest of these places clipped to one size, but each to no less than its floor."""
    sizes = {(n, index): view.groups[n].items[index].tokens for (n, index), _ in places}
    level = _level([(sizes[place], floor) for place, floor in places], view.tokens - aim)
    changed: dict[GroupIndex, Item] = {}
    tokens = view.tokens
    for place, floor in sorted(places, key=lambda one: -sizes[one[0]]):
        number, index = place
        item = view.groups[number].items[index]
        wanted = max(item.tokens - (tokens - aim), level, floor)
        if tokens <= aim or item.tokens <= wanted:
            continue
        clipped = clip(item, wanted, make_entry)
        if clipped is not None:
            tokens += clipped.tokens - item.tokens
            changed[place] = clipped
    return view.with_replaced(changed) if changed else view


def _level(sizes: Sequence[tuple[int, int]], excess: int) -> int:
    """The size down to which all that is larger must be cut to save so much, each not below its floor."""
    low, high = 0, max((size for size, _ in sizes), default=0)
    while low < high:
        level = (low + high + 1) // 2
        if sum(max(0, size - max(level, floor)) for size, floor in sizes) >= excess:
            low = level
        else:
            high = level - 1
    return low
