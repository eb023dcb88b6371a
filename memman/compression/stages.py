"""The stages of a compression that need no summarizer: pure functions of a view and a goal.

The preset determines their order: clear old tool results (72-90 % of the tokens in real agent traffic),
fold repeated reads (`memman.compression.repeats`), summarize, clip disproportionate entries, drop the
oldest, clip the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from memman.compression.clips import clip
from memman.compression.view import EntryFactory, Goal, Group, Item, ItemIndex, View, in_place_of
from memman.display import safe_repr
from memman.errors import ConfigError

LEAST_GAIN = 20  # tokens: less does not justify a change of the prompt's prefix
_SMALLEST_CLIP = 48  # tokens: below this little more than the notice would be left
Floor = tuple[ItemIndex, int]
"""The index of an item, and the fewest tokens that a clip leaves of it."""


class ClearToolResults(msgspec.Struct, frozen=True, kw_only=True):
    """The stage that replaces old tool results by stubs, which name the original and its size.

    Args:
        protect_tokens: tokens of the newest results that stay, in addition to the recent window.
        keep_tools: the results of these tools stay.
        minimum_gain: tokens. If less can be gained in total nothing is cleared, because each change
            invalidates the provider's prompt cache.
    """

    protect_tokens: int = 0
    keep_tools: tuple[str, ...] = ()
    minimum_gain: int = 0

    def __post_init__(self) -> None:
        for name in ("protect_tokens", "minimum_gain"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(f"{name} must be a number of tokens, not {safe_repr(value)}")
        names = self.keep_tools
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"keep_tools must be a tuple of names, not {safe_repr(names)}")

    def __call__(self, view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
        """Return the view with results cleared down to the target; None if too little can be cleared."""
        tokens = view.tokens
        groups = list(view.groups)
        for number, recalled in self._order(view):
            if tokens <= goal.tokens and not goal.thorough:
                break
            group = groups[number]
            groups[number] = cleared = self._cleared(group, recalled, make_entry)
            tokens += cleared.tokens - group.tokens
        enough = view.tokens - tokens >= max(1, self.minimum_gain)
        return View.of(groups) if enough else None

    def _order(self, view: View) -> Iterator[tuple[int, bool]]:
        """Yield the old groups in the order of clearing, each with whether only recalled text goes.

        Recalled text goes first: the log has its original, and the agent can recall it again.
        """
        old = [number for number, group in enumerate(view.groups) if group.status == "old"]
        for number in old:
            if any(item.recalled for item in view.groups[number].items):
                yield number, True
        end = self._end(view)
        yield from ((number, False) for number in old if number < end)

    def _end(self, view: View) -> int:
        """Return the number of groups before the newest results, which are protected."""
        protected = self.protect_tokens
        if not protected:
            return len(view.groups)
        for number in reversed(range(len(view.groups))):
            results = [
                window_item.tokens
                for item in view.groups[number].items
                if not item.recalled
                for window_item in item.run
                if window_item.entry.type == "tool_result"
            ]
            protected -= sum(results)
            if protected < 0:
                return number + 1
        return 0

    def _cleared(self, group: Group, recalled: bool, make_entry: EntryFactory) -> Group:
        """Return the exchange with a stub for each result that is worth it: recalled ones, or others."""
        items = [self._stub(item, recalled, make_entry) or item for item in group.items]
        return group if items == list(group.items) else group.with_items(items)

    def _stub(self, item: Item, recalled: bool, make_entry: EntryFactory) -> Item | None:
        entry = item.entry
        if entry is None or entry.type != "tool_result" or item.method is not None:
            return None
        if item.recalled != recalled or (entry.name in self.keep_tools and not recalled):
            return None
        what, offer = "tool result", item.origin("it")
        if recalled:
            what, offer = "recalled text", "call the tool again for it"
        text = f"[memman: this {what} was cleared to save space; {offer}]"
        return stub_of(item, text, make_entry)


clear_tool_results = ClearToolResults()
"""`ClearToolResults` with its defaults: any old result may be cleared, however little is gained."""


def stub_of(
    item: Item, text: str, make_entry: EntryFactory, method: Literal["stub", "fold"] = "stub"
) -> Item | None:
    """Return the item with a short text in place of its entry; None if that gains too little."""
    if item.entry is None or item.tokens <= LEAST_GAIN:
        return None
    stub = item.replaced(make_entry(in_place_of(item.entry, text)), method)
    return stub if item.tokens - stub.tokens >= LEAST_GAIN else None


def drop_oldest(view: View, goal: Goal, _make_entry: EntryFactory) -> View | None:
    """Remove whole exchanges, oldest first, down to the target.

    Recent exchanges are removed only while the limit is exceeded, and earlier summaries last.
    """
    return _without(view, goal, _dropping_order(view))


def drop_over_limit(view: View, goal: Goal, _make_entry: EntryFactory) -> View | None:
    """Remove exchanges as `drop_oldest` does, but no summary, and only if they do not fit.

    They do not fit if a limit is exceeded, or if a target given by hand is exceeded and within reach.
    """
    if goal.within_limits(view) and (not goal.demanded or _out_of_reach(view, goal)):
        return None
    order = [number for number in _dropping_order(view) if not view.groups[number].is_summary]
    return _without(view, goal, order)


def _out_of_reach(view: View, goal: Goal) -> bool:
    """Return True if the old entries are too few for a summary, and dropping them all misses the target."""
    old = [group for group in view.groups if group.status == "old" and not group.is_summary]
    few = sum(group.entries for group in old) < goal.budget.min_entries
    return few and view.tokens - sum(group.tokens for group in old) > goal.tokens


def drop_summaries(view: View, goal: Goal, _make_entry: EntryFactory) -> View | None:
    """Remove summaries, oldest first, if nothing else reached the limit and this does."""
    order = [number for number in _dropping_order(view) if view.groups[number].is_summary]
    least = view.tokens - sum(view.groups[number].tokens for number in order)
    return _without(view, goal, order) if least <= goal.limit else None


def _without(view: View, goal: Goal, order: Sequence[int]) -> View | None:
    """Return the view without those of these groups that must be removed, first ones first."""
    tokens, entries = view.tokens, view.entries
    dropped: set[int] = set()
    for number in order:
        group = view.groups[number]
        if group.status == "old" and not group.is_summary:
            enough = goal.holds(tokens, entries)
        else:
            enough = tokens <= goal.limit
        if enough:
            continue
        dropped.add(number)
        tokens -= group.tokens
        entries -= group.entries
    return view.without(dropped) if dropped else None


def _dropping_order(view: View) -> list[int]:
    """Return the groups that may be removed: old before recent ones, summaries last."""
    removable = [
        (group.is_summary, group.status == "recent", number)
        for number, group in enumerate(view.groups)
        if group.status in ("old", "recent") and group.entries
    ]
    return [number for _, _, number in sorted(removable)]


def clip_large(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Cut the middle out of disproportionate entries until the limit is reached.

    Older entries above `max_entry_ratio` of the budget are cut first. Then the newest exchange is cut,
    each entry to an even share, tool results first; the largest are cut to one size. Pinned entries stay
    whole. A protected exchange shares that ratio among its entries; the newest user message is cut to no
    less.
    """
    if goal.within_limit(view):
        return None
    allowed = max(goal.budget.entry_tokens, _SMALLEST_CLIP)
    older, results, others = _clippable(view)
    protected = Counter(number for number, _ in older if view.groups[number].status == "protected")
    share = max(_SMALLEST_CLIP, goal.limit // max(1, 2 * len(results + others)))
    question = _question_of(view)

    def floor(at: ItemIndex, least: int) -> Floor:
        return at, max(least, allowed) if at == question else least

    floors = [floor(at, max(_SMALLEST_CLIP, allowed // max(1, protected[at[0]]))) for at in older]
    newest = [[floor(at, share) for at in indexes] for indexes in (results, others)]
    return _clipped_in_order(view, goal, make_entry, floors, newest)


def clip_few(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Cut old entries that are too few for a summary, then recent ones, if that reaches the limit.

    The largest are cut to one size. For a target given by hand the newest user message is cut too, to no
    less than half the target. A part of each entry stays, which `drop_over_limit` would remove.
    """
    aim = goal.tokens if goal.demanded else goal.limit
    old, recent = _with_status(view, "old"), _with_status(view, "recent")
    if view.tokens <= aim or len(old) >= goal.budget.min_entries:
        return None
    if goal.demanded and (question := _clippable_question(view)) is not None:
        old.append((question, max(_SMALLEST_CLIP, goal.tokens // 2)))
    clipped = _clipped(view, make_entry, old, aim if goal.demanded else _half_way(goal))
    if not goal.within_limit(clipped):
        clipped = _clipped(clipped, make_entry, recent, _half_way(goal))
    fits = clipped.tokens <= aim or (goal.within_limit(clipped) and _out_of_reach(view, goal))
    return clipped if fits else None


def _with_status(view: View, status: Literal["old", "recent"]) -> list[Floor]:
    """Return the items of exchanges with this status, without summaries."""
    return [
        ((number, index), _SMALLEST_CLIP)
        for number, group in enumerate(view.groups)
        if group.status == status and not group.is_summary
        for index, item in enumerate(group.items)
        if item.entry is not None
    ]


def clip_rest(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Cut everything that may be cut as far as a notice allows, if nothing else reached the limit.

    The newest user message is cut last.
    """
    if goal.within_limit(view):
        return None
    question = _question_of(view)
    older, *newest = [
        [(at, _SMALLEST_CLIP) for at in indexes if at != question] for indexes in _clippable(view)
    ]
    if question is not None and not _item(view, question).pinned:
        newest.append([(question, _SMALLEST_CLIP)])
    return _clipped_in_order(view, goal, make_entry, older, newest)


def _clippable_question(view: View) -> ItemIndex | None:
    """Return the index of the newest user message, unless it is pinned or in the newest exchange."""
    at = _question_of(view)
    if at is None or _item(view, at).pinned or view.groups[at[0]].status == "newest":
        return None
    return at


def _question_of(view: View) -> ItemIndex | None:
    """Return the index of the newest user message."""
    for number in reversed(range(len(view.groups))):
        items = view.groups[number].items
        for index in reversed(range(len(items))):
            if items[index].run[0].is_users and len(items[index].run) == 1:
                return number, index
    return None


def _item(view: View, at: ItemIndex) -> Item:
    return view.groups[at[0]].items[at[1]]


def _half_way(goal: Goal) -> int:
    """Return the middle of limit and target, so that the next small entry does not trigger another clip."""
    return (goal.limit + min(goal.tokens, goal.limit)) // 2


def _clippable(view: View) -> tuple[list[ItemIndex], list[ItemIndex], list[ItemIndex]]:
    """Return the older entries, and the tool results and the others of the newest exchange."""
    older: list[ItemIndex] = []
    results: list[ItemIndex] = []
    others: list[ItemIndex] = []
    for number, group in enumerate(view.groups):
        for index, item in enumerate(group.items):
            if item.entry is None or item.pinned:
                continue
            if number < len(view.groups) - 1:
                older.append((number, index))
            else:
                result = item.entry.type == "tool_result"
                (results if result else others).append((number, index))
    return older, results, others


def _clipped_in_order(
    view: View, goal: Goal, make_entry: EntryFactory, older: list[Floor], newest: list[list[Floor]]
) -> View | None:
    """Return the view with older items clipped, and then the newest while the limit is exceeded."""
    clipped = _clipped(view, make_entry, older, _half_way(goal))
    for floors in newest:
        if not goal.within_limit(clipped):
            clipped = _clipped(clipped, make_entry, floors, goal.limit)
    return clipped if clipped.tokens < view.tokens else None


def _clipped(view: View, make_entry: EntryFactory, floors: list[Floor], aim: int) -> View:
    """Return the view with the largest of these items clipped to one size, but none below its floor.

    The newest user message keeps its images and files.
    """
    sizes = {at: _item(view, at).tokens for at, _ in floors}
    level = _level([(sizes[at], floor) for at, floor in floors], view.tokens - aim)
    changed: dict[ItemIndex, Item] = {}
    tokens, question = view.tokens, _question_of(view)
    for at, floor in sorted(floors, key=lambda one: -sizes[one[0]]):
        item = _item(view, at)
        wanted = max(item.tokens - (tokens - aim), level, floor)
        if tokens <= aim or item.tokens <= wanted:
            continue
        clipped = clip(item, wanted, make_entry, keep_files=at == question)
        if clipped is not None:
            tokens += clipped.tokens - item.tokens
            changed[at] = clipped
    return view.with_items(changed) if changed else view


def _level(sizes: Sequence[tuple[int, int]], excess: int) -> int:
    """Return the size to which all larger items are cut to save `excess` tokens, none below its floor."""

    def is_too_high(level: int) -> bool:
        return sum(max(0, size - max(level, floor)) for size, floor in sizes) < excess

    levels = range(1, 1 + max((size for size, _ in sizes), default=0))
    return bisect_left(levels, True, key=is_too_high)
