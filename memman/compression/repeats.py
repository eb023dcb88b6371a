"""Folding repeated reads: of one source only the newest stays, the older ones become stubs that name it.

Two reads are of one source where both were added with the same `metadata={"fold_key": ...}`, or where they
say the same, character for character. Prose is never read for it: a name in a text proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from memman.compression.stages import LEAST_GAIN, stub_of
from memman.compression.view import EntryFactory, Goal, GroupIndex, Item, View
from memman.entries import NO_JSON, Entry
from memman.window import WindowItem

FOLD_KEY = "fold_key"
_IN_JSON = f'"{FOLD_KEY}"'.encode()
_SMALLEST_READ = 2 * LEAST_GAIN  # tokens
_READS = ("tool_result", "context")
_FOLDED = "[memman: entry #{} is a newer read of this; the original is entry #{}, {} tokens]"


def fold_repeats(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """Replaces tool results and contexts that were read again later by stubs, oldest first.

    Only in exchanges that may go; the newest read may stand anywhere, if it is shown as it was added.
    """
    tokens = view.tokens
    folded: dict[GroupIndex, Item] = {}
    for place, item, newest in _repeats(view):
        if tokens <= goal.tokens and not goal.thorough:
            break
        stub = stub_of(item, make_entry, _FOLDED, (newest.seq, item.position, item.tokens), "fold")
        if stub is not None:
            folded[place] = stub
            tokens += stub.tokens - item.tokens
    return view.with_replaced(folded) if folded else None


def _repeats(view: View) -> list[tuple[GroupIndex, WindowItem, Entry]]:
    """The reads that may be folded, oldest first, each with the newest read of the same."""
    reads = _reads(view)
    sizes = Counter(item.tokens for _, item in reads)
    newest: dict[Hashable, Entry] = {}
    found: list[tuple[GroupIndex, WindowItem, Entry]] = []
    for place, item in reversed(reads):
        entry = item.entry
        key = _key(entry)
        if key is None and sizes[item.tokens] > 1 and type(entry.content) is str:
            key = entry.content  # hashed only where another read is as large
        if key is None:
            continue
        if key not in newest:
            newest[key] = entry
        elif view.groups[place[0]].standing == "old":
            found.append((place, item, newest[key]))
    found.reverse()
    return found


def _reads(view: View) -> list[tuple[GroupIndex, WindowItem]]:
    """What was read and is shown as it was added."""
    return [
        ((number, index), item)
        for number, group in enumerate(view.groups)
        # Most exchanges without results are plain messages.
        if group.results or group.entries > 1 or group.window_items[0].entry.type == "context"
        for index, item in enumerate(group.window_items)
        if item.tokens > _SMALLEST_READ
        and item.entry.type in _READS
        and item.compression is None
        and group.is_added(index)
    ]


def _key(entry: Entry) -> Hashable:
    """The key that a read was added with; a failed read does not stand for those that went well."""
    raw = entry.metadata_json
    if raw is NO_JSON or entry.is_error or _IN_JSON not in bytes(raw):
        return None
    key = entry.metadata.get(FOLD_KEY)
    return None if key is None else (FOLD_KEY, str(key))
