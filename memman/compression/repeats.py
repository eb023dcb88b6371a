"""Folding of repeated reads: the newest read of a source stays, older ones become stubs that refer to it.

Two reads are of one source if they were added with the same `metadata={"fold_key": ...}`, or have the same
content, character for character. A name that appears in a text proves nothing.
"""

from __future__ import annotations

from collections.abc import Hashable

from memman.compression.stages import LEAST_GAIN, stub_of
from memman.compression.view import EntryFactory, Goal, Item, ItemIndex, View
from memman.entries import NO_JSON, Entry

FOLD_KEY = "fold_key"
_SMALLEST_READ = 2 * LEAST_GAIN  # tokens
_READS = ("tool_result", "context")


def fold_repeats(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Replace tool results and contexts that were read again later by stubs, oldest first.

    Only old exchanges are changed; the newest read may be anywhere, if it is shown as it was added.
    """
    tokens = view.tokens
    folded: dict[ItemIndex, Item] = {}
    for at, item, newest in _repeats(view):
        if tokens <= goal.tokens and not goal.thorough:
            break
        original = item.origin("the original")
        text = f"[memman: entry #{newest.seq} is a newer read of this; {original}]"
        if stub := stub_of(item, text, make_entry, "fold"):
            folded[at] = stub
            tokens += stub.tokens - item.tokens
    return view.with_items(folded) if folded else None


def _repeats(view: View) -> list[tuple[ItemIndex, Item, Entry]]:
    """Return the old reads that were repeated, oldest first, each with the newest read of its source."""
    newest: dict[Hashable, Entry] = {}
    found: list[tuple[ItemIndex, Item, Entry]] = []
    for at, item, entry in reversed(_reads(view)):
        key = _key(entry)
        if key is None:
            continue
        if key not in newest:
            newest[key] = entry
        elif view.groups[at[0]].status == "old":
            found.append((at, item, newest[key]))
    return found[::-1]


def _reads(view: View) -> list[tuple[ItemIndex, Item, Entry]]:
    """Return the tool results and contexts that are shown as they were added."""
    return [
        ((number, index), item, item.entry)
        for number, group in enumerate(view.groups)
        for index, item in enumerate(group.items)
        if item.entry is not None
        and item.tokens > _SMALLEST_READ
        and item.entry.type in _READS
        and item.method is None
        and item.run[0].compression is None
    ]


def _key(entry: Entry) -> Hashable:
    """Return the `fold_key` of a read, or its content; None if it has neither.

    A failed read has no `fold_key`: it does not replace successful ones.
    """
    if entry.metadata_json is not NO_JSON and not entry.is_error:
        key = entry.metadata.get(FOLD_KEY)
        if key is not None:
            return (FOLD_KEY, str(key))
    return entry.content if isinstance(entry.content, str) else None
