"""What a stage of one's own returns is checked before anything is done with it.

memman's own stages are held by their tests and are not checked when they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from memman.compression.view import EntryFactory, Group, Item, View
from memman.display import safe_repr
from memman.entries import ENTRY_TYPES, NO_JSON, Entry, NewEntry, Role, check_new_entry
from memman.errors import InvalidInput
from memman.records import ReplacementMethod
from memman.summary_metadata import covered_by
from memman.window import WindowItem

_METHODS = get_args(ReplacementMethod)
_ROLES = get_args(Role)
_PLACE = ("type", "role", "call_id", "name", "message_id")  # what ties an entry to its exchange


class WatchedFactory:
    """A craft that knows what it made, so that no entry gets in that was not counted."""

    def __init__(self, make_entry: EntryFactory) -> None:
        self._craft = make_entry
        self.made: dict[str, Entry] = {}

    def __call__(self, new_entry: NewEntry, *, like: str | None = None) -> Entry:
        """The entry of a draft, always counted as what it is."""
        if not isinstance(new_entry, NewEntry):
            raise InvalidInput(f"craft takes a Draft, not {type(new_entry).__name__}")
        entry = self._craft(_checked(new_entry))
        self.made[entry.id] = entry
        return entry

    def price(self, like: str) -> None:
        """Unknown: what a stage of one's own shows is made, and counted, when it is asked for."""


def _checked(new_entry: NewEntry) -> NewEntry:
    """The draft, with plain strings. Refuses one that no verb could make or no reading could take."""
    new_entry = check_new_entry(new_entry)
    if new_entry.type not in ENTRY_TYPES or new_entry.role not in _ROLES:
        raise InvalidInput(
            f"a draft cannot be a {safe_repr(new_entry.type)} of the role {safe_repr(new_entry.role)}"
        )
    if new_entry.raw_json is not NO_JSON:
        raise InvalidInput("a draft of one's own has no raw")
    if new_entry.metadata_json is not NO_JSON and new_entry.type != "summary":
        raise InvalidInput("a draft of one's own has no metadata")
    if new_entry.type == "summary":
        covered_by(new_entry)
    return new_entry


def fault_of(before: View, after: object, make_entry: WatchedFactory) -> str:
    """What is wrong with what a stage made of a view; "" where nothing is."""
    if not isinstance(after, View):
        return f"{type(after).__name__}, not a View"
    fault = (
        _wrong_kind(after)
        or _other_slots(before, after)
        or _touched(before, after)
        or _wrong_items(before, after, make_entry)
        or _wrong_sums(before, after)
    )
    return f"a view that {fault}" if fault else ""


def _wrong_kind(view: View) -> str:
    for group in view.groups if isinstance(view.groups, tuple) else (view.groups,):
        if not isinstance(group, Group):
            return f"has {type(group).__name__} where a Group belongs"
        for item in group.items if isinstance(group.items, tuple) else (group.items,):
            if not isinstance(item, Item):
                return f"has {type(item).__name__} where an Item belongs"
            if not _is_run(item.run):
                return "has an item whose run is no tuple of slots"
            if not isinstance(item.entry, Entry | None):
                return f"shows {type(item.entry).__name__} where an Entry belongs"
    return ""


def _is_run(run: object) -> bool:
    return (
        isinstance(run, tuple) and run != () and all(isinstance(slot, WindowItem) for slot in run)
    )


def _other_slots(before: View, after: View) -> str:
    """Whether it stands for the same slots in the same order, each once."""
    had = [slot for group in before.groups for slot in group.window_items]
    has = [slot for group in after.groups for item in group.items for slot in item.run]
    if _same(had, has):
        for group in after.groups:
            of_items = [slot for item in group.items for slot in item.run]
            if not of_items or not _same(list(group.window_items), of_items):
                return "has a group whose slots are not those of its items"
        return ""
    known, seen = {id(slot) for slot in had}, set[int]()
    for slot in has:
        if id(slot) not in known:
            return f"stands for the entry {slot.entry.id!r}, which is not of this window"
        if id(slot) in seen:
            return f"stands for the entry {slot.entry.id!r} twice"
        seen.add(id(slot))
    lost = next((slot for slot in had if id(slot) not in seen), None)
    if lost is not None:
        return f"lost the entry {lost.entry.id!r}: what goes stays as an item that shows nothing"
    return "changed the order of the window"


