"""The window: the active entries in order, their total, and the exchanges they form.

An exchange is an assistant message, its tool calls and all their results. A call and its result belong
together by `call_id` *and* order (real logs repeat ids), or by name and order without an id. Of several
calls, a result answers the first of the assistant's newest turn: no provider lets an assistant continue
before its calls are answered. Calls that an earlier turn left open stay open. Cuts fall only between
exchanges.

A result is late if the model was asked after its call: by a message of the user, or as a note of the next
reply says. By then its call was sent with a placeholder, which stays. A second result of a call is late
too. Such a result is an exchange of its own, shown behind its call once more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from memman.entries import NO_JSON, Entry, encode_json, note_of
from memman.errors import EntryNotFound, StoreError
from memman.protocols import Snapshot, StoredItem
from memman.records import Added, Compressed, Record, StateSetter
from memman.state import State, is_users_message

Price = Callable[[Entry], int]
STATE_INDEX = -2
"""The `index` of the item that shows the outline."""
RECALLED_INDEX = -3
"""The `index` of an item with a recalled text."""


def is_compaction(entry: Entry) -> bool:
    """Return whether an entry is a provider's compaction; no other summary keeps a provider's form."""
    return entry.type == "summary" and entry.raw_json is not NO_JSON


class WindowItem(msgspec.Struct, eq=False, gc=False):  # a result does not refer back: no cycle
    """An entry in the window: its position, its tokens, and the items that it belongs with.

    `index` and `compression` are set for a replacement: its index in its record, and that record's id.
    `Window.exchanges` sets the others: `result` is the item that answers a call, `answers` is true for a
    result with its call in the window, and `nth` counts the earlier calls with the same id. `again` is the
    call of a late result, which may have left the window.
    """

    entry: Entry
    position: int  # grows along the window
    tokens: int
    pinned: bool = False
    index: int = -1
    compression: str | None = None
    result: WindowItem | None = None
    answers: bool = False
    nth: int = 0
    again: Entry | None = None

    @property
    def is_users(self) -> bool:
        """Whether this is a message of the user."""
        return is_users_message(self.entry)

    @property
    def unanswered(self) -> bool:
        """Whether this is a call without a result."""
        return self.entry.type == "tool_call" and self.result is None

    @property
    def is_prompt(self) -> bool:
        """Whether this is a system message."""
        return self.entry.role == "system" and self.entry.type == "message"

    @property
    def is_sealed(self) -> bool:
        """Whether this is a compaction without a text: its provider alone can read it."""
        return not self.entry.content and is_compaction(self.entry)

    def shown(self) -> Entry:
        """Return the entry with its pin as it is now."""
        entry = self.entry
        if entry.pinned == self.pinned:
            return entry
        return msgspec.structs.replace(entry, pinned=self.pinned)

    def untie(self) -> None:
        """Forget the items that this one belongs with."""
        self.result, self.answers, self.nth = None, False, 0

    def take_result(self, result: WindowItem) -> None:
        """Link this call to its result."""
        self.result = result

    def mark_as_answer(self) -> None:
        """Note that the call of this result is in the window."""
        self.answers, self.again = True, None

    def repeat(self, call: Entry | None) -> None:
        """Set the call that this late result is shown with."""
        self.again = call

    def number(self, earlier: WindowItem | None) -> None:
        """Set the number of earlier calls with the same id, of which this is the last."""
        self.nth = 0 if earlier is None else earlier.nth + 1

    def place(self) -> StoredItem:
        """Return the item as a store keeps it."""
        return StoredItem(self.entry.seq, self.index, self.position, self.pinned)


class Exchange(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Items that are compressed together or not at all."""

    items: tuple[WindowItem, ...]

    @property
    def tokens(self) -> int:
        """The tokens of all items."""
        return sum(item.tokens for item in self.items)

    @property
    def pinned(self) -> bool:
        """Whether one of the items is pinned, or nothing can take its place."""
        return any(item.pinned or item.is_sealed for item in self.items)

    @property
    def unanswered(self) -> int:
        """The number of calls without a result."""
        return sum(item.unanswered for item in self.items)

    def is_like(self, other: Exchange) -> bool:
        """Return whether the other exchange has the same entries and results."""
        return len(self.items) == len(other.items) and all(
            one.entry is two.entry and one.unanswered == two.unanswered
            for one, two in zip(self.items, other.items, strict=True)
        )


