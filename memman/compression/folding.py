"""Folding repeated reads: of one source only the newest stays, the older ones become stubs that name it.

Two reads are of one source where both were added with the same `metadata={"fold_key": ...}`, or where they
say the same, character for character. Prose is never read for it: a name in a text proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from memman.compression.stages import LEAST_GAIN, stub_of
from memman.compression.view import Craft, Goal, Item, Place, View
from memman.entries import NO_JSON, Entry

FOLD_KEY = "fold_key"
_IN_JSON = f'"{FOLD_KEY}"'.encode()
_READS = ("tool_result", "context")


def fold_repeats(view: View, goal: Goal, craft: Craft) -> View | None:
    """Replaces tool results and contexts that were read again later by stubs, oldest first.

    Only in exchanges that may go; the newest read may stand anywhere, if it is shown as it was added.
    """
    tokens = view.tokens
    folded: dict[Place, Item] = {}
    for place, item, newest in _repeats(view):
        if tokens <= goal.tokens:
            break
        stub = _stub_of(item, newest, craft)
        if stub is not None:
            folded[place] = stub
            tokens += stub.tokens - item.tokens
    return view.with_replaced(folded) if folded else None


def _repeats(view: View) -> list[tuple[Place, Item, Entry]]:
    """The reads that may be folded, oldest first, each with the newest read of the same."""
    reads = _reads(view)
    sizes = Counter([item.tokens for _, item, _ in reads])
    newest: dict[Hashable, Entry] = {}
    found: list[tuple[Place, Item, Entry]] = []
    for place, item, key in reversed(reads):
        entry = item.entry
        if entry is None:
            continue
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


def _reads(view: View) -> list[tuple[Place, Item, Hashable]]:
    """What was read and is shown as it was added, with its key (None: only its content says what it is)."""
    return [
        ((number, index), item, _key(item.entry))
        for number, group in enumerate(view.groups)
        # Most exchanges without results are plain messages: their items need not be made.
        if group.results or len(group.slots) > 1 or group.slots[0].entry.type == "context"
        for index, item in enumerate(group.items)
        if item.method is None
        and item.run[0].compression is None
        and item.tokens > 2 * LEAST_GAIN
        and item.entry is not None
        and item.entry.type in _READS
    ]


def _key(entry: Entry) -> Hashable:
    """The key that a read was added with; a failed read does not stand for those that went well."""
    raw = entry.metadata_json
    if raw is NO_JSON or entry.is_error or _IN_JSON not in bytes(raw):
        return None
    key = entry.metadata.get(FOLD_KEY)
    return None if key is None else (FOLD_KEY, str(key))


def _stub_of(item: Item, newest: Entry, craft: Craft) -> Item | None:
    if item.entry is None:
        return None
    text = "[memman: entry #{} is a newer read of this; the original is entry #{}, {} tokens]"
    numbers = [str(number) for number in (newest.seq, item.entry.seq, item.tokens)]
    nines = ["9" * len(number) for number in numbers]
    return stub_of(item, craft, text.format(*numbers), text.format(*nines), "fold")