def _same(some: Sequence[WindowItem], others: Sequence[WindowItem]) -> bool:
    return len(some) == len(others) and all(
        one is other for one, other in zip(some, others, strict=True)
    )


def _touched(before: View, after: View) -> str:
    """Whether each exchange is whole or gone, and what may not go is there as it was."""
    hidden = {
        id(slot)
        for group in after.groups
        for item in group.items
        if not _in_place(item)
        for slot in item.run
    }
    places = {id(group.window_items[0]): group for group in after.groups if group.window_items}
    for group in before.groups:
        first = repr(group.window_items[0].entry.id)
        gone = [id(slot) in hidden for slot in group.window_items]
        if any(gone) and group.standing in ("fixed", "newest"):
            return f"took out the entry {first}, whose exchange is {group.standing}"
        if all(gone):
            continue
        if any(gone):
            return f"split the exchange of the entry {first}: it stays or goes as a whole"
        now = places.get(id(group.window_items[0]))
        if now is None or (now.standing, now.results) != (group.standing, group.results):
            return f"changed how the exchange of the entry {first} stands"
        if not _same(list(now.window_items), list(group.window_items)):
            return f"split or joined the exchange of the entry {first}"
        if group.standing == "fixed" and not all(map(_only_clipped, now.items)):
            return f"replaced something in the exchange of the entry {first}, which is fixed"
    return ""


def _only_clipped(item: Item) -> bool:
    """Whether the item is as it was, or cut: what is not pinned may be, however its exchange stands."""
    return item.method is None or (item.method == "clip" and not item.run[0].pinned)


def _in_place(item: Item) -> bool:
    """Whether the entry shown is the slot's own or does for its exchange what that did."""
    entry = item.entry
    if len(item.run) != 1 or entry is None:
        return False
    own = item.run[0].entry
    return entry is own or all(getattr(entry, name) == getattr(own, name) for name in _PLACE)


def _wrong_items(before: View, after: View, make_entry: WatchedFactory) -> str:
    """Whether each entry shown is the window's own, an earlier stage's, or one that `craft` made."""
    earlier = {id(item) for group in before.groups for item in group.items}
    items = [item for group in after.groups for item in group.items]
    often = Counter(item.entry.id for item in items if item.entry is not None)
    if twice := [entry_id for entry_id, times in often.items() if times > 1]:
        return f"shows the entry {twice[0]!r} twice"
    for item in items:
        if id(item) not in earlier and (fault := _wrong_item(item, make_entry)):
            return fault
    speaking = {item.entry.id for item in items if item.entry and item.method is not None}
    dangling = [item.into for item in items if item.into is not None and item.into not in speaking]
    return (
        f"has a run that goes into {safe_repr(dangling[0])}, which is not shown" if dangling else ""
    )


def _wrong_item(item: Item, make_entry: WatchedFactory) -> str:
    entry, method = item.entry, item.method
    if method is None:
        slot = item.run[0] if len(item.run) == 1 else None
        whole = slot is not None and entry is slot.entry and item.tokens == slot.tokens
        return "" if whole else "replaced something without saying by which method"
    if method not in _METHODS:
        return f"names the method {safe_repr(method)}; known are {', '.join(_METHODS)}"
    if entry is None:
        nothing = item.tokens == 0 and (method == "drop") == (item.into is None)
        return (
            ""
            if nothing
            else f"shows nothing by the method {safe_repr(method)}, or has tokens for it"
        )
    if make_entry.made.get(entry.id) is not entry:
        return f"shows an entry that `craft` did not make: {entry.id!r}"
    if item.tokens != entry.token_count.tokens:
        return f"gives the entry {entry.id!r} other tokens than it has"
    tied = entry.type in ("tool_call", "tool_result") or entry.message_id is not None
    if method == "drop" or item.into is not None or (tied and not _in_place(item)):
        return f"shows the entry {entry.id!r} where it cannot stand"
    return ""


def _wrong_sums(before: View, after: View) -> str:
    for group in after.groups:
        tokens = sum(item.tokens for item in group.items)
        entries = sum(item.entry is not None for item in group.items)
        if (group.tokens, group.entries) != (tokens, entries):
            return "has a group with wrong totals: make groups by with_items"
    if (after.tokens, after.entries) != (
        sum(group.tokens for group in after.groups),
        sum(group.entries for group in after.groups),
    ):
        return "has wrong totals: make views by with_groups"
    if after.tokens > before.tokens:
        return f"has {after.tokens} tokens, more than the {before.tokens} before"
    return ""