_Turn = str | int  # a message id, or the number of entries by others that came before
_Key = tuple[str, str | None]


class OpenCalls:
    """The calls without a result, found by id or name; of each key by the assistant's turns."""

    def __init__(self) -> None:
        self._turns: dict[_Key, list[tuple[_Turn, list[WindowItem]]]] = {}

    def open(self, call: WindowItem, turn: _Turn) -> None:
        """Add a call behind the others."""
        for key in _keys(call.entry):
            turns = self._turns.setdefault(key, [])
            if not turns or turns[-1][0] != turn:
                turns.append((turn, []))
            turns[-1][1].append(call)

    def close(self, call: WindowItem) -> None:
        """Remove a call that has its result."""
        for key in _keys(call.entry):
            turns = self._turns.get(key, [])
            for at in reversed(range(len(turns))):
                if call in turns[at][1]:
                    turns[at][1].remove(call)
                    if not turns[at][1]:
                        del turns[at]
                    break
            if not turns:
                self._turns.pop(key, None)

    def first(self, result: Entry, taken: Container[str] = ()) -> WindowItem | None:
        """Return the call that a result answers, by its id, or without one by its name.

        A result without an id answers a call without one if there is any. No call is one of those `taken`.
        """
        call_id, name = result.call_id, result.name
        keys = [("bare", name), ("named", name)] if call_id is None else [("id", call_id)]
        turns = next((self._turns[key] for key in keys if key in self._turns), [])
        waiting = (call for _, calls in reversed(turns) for call in calls)
        return next((call for call in waiting if call.entry.id not in taken), None)


def _keys(call: Entry) -> set[_Key]:
    """Return the keys of a call; the name None means any name."""
    if call.call_id is None:
        return {("bare", call.name), ("bare", None)}
    return {("id", call.call_id), ("named", call.name), ("named", None)}


class ActiveState(msgspec.Struct, frozen=True, eq=False):
    """The outline of a window, and the exchange that shows it, which has one item."""

    state: State
    exchange: Exchange

    @classmethod
    def of(cls, seq: int, record: StateSetter, position: int, price: Price) -> ActiveState | None:
        """Return the block that a record sets, shown behind the item at `position`."""
        state = record.state
        if state is None:
            return None
        entry = msgspec.structs.replace(state_entry(record, state), seq=seq)
        item = WindowItem(entry, position, 0, False, STATE_INDEX, record.id)
        return cls(state, Exchange((item,))).priced(price)

    @property
    def item(self) -> WindowItem:
        """The item that shows the block; it is not among the window's items."""
        return self.exchange.items[0]

    @property
    def user_tokens(self) -> int:
        """About how many tokens the user's messages have in it, with those that found no room."""
        length = sum(len(item.text) for item in self.state.items if item.section == "user")
        if not self.state.text:
            return length // 3
        return self.item.tokens * length // len(self.state.text)

    def priced(self, price: Price) -> ActiveState:
        """Return the block with another price."""
        tokens = price(self.item.entry) if self.state.text else 0
        item = msgspec.structs.replace(self.item, tokens=tokens)
        return ActiveState(self.state, Exchange((item,)))

    @classmethod
    def unstored(cls, state: State, position: int, at: datetime) -> ActiveState:
        """Return a block for a window that is never stored."""
        item = WindowItem(_entry_of("outline", at, state), position, 0, False, STATE_INDEX)
        return cls(state, Exchange((item,))).priced(own_count)


