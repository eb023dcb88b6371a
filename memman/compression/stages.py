"""The steps of a compression that need no summary: each a pure function of a view and a goal.

Order matters and is the preset's business: clear old tool results (in real agent traffic they are
72-90 % of the tokens), fold repeated reads (`memman.compression.folding`), summarise, clip what is out
of proportion, drop the oldest, clip the rest.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from memman.compression.layout import parts_of
from memman.compression.view import (
    Craft,
    Goal,
    Group,
    Item,
    Later,
    Place,
    View,
    in_place_of,
)
from memman.entries import Entry, text_of
from memman.errors import ConfigError
from memman.showing import shown
from memman.window import Slot

LEAST_GAIN = 20  # tokens: less is not worth a change of the prompt's prefix
_HEAD_SHARE = 0.6  # of a clipped text is its beginning, the rest its end
_CLIP_ATTEMPTS = 8
_SMALLEST_CLIP = 48  # tokens: below this little more than the notice would be left


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
                raise ConfigError(f"{name} must be a number of tokens, not {shown(value)}")
        if not isinstance(self.keep_tools, tuple) or not all(
            isinstance(name, str) for name in self.keep_tools
        ):
            raise ConfigError(f"keep_tools must be a tuple of names, not {shown(self.keep_tools)}")

    def __call__(self, view: View, goal: Goal, craft: Craft) -> View | None:
        """The view with results cleared until low water; None where there is too little to clear."""
        tokens = view.tokens
        groups = list(view.groups)
        for number, group in enumerate(view.groups[: self._reach(view)]):
            if group.results and group.standing == "old":
                if tokens <= goal.tokens:
                    break
                groups[number] = cleared = self._cleared(group, craft)
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
                results = [slot for slot in group.slots if slot.entry.type == "tool_result"]
                protected -= sum([slot.tokens for slot in results])
                if protected < 0:
                    return number + 1
        return 0

    def _cleared(self, group: Group, craft: Craft) -> Group:
        """The exchange with a stub for each result that is worth it."""
        items: list[Item] | None = None
        for index, slot in enumerate(group.slots):
            entry = slot.entry
            if (
                entry.type == "tool_result"
                and slot.tokens > LEAST_GAIN
                and group.is_added(index)
                and entry.name not in self.keep_tools
                and not entry.text.startswith(_STUB_HEAD)
            ):
                stub = stub_of(slot, craft, _STUB, (slot.position, slot.tokens))
                if stub is not None:
                    items = items or list(group.items)
                    items[index] = stub
        return group if items is None else group.with_items(items)


clear_tool_results = ClearToolResults()
"""`ClearToolResults` with its defaults: any old result may be cleared, whatever is gained."""
_STUB_HEAD = "[memman: this tool result was cleared to save space; it is entry "
_STUB = _STUB_HEAD + "#{}, {} tokens]"


def stub_of(
    slot: Slot,
    craft: Craft,
    template: str,
    numbers: tuple[int, ...],
    method: Literal["stub", "fold"] = "stub",
) -> Item | None:
    """The place of a slot, shown as added, with a text of ours in it; None where that gains too little.

    With nines for the digits of its numbers it costs as much and comes up again.
    """
    like = _like(template, *map(len, map(str, numbers)))
    later = Later(slot.entry, template, numbers, like, craft)
    tokens = craft.price(like)
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


def drop_oldest(view: View, goal: Goal, _craft: Craft) -> View | None:
    """Replaces whole exchanges by nothing, oldest first, until low water.

    Recent exchanges go only while the limit is exceeded, and a summary of what went before last.
    """
    tokens, entries = view.tokens, view.entries
    dropped: set[int] = set()
    for number in _dropping_order(view):
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


def clip_large(view: View, goal: Goal, craft: Craft) -> View | None:
    """Cuts the middle out of what is out of proportion, until the limit is kept.

    Older entries above `max_entry_ratio` of the budget first, then the newest exchange, each entry down
    to an even share, tool results first; the largest first each time. Pinned entries are never cut.
    """
    if goal.within_limit(view):
        return None
    allowed = max(goal.budget.entry_tokens, _SMALLEST_CLIP)
    older, newest = _clippable(view)
    share = max(_SMALLEST_CLIP, goal.limit // max(1, 2 * len(newest)))
    return _clipped_in_order(
        view, goal, craft, [(place, allowed) for place in older], [(p, share) for p in newest]
    )


def clip_rest(view: View, goal: Goal, craft: Craft) -> View | None:
    """Cuts whatever may be cut, as far down as a notice allows, when nothing else kept the limit."""
    if goal.within_limit(view):
        return None
    older, newest = _clippable(view)
    floor = _SMALLEST_CLIP
    return _clipped_in_order(
        view, goal, craft, [(place, floor) for place in older], [(p, floor) for p in newest]
    )


def _clippable(view: View) -> tuple[list[Place], list[Place]]:
    """The places of older entries and of the newest exchange, in the order in which they are clipped."""
    older: list[tuple[int, Place]] = []
    newest: list[tuple[bool, int, Place]] = []
    for number, group in enumerate(view.groups):
        for index, item in enumerate(group.items):
            if item.entry is None or any(slot.pinned for slot in item.run):
                continue
            if number < len(view.groups) - 1:
                older.append((item.tokens, (number, index)))
            else:
                result = item.entry.type == "tool_result"
                newest.append((result, item.tokens, (number, index)))
    older.sort(key=lambda found: -found[0])
    newest.sort(key=lambda found: (not found[0], -found[1]))
    return [place for _, place in older], [place for _, _, place in newest]


def _clipped_in_order(
    view: View,
    goal: Goal,
    craft: Craft,
    older: list[tuple[Place, int]],
    newest: list[tuple[Place, int]],
) -> View | None:
    """The view with places clipped, each to no less than its floor, until the limit is kept."""
    changed: dict[Place, Item] = {}
    tokens = view.tokens
    # Older ones half-way to low water, so that the next small entry does not ask for the same again.
    between = (goal.limit + min(goal.tokens, goal.limit)) // 2
    for places, aim in ((older, between), (newest, goal.limit)):
        for place, floor in places:
            number, index = place
            item = view.groups[number].items[index]
            if tokens <= aim or tokens <= goal.limit:
                break
            if item.tokens <= floor:
                continue
            clipped = _clipped(item, max(item.tokens - (tokens - aim), floor), craft)
            if clipped is None:
                continue
            tokens += clipped.tokens - item.tokens
            changed[place] = clipped
    return view.with_replaced(changed) if tokens < view.tokens else None


def _clipped(item: Item, wanted: int, craft: Craft) -> Item | None:
    """The item cut to at most `wanted` tokens, or None when that would not make it smaller."""
    entry = item.entry
    if entry is None or item.tokens <= wanted:
        return None
    text = text_of(entry.content)
    named = msgspec.structs.replace(entry, seq=item.number)
    keep = int(len(text) * wanted / item.tokens * 0.9)
    for _ in range(_CLIP_ATTEMPTS):
        made = craft(in_place_of(entry, clip_text(text, keep, named)))
        if made.token_count.tokens <= wanted or keep == 0:
            return _cut(item, made) if made.token_count.tokens < item.tokens else None
        keep = int(keep * min(0.8, wanted / made.token_count.tokens * 0.95))
        keep = keep if keep > 8 else 0
    return None


def _cut(item: Item, made: Entry) -> Item:
    """The item with a cut text; a summary of this very compression stays what others go into."""
    entry, method = item.entry, item.method
    if entry is None or method not in ("summary", "digest"):
        return item.replaced(made, "clip")
    return item.replaced(msgspec.structs.replace(made, id=entry.id), method)


def clip_text(text: str, keep: int, entry: Entry) -> str:
    """The first and last `keep` characters of a text with a notice of how much was cut between.

    A tool call's arguments stay a JSON object, so that every provider takes them. Of a summary what was
    written is cut, and what stands below it stays, as long as there is room for it.
    """
    if entry.type == "summary":
        parts = parts_of(text)
        room = keep - (len(text) - len(parts.body))
        if room >= 0 and parts.body != text:
            body = _without_middle(parts.body, room, entry)
            return msgspec.structs.replace(parts, body=body).text
    clipped = _without_middle(text, keep, entry)
    if entry.type != "tool_call":
        return clipped
    return msgspec.json.encode({"memman_clipped": clipped}).decode()


def _without_middle(text: str, keep: int, entry: Entry) -> str:
    head = int(keep * _HEAD_SHARE)
    tail = keep - head
    cut = len(text) - keep
    what = f"cut {cut} of {len(text)} characters" if text else "took out what is not text"
    notice = f"[memman {what} here; the original is entry #{entry.seq}]"
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n{notice}\n{end}" if keep else notice