def state_entry(record: StateSetter, state: State) -> Entry:
    """Return the outline that a record sets, as the summary of its compression."""
    return _entry_of(state.compression_id or record.id, record.at, state)


def _entry_of(name: str, at: datetime, state: State) -> Entry:
    return Entry(
        id=name,
        type="summary",
        role="system",
        content=state.text,
        timestamp=at,
        token_count=state.token_count,
        metadata_json=encode_json({"recall": state.recall} if state.recall else None, "metadata"),
    )


class _Pairing:
    """The exchanges of a list of items that grows at its end."""

    def __init__(self, items: Sequence[WindowItem], by_id: Mapping[str, WindowItem]) -> None:
        self.open_calls = OpenCalls()
        self.due = 0  # the open calls since the model was asked last
        self.missing: list[WindowItem] = []  # late results whose calls are not known
        self._items = items
        self._by_id = by_id
        self._paired = 0
        self._starts: list[int] = []  # the number of the first item of each exchange
        self._exchanges: list[Exchange] = []  # of the first starts; the others follow on reading
        self._messages: dict[str, WindowItem] = {}  # the first item of each message
        self._calls: dict[str, WindowItem] = {}  # the newest call of each id
        self._others = 0  # entries that are not the assistant's, and replies to further requests
        self._asked: list[WindowItem] = []  # the two newest items before which the model was asked

    def catch_up(self) -> None:
        """Pair the items that were appended since the last call."""
        for number in range(self._paired, len(self._items)):
            first = self._tie(number)
            if first is None:
                self._starts.append(number)
            else:
                while self._items[self._starts[-1]].position > first.position:
                    self._starts.pop()
                del self._exchanges[len(self._starts) - 1 :]
        self._paired = len(self._items)

    def exchanges(self) -> list[Exchange]:
        """Return the exchanges of the paired items."""
        made = self._exchanges
        ends = [*self._starts[len(made) + 1 :], self._paired]
        for start, end in zip(self._starts[len(made) :], ends, strict=False):
            made.append(Exchange(tuple(self._items[start:end])))
        return made

    def _tie(self, number: int) -> WindowItem | None:
        """Return the earliest item that an item belongs with, if any, and link a result to its call."""
        item = self._items[number]
        item.untie()
        entry = item.entry
        tied: WindowItem | None = None
        # The model was asked before a message of the user, and before the reply to a further request.
        asked = item.is_users or bool(note_of(entry, "prompted"))
        self._others += entry.role != "assistant" or asked
        if asked:
            self._asked, self.due = [*self._asked[-1:], item], 0
        if entry.type == "tool_result":
            tied = self._answer(item)
        elif entry.type == "tool_call":
            tied = self._register(item, None if asked or not number else self._items[number - 1])
        if entry.message_id is not None and entry.type != "summary":
            first = self._messages.setdefault(entry.message_id, item)
            if first is not item and (tied is None or first.position < tied.position):
                tied = first
        return tied

    def _answer(self, result: WindowItem) -> WindowItem | None:
        entry = result.entry
        known = note_of(entry, "call")
        call = self._by_id.get(known) if known else self.find_call(entry)
        if call is not None:
            self.open_calls.close(call)
            if not known and not self.is_late(call, entry):
                self.due -= 1
                call.take_result(result)
                result.mark_as_answer()
                return call
        if call is not None or not known:
            result.repeat(None if call is None else call.entry)
        elif result.again is None:
            self.missing.append(result)
        return None

    def find_call(self, result: Entry, taken: Container[str] = ()) -> WindowItem | None:
        """Return the open call that a result answers, or the newest one with its id and another result."""
        call = self.open_calls.first(result, taken)
        return call or (self._calls.get(result.call_id) if result.call_id else None)

    def is_late(self, call: WindowItem, result: Entry) -> bool:
        """Return whether a call has a result, or the model was asked since, in another message."""
        labels = (item.entry.message_id for item in self._asked if item.position > call.position)
        return call.result is not None or any(
            label is None or label != result.message_id for label in labels
        )

    def _register(self, call: WindowItem, previous: WindowItem | None) -> WindowItem | None:
        """Open a call; without a message id, it runs in parallel with a call directly before it."""
        entry = call.entry
        self.open_calls.open(call, self._others if entry.message_id is None else entry.message_id)
        self.due += 1
        if entry.call_id is not None:
            call.number(self._calls.get(entry.call_id))
            self._calls[entry.call_id] = call
        parallel = (
            previous is not None
            and previous.entry.type == "tool_call"
            and previous.entry.message_id is None
            and entry.message_id is None
        )
        return previous if parallel else None


class Window:
    """The active entries of a session at `head`, in order: the part that contexts are built from.

    `state` is the outline, which is no entry. Its tokens are among those of the window.
    """

    __slots__ = ("_by_id", "_pairing", "epoch", "head", "items", "shares", "state", "tokens")

    def __init__(
        self,
        items: Iterable[WindowItem] = (),
        head: int = 0,
        epoch: int = 0,
        state: ActiveState | None = None,
    ) -> None:
        self.items = list(items)  # read it, do not change it
        self.head = head
        self.epoch = epoch
        self.tokens = 0
        self.shares: dict[str, int] = {}  # the tokens by entry type
        for item in self.items:
            self._count(item, item.tokens)
        self.set_state(state)
        self._by_id = {item.entry.id: item for item in self.items}
        self._pairing: _Pairing | None = None

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Window:
        """Return the window that a store has kept."""
        items = []
        state = None
        for place, record in snapshot.window:
            if place.index == STATE_INDEX:
                if not isinstance(record, StateSetter):
                    raise StoreError(
                        f"the window refers to seq {place.seq}, which holds no outline"
                    )
                state = ActiveState.of(place.seq, record, place.position, own_count)
            else:
                items.append(_stored(place, record))
        return cls(items, snapshot.head, snapshot.epoch, state)

    def copy(self) -> Window:
        """Return a window of the same items."""
        return self.with_items(self.items)

    def with_items(self, items: Iterable[WindowItem]) -> Window:
        """Return a window of other items at the same place in the log."""
        return Window(items, self.head, self.epoch, self.state)

    def extended_to(self, items: Iterable[WindowItem]) -> Window:
        """Return a window of copies of these items, which has all of this one's in their order.

        The exchanges before the first other item are the same objects.
        """
        window = self.with_items(map(msgspec.structs.replace, items))
        exchanges = window.exchanges
        for number, (before, after) in enumerate(zip(self.exchanges, exchanges, strict=False)):
            if not before.is_like(after):
                break
            exchanges[number] = before
        return window

    def priced(self, price: Price) -> Window:
        """Return a window of the same entries with other prices."""
        state = self.state and self.state.priced(price)
        return Window(priced(self.items, price), self.head, self.epoch, state)

    @property
    def exchanges(self) -> list[Exchange]:
        """The exchanges in order; read the list, do not keep it."""
        return self._paired().exchanges()

    @property
    def shown_exchanges(self) -> list[Exchange]:
        """The exchanges with that of the outline among them, unless its text is empty.

        A provider's compaction comes first, since its provider ignores what is before it.
        """
        exchanges, state = self.exchanges, self.state
        if state is not None and state.state.text:
            at = bisect_right(exchanges, state.item.position, key=lambda one: one.items[0].position)
            exchanges = [*exchanges[:at], state.exchange, *exchanges[at:]]
        return _compaction_first(exchanges) if self.shares.get("summary") else exchanges

    @property
    def stored_items(self) -> list[WindowItem]:
        """The items that a store keeps: that of the outline first, if there is one."""
        return self.items if self.state is None else [self.state.item, *self.items]

    @property
    def pinned_tokens(self) -> int:
        """The tokens of the pinned entries."""
        return sum(item.tokens for item in self.items if item.pinned or item.is_sealed)

    def find(self, entry_id: str) -> WindowItem | None:
        """Return the item of an active entry."""
        return self._by_id.get(entry_id)

    @property
    def outline(self) -> WindowItem | None:
        """The item of the outline; None if it has no text."""
        return self.state.item if self.state is not None and self.state.state.text else None

    @property
    def shown_items(self) -> list[WindowItem]:
        """The items with that of the outline at its place."""
        outline, items = self.outline, self.items
        if outline is None:
            return items
        at = bisect_right(items, outline.position, key=_position)
        return [*items[:at], outline, *items[at:]]

    def shown(self, entry_id: str) -> WindowItem | None:
        """Return the item of an active entry, or of the outline."""
        outline = self.outline
        return outline if outline and outline.entry.id == entry_id else self.find(entry_id)

    def index(self, item: WindowItem) -> int:
        """Return the index of one of the items."""
        return bisect_left(self.items, item.position, key=_position)

    def open_call_of(self, result: Entry, taken: Container[str]) -> WindowItem | None:
        """Return the call that waits for a result to be added; `taken` as for `call_of`."""
        return self._paired().open_calls.first(result, taken)

    def call_of(self, result: Entry, taken: Container[str] = ()) -> tuple[WindowItem | None, bool]:
        """Return the call of a result to be added, and whether that is late.

        `taken` has the ids of calls whose results are about to be added before it.
        """
        pairing = self._paired()
        call = pairing.find_call(result, taken)
        return call, call is not None and pairing.is_late(call, result)

    def is_unsettled_at(self, head: int) -> bool:
        """Return whether a request at this head, with all entries, had text of memman's that may go away.

        It ended with the assistant, or had a placeholder for a result that may come.
        """
        last = self.items[-1] if self.items else None
        if last is None or last.position > head:
            return False
        return last.entry.role == "assistant" or self._paired().due > 0

    @property
    def missing(self) -> list[WindowItem]:
        """The late results whose calls are not in the window, for `again` to be set."""
        return self._paired().missing

    def forget_calls(self, ids: Collection[str]) -> None:
        """Show late results without these calls, which were deleted or retracted."""
        for number, item in enumerate(self.items):
            if item.again is not None and item.again.id in ids:
                self.replace(number, number + 1, [msgspec.structs.replace(item, again=None)])

    def only_system(self) -> bool:
        """Return whether the window has nothing but system messages, as at the start of a session."""
        return all(item.is_prompt for item in self.items)

    def _paired(self) -> _Pairing:
        pairing = self._pairing or _Pairing(self.items, self._by_id)
        self._pairing = None  # an interruption leaves no pairing that is half done
        pairing.catch_up()
        self._pairing = pairing
        return pairing

    # ------------------------------------------------------------ changes

    def add(self, entry: Entry, tokens: int) -> None:
        """Append an added entry; its seq is its position and the window's new head."""
        self.push(WindowItem(entry, entry.seq, tokens, entry.pinned))
        self.head = entry.seq

    def push(self, item: WindowItem) -> None:
        """Append an item."""
        self.items.append(item)
        self._by_id[item.entry.id] = item
        self._count(item, item.tokens)

    def _count(self, item: WindowItem, tokens: int) -> None:
        """Add the tokens of an item; negative ones if it leaves the window."""
        kind = item.entry.type
        self.tokens += tokens
        self.shares[kind] = self.shares.get(kind, 0) + tokens

    def replace(self, start: int, stop: int, items: Sequence[WindowItem]) -> None:
        """Replace the items from `start` to before `stop`."""
        for item in self.items[start:stop]:
            self._by_id.pop(item.entry.id, None)
            self._count(item, -item.tokens)
        for item in items:
            self._by_id[item.entry.id] = item
            self._count(item, item.tokens)
        self.items[start:stop] = items
        self._pairing = None

    def insert(self, items: Sequence[WindowItem]) -> None:
        """Insert items, which are in order, at their positions."""
        if not items:
            return
        start, stop = self.index(items[0]), self.index(items[-1])
        self.replace(start, stop, sorted([*self.items[start:stop], *items], key=_position))

    def remove(self, ids: Iterable[str]) -> None:
        """Remove entries; ids of other entries are ignored."""
        for item in filter(None, map(self.find, ids)):
            at = self.index(item)
            self.replace(at, at + 1, ())

    def pin(self, entry_id: str, on: bool) -> None:
        """Pin or unpin an entry. Raises `EntryNotFound` unless it is active."""
        item = self.find(entry_id)
        if item is None:
            why = "is not active in this session's window"
            hint = "a compressed entry: undo its compression first"
            if self.shown(entry_id) is not None:
                why = "is the outline, which each compression writes again"
                hint = "pin the entries that must stay, or add them as constraints"
            raise EntryNotFound(
                f"entry {entry_id!r} {why}, so it cannot be pinned or unpinned ({hint})"
            )
        at = self.index(item)
        self.replace(at, at + 1, [msgspec.structs.replace(item, pinned=on)])

    def clear(self) -> None:
        """Remove all entries and the outline."""
        self.replace(0, len(self.items), ())
        self.set_state(None)

    def set_state(self, state: ActiveState | None) -> None:
        """Replace the outline."""
        before = self.shares.get("state", 0)
        after = 0 if state is None else state.item.tokens
        self.state = state
        self.tokens += after - before
        if before or after:
            self.shares["state"] = after

    def state_position(self, state: State | None) -> int:
        """Return the position behind which an outline is shown.

        It is before the first entry that it covers, but behind the last summary that a compression made,
        and behind leading system messages.
        """
        covered = None if state is None else state.covered
        position = 0 if covered is None else max(0, covered.first - 1)
        leading = True
        for item in self.items:
            entry = item.entry
            leading = leading and item.is_prompt
            if leading or (entry.type == "summary" and item.compression is not None):
                position = max(position, item.position)
        return position

    def advance(self, head: int, epoch: int) -> None:
        """Set the place in the log that the window is at."""
        self.head = head
        self.epoch = epoch


def _position(item: WindowItem) -> int:
    return item.position


def _compaction_first(exchanges: list[Exchange]) -> list[Exchange]:
    """Return exchanges with the newest compaction that is in force before all but a system prompt.

    One that was undone represents entries that are shown, and is left out.
    """
    first: Exchange | None = None
    others: list[Exchange] = []
    start, is_replaceable = 0, False  # whether something was before it that it would have replaced
    for each in exchanges:
        item = each.items[0]
        if not is_compaction(item.entry):
            start += start == len(others) and item.is_prompt
            is_replaceable |= not each.pinned and item.entry.role != "system"
            others.append(each)
        elif item.compression is not None or not is_replaceable:
            first = each
    return others if first is None else [*others[:start], first, *others[start:]]


def priced(items: Iterable[WindowItem], price: Price) -> list[WindowItem]:
    """Return the items with other prices."""
    return [msgspec.structs.replace(item, tokens=price(item.entry)) for item in items]


def _stored(place: StoredItem, record: Record) -> WindowItem:
    """Return the item of a stored one and its record."""
    entry = record.entry if isinstance(record, Added) else None
    compression, replacement = None, 0
    if isinstance(record, Compressed):
        entry, compression = record.replacements[place.index].entry, record.id
        replacement = place.index + 1
    if entry is None:
        raise StoreError(f"the window refers to seq {place.seq}, which holds no entry")
    entry = msgspec.structs.replace(entry, seq=place.seq, replacement=replacement)
    tokens = entry.token_count.tokens
    return WindowItem(entry, place.position, tokens, place.pinned, place.index, compression)


def own_count(entry: Entry) -> int:
    """Return an entry's tokens as they were counted when it was recorded."""
    return entry.token_count.tokens
