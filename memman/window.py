"""The window: the active entries in order, their total, and the exchanges they form.

An exchange is an assistant message, its tool calls and all their results. A call and its result
belong together by `call_id` *and* order (real logs repeat ids), or by name and order without an id: of
the calls that one result could answer it answers the first of the assistant's newest turn, since no
provider lets an assistant go on before its calls are answered. What was left open before stays so.
Cuts fall only between exchanges.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from memman.entries import Entry
from memman.errors import Refused, StoreError
from memman.protocols import Snapshot, StoredItem
from memman.records import Added, Compressed, Record

_LOOSE = ("message", "context", "summary")  # not tied to others, unless by a shared message id


class WindowItem(msgspec.Struct, eq=False, gc=False):  # a result does not refer back: no cycle
    """An entry in the window: where it stands, what it costs, and what it is tied to.

    `result` is the slot that answers a call, and `answers` says of a result that its call is in the
    window. `nth` counts the earlier calls of the window that carry the same id. `index` and
    `compression` are set for a replacement: its place in its record, and that record's id.
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

    @property
    def unanswered(self) -> bool:
        """A call that has no result yet."""
        return self.entry.type == "tool_call" and self.result is None

    def place(self) -> StoredItem:
        """How a store keeps this slot."""
        return StoredItem(self.entry.seq, self.index, self.position, self.pinned)


class Exchange(msgspec.Struct, eq=False, gc=False):
    """The slots that may only be taken whole, their tokens, and what of them matters to who cuts.

    `slots` is another tuple whenever they change, so who holds one can see that they did. `pinned`
    says whether one of them is, `unanswered` how many calls lack a result, `results` how many
    results there are.
    """

    items: tuple[WindowItem, ...]
    tokens: int
    pinned: bool
    unanswered: int = 0
    results: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether each call has its result here, and each result its call."""
        return not self.unanswered and (
            not self.results
            or all(slot.answers for slot in self.items if slot.entry.type == "tool_result")
        )

    def count(self, later: Exchange) -> None:
        """Counts in what follows, whose slots come over with it."""
        self.tokens += later.tokens
        self.pinned |= later.pinned
        self.unanswered += later.unanswered
        self.results += later.results


class OpenCalls:
    """The calls without a result, in order: each is found and closed without a look at the others.

    `slots` is always the window, where what stands between two calls tells of which turn they are.
    """

    __slots__ = ("_bare", "_by_id", "_named")

    def __init__(self) -> None:
        self._by_id: dict[str | None, _Calls] = {}
        self._bare: dict[str | None, _Calls] = {}  # those without an id, by name
        # Those with an id by name: made when a result without one asks, and kept from then on.
        self._named: dict[str | None, _Calls] | None = None

    @property
    def crowded(self) -> bool:
        """Whether a result may have to choose between calls by what stands between them."""
        queues = self._by_id, self._bare, self._named or {}
        return any(isinstance(calls, list) for queue in queues for calls in queue.values())

    def open(self, call: WindowItem, items: Sequence[WindowItem]) -> None:
        """Puts a call behind the others."""
        entry = call.entry
        if entry.call_id is None:
            _put(self._bare, entry.name, call, items)
        else:
            _put(self._by_id, entry.call_id, call, items)
            if self._named is not None:
                _put(self._named, entry.name, call, items)

    def close(self, call: WindowItem) -> None:
        """Takes out a call that has its result."""
        entry = call.entry
        if entry.call_id is None:
            _take_out(self._bare, entry.name, call)
        else:
            _take_out(self._by_id, entry.call_id, call)
            if self._named is not None:
                _take_out(self._named, entry.name, call)

    def first(
        self, call_id: str | None, name: str | None, items: Sequence[WindowItem]
    ) -> WindowItem | None:
        """The one that a result with this id answers, or without one, of this name.

        A result without an id goes to a call without one where there is such a call.
        """
        if call_id is not None:
            return _first(self._by_id.get(call_id))
        return _first_named(self._bare, name, items) or _first_named(
            self._with_ids(items), name, items
        )

    def _with_ids(self, items: Sequence[WindowItem]) -> dict[str | None, _Calls]:
        if self._named is None:
            self._named = {}
            waiting = [call for calls in self._by_id.values() for call in _each(calls)]
            for call in sorted(waiting, key=_position):
                _put(self._named, call.entry.name, call, items)
        return self._named


# One call, as nearly always, or several: by the assistant's turns, and of each in order. Ordered as no
# dict is from which the first are taken out: finding the next would take longer and longer.
_Calls = WindowItem | list[OrderedDict[WindowItem, None]]


def _put(
    queues: dict[str | None, _Calls], key: str | None, call: WindowItem, items: Sequence[WindowItem]
) -> None:
    waiting = queues.setdefault(key, call)
    if waiting is call:
        return
    if isinstance(waiting, WindowItem):
        waiting = queues[key] = [OrderedDict.fromkeys((waiting,))]
    if _of_one_turn(next(reversed(waiting[-1])), call, items):
        waiting[-1][call] = None
    else:
        waiting.append(OrderedDict.fromkeys((call,)))


def _take_out(queues: dict[str | None, _Calls], key: str | None, call: WindowItem) -> None:
    turns = queues[key]
    if isinstance(turns, WindowItem):
        del queues[key]
        return
    at = len(turns) - 1
    while call not in turns[at]:
        at -= 1
    del turns[at][call]
    if not turns[at]:
        del turns[at]
    if len(turns) == 1 and len(turns[0]) == 1:
        queues[key] = next(iter(turns[0]))


def _of_one_turn(earlier: WindowItem, later: WindowItem, items: Sequence[WindowItem]) -> bool:
    """Whether the assistant made two calls before anybody else came to word."""
    message_id = earlier.entry.message_id
    if message_id is not None or later.entry.message_id is not None:
        return message_id == later.entry.message_id
    at = min(bisect_left(items, later.position, key=_position), len(items) - 1)  # or still to come
    while items[at].entry.role == "assistant" and items[at] is not earlier:
        at -= 1
    return items[at] is earlier


def _each(calls: _Calls) -> Iterable[WindowItem]:
    return (calls,) if isinstance(calls, WindowItem) else chain.from_iterable(calls)


def _first(calls: _Calls | None) -> WindowItem | None:
    """The first of the newest turn: what an earlier turn still waits for has been passed over."""
    return next(iter(calls[-1])) if isinstance(calls, list) else calls


def _first_named(
    queues: dict[str | None, _Calls], name: str | None, items: Sequence[WindowItem]
) -> WindowItem | None:
    """The one to answer of a name; of any name where the result has none."""
    if name is not None:
        return _first(queues.get(name))
    firsts = sorted(filter(None, map(_first, queues.values())), key=_position)
    return next((call for call in firsts if _of_one_turn(call, firsts[-1], items)), None)


def _position(slot: WindowItem) -> int:
    return slot.position


class Window:
    """The fold of a session's records up to `head`: the part that a context is built from."""

    __slots__ = (
        "_call_ids", "_exchanges", "_growing", "_messages", "_open", "_repeats", "epoch", "head", "items",
        "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.head = 0
        self.epoch = 0
        self._reset()

    def _reset(self) -> None:
        self.tokens = 0
        self.items: list[WindowItem] = []  # the active entries in order; read it, do not keep it
        self._exchanges: list[Exchange] = []
        # The slots of the last exchange while it grows, perhaps long: its tuple is made when asked for.
        self._growing: list[WindowItem] | None = None
        # Made when the first call or shared message comes: many sessions have neither.
        self._open: OpenCalls | None = None
        self._messages: dict[str, WindowItem] | None = None
        self._call_ids: dict[str, int] | None = None
        self._repeats = False  # whether a call carries the id of an earlier one

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Window:
        """The window that a store has kept."""
        window = cls()
        window.reshape(
            (_slot_of(place, record) for place, record in snapshot.window),
            snapshot.head,
            snapshot.epoch,
        )
        return window

    @property
    def exchanges(self) -> list[Exchange]:
        """The slots by what one may cut; read it, do not keep it."""
        if self._growing is not None:
            self._write_down(self._growing)
        return self._exchanges

    @property
    def pinned_tokens(self) -> int:
        """How many of the tokens are those of pinned entries."""
        return sum(
            slot.tokens for one in self.exchanges if one.pinned for slot in one.items if slot.pinned
        )

    def _write_down(self, growing: Sequence[WindowItem]) -> None:
        """Gives the last exchange the slots that it has by now."""
        last = self._exchanges[-1]
        if len(growing) > len(last.items):
            last.items = tuple(growing)

    def find(self, entry_id: str) -> WindowItem | None:
        """The slot that shows this entry, the newest first looked at; None where none does."""
        return next((slot for slot in reversed(self.items) if slot.entry.id == entry_id), None)

    def add(self, entry: Entry, pinned: bool, price: int | None = None) -> None:
        """Appends an added entry; its seq is its position and the window's new head.

        It costs its own count, or `price` where another counter is in use.
        """
        tokens = entry.token_count.tokens if price is None else price
        self.push(WindowItem(entry, entry.seq, tokens, pinned))
        self.head = entry.seq

    def push(self, slot: WindowItem) -> None:
        """Puts a slot at the end and ties it to the exchange it belongs to."""
        entry = slot.entry
        alone = Exchange((slot,), slot.tokens, slot.pinned)
        tied = None
        if entry.type not in _LOOSE or entry.message_id is not None:
            tied = self._tie(slot, alone)
        if tied is None:
            if self._growing is not None:
                self._write_down(self._growing)
                self._growing = None
            self._exchanges.append(alone)
        else:
            self._join(tied, alone)
        self.items.append(slot)
        self.tokens += slot.tokens

    def _join(self, tied: WindowItem, alone: Exchange) -> None:
        """Puts a new slot into the exchange of one that it is tied to, and all that stands between."""
        exchanges = self._exchanges
        at = len(exchanges) - 1
        while exchanges[at].items[0].position > tied.position:
            at -= 1
        joined, later = exchanges[at], [alone]
        if len(joined.items) == 1 and at == len(exchanges) - 1 and self._growing is None:
            joined.count(alone)  # a call and its result, as most are
            joined.items += alone.items
            return
        if self._growing is None or at < len(exchanges) - 1:
            later = [*self.exchanges[at + 1 :], alone]
            del exchanges[at + 1 :]
            self._growing = list(joined.items)
        for exchange in later:
            joined.count(exchange)
            self._growing += exchange.items

    def reshape(
        self,
        items: Iterable[WindowItem],
        head: int,
        epoch: int,
        touched: tuple[int, int] | None = None,
    ) -> None:
        """Takes a new list of slots, as one change of shape.

        `touched` is the stretch of the slots as they were outside of which nothing changes; what
        lies outside keeps its exchanges.
        """
        listed = list(items)
        if touched is None or not self._patch(listed, *touched):
            self._reset()
            for slot in listed:
                self.push(_untied(slot))
        self.head = head
        self.epoch = epoch

    def _patch(self, items: list[WindowItem], start: int, stop: int) -> bool:
        """Ties anew only what was touched; False, with nothing changed, where ties may go beyond."""
        exchanges = self.exchanges
        if self._repeats or not exchanges or (self._open is not None and self._open.crowded):
            return False
        first = begin = 0
        while begin + len(exchanges[first].items) <= start:
            begin += len(exchanges[first].items)
            first += 1
        last, end = first, begin
        while end < stop:
            end += len(exchanges[last].items)
            last += 1
        stays = len(self.items) - end
        between = Window()
        for slot in items[begin : len(items) - stays]:
            between.push(_untied(slot))
        before, after = exchanges[first:last], between.exchanges
        if any(one.unanswered for one in before) or not all(one.is_closed for one in after):
            return False
        edges = [*exchanges[first - 1 : first], *after, *exchanges[last : last + 1]]
        if _may_join(edges[:2]) or _may_join(edges[-2:]):
            return False
        self._forget([slot.entry for exchange in before for slot in exchange.items])
        if between._messages:
            self._messages = {**(self._messages or {}), **between._messages}
        if between._call_ids:
            self._call_ids = {**(self._call_ids or {}), **between._call_ids}
        self.items = items
        self._exchanges = [*exchanges[:first], *after, *exchanges[last:]]
        self._growing = None
        self.tokens += between.tokens - sum(exchange.tokens for exchange in before)
        return True

    def _forget(self, entries: Iterable[Entry]) -> None:
        """Lets go of the ids by which entries could have tied others."""
        call_ids, messages = self._call_ids or {}, self._messages or {}
        for entry in entries:
            if entry.message_id is not None:
                messages.pop(entry.message_id, None)
            if entry.type == "tool_call" and entry.call_id is not None:
                call_ids.pop(entry.call_id, None)

    def only_system(self) -> bool:
        """Whether nothing but system messages is in the window: the head of a session."""
        return all(
            slot.entry.role == "system" and slot.entry.type == "message" for slot in self.items
        )

    def _tie(self, slot: WindowItem, alone: Exchange) -> WindowItem | None:
        """The earliest slot that must stay with this one, and the links between the two."""
        entry = slot.entry
        kind = entry.type
        tied: WindowItem | None = None
        if kind == "tool_result":
            alone.results = 1
            tied = self._answer(slot, alone)
        elif kind == "tool_call":
            alone.unanswered = 1
            tied = self._register(slot)
        message_id = entry.message_id
        if message_id is not None:
            if self._messages is None:
                self._messages = {}
            first = self._messages.setdefault(message_id, slot)
            if first is not slot and (tied is None or first.position < tied.position):
                tied = first
        return tied

    def _answer(self, result: WindowItem, alone: Exchange) -> WindowItem | None:
        call = self.open_call(result.entry.call_id, result.entry.name)
        if call is not None and self._open is not None:
            self._open.close(call)
            call.result = result
            result.answers = True
            alone.unanswered = -1  # of the exchange that this one goes into
        return call

    def open_call(self, call_id: str | None, name: str | None) -> WindowItem | None:
        """The open call that a result with this id answers, or without one, of this name.

        A result without an id goes to a call without one where there is such a call.
        """
        return None if self._open is None else self._open.first(call_id, name, self.items)

    def _register(self, call: WindowItem) -> WindowItem | None:
        """Opens a call; a call without ids that directly follows another runs in parallel with it."""
        if self._open is None:
            self._open = OpenCalls()
        self._open.open(call, self.items)
        entry = call.entry
        if entry.call_id is not None:
            if self._call_ids is None:
                self._call_ids = {}
            call.nth = self._call_ids.get(entry.call_id, 0)
            self._call_ids[entry.call_id] = call.nth + 1
            if call.nth:
                self._repeats = True
        previous = self.items[-1] if self.items else None
        return previous if previous is not None and _parallel(previous.entry, entry) else None


def _parallel(previous: Entry, entry: Entry) -> bool:
    """Whether a call that directly follows another was made in parallel with it."""
    return (
        entry.type == "tool_call"
        and previous.type == "tool_call"
        and entry.message_id is None
        and previous.message_id is None
    )


def _may_join(neighbours: Sequence[Exchange]) -> bool:
    """Whether calls that now follow each other directly were made in parallel."""
    return len(neighbours) == 2 and _parallel(
        neighbours[0].items[-1].entry, neighbours[1].items[0].entry
    )


def _untied(slot: WindowItem) -> WindowItem:
    """The slot as it is before it is put into a window."""
    slot.result = None
    slot.answers = False
    slot.nth = 0
    return slot


def _slot_of(place: StoredItem, record: Record) -> WindowItem:
    """A slot from what a store keeps of it."""
    if isinstance(record, Compressed):
        entry = record.replacements[place.index].entry
        compression: str | None = record.id
        replacement = place.index + 1
    else:
        entry = record.entry if isinstance(record, Added) else None
        compression, replacement = None, 0
    if entry is None:
        raise StoreError(f"the window refers to seq {place.seq}, which holds no entry")
    entry = msgspec.structs.replace(entry, seq=place.seq, replacement=replacement)
    tokens = entry.token_count.tokens
    return WindowItem(entry, place.position, tokens, place.pinned, place.index, compression)


def compress_slots(items: Sequence[WindowItem], record: Compressed, seq: int) -> list[WindowItem]:
    """The window with the replacements of `record` (which has or will have `seq`) in place.

    Raises `Refused` unless every run is active, contiguous, unpinned and disjoint from the others.
    """
    return replaced_in(items, record, seq)[0]


def replaced_in(
    items: Sequence[WindowItem], record: Compressed, seq: int
) -> tuple[list[WindowItem], tuple[int, int]]:
    """What `compress_slots` gives, and the stretch of `slots` outside of which nothing changes."""
    places = {slot.entry.id: at for at, slot in enumerate(items)}
    runs = [
        (places.get(item.ids[0], -1) if item.ids else -1, number)
        for number, item in enumerate(record.replacements)
    ]
    runs.sort()
    if not runs or runs[0][0] < 0:
        missing = record.replacements[runs[0][1]].ids[:1] if runs else ()
        raise Refused(f"a run to be replaced is not in the window: it begins with {missing}")
    result: list[WindowItem] = []
    done = 0
    for at, number in runs:
        item = record.replacements[number]
        if at < done:
            raise Refused(f"two runs to be replaced overlap at entry {item.ids[0]}")
        run = items[at : at + len(item.ids)]
        _check_run(run, item.ids)
        result += items[done:at]
        if item.entry is not None:
            entry = msgspec.structs.replace(item.entry, seq=seq, replacement=number + 1)
            tokens = entry.token_count.tokens
            result.append(WindowItem(entry, run[0].position, tokens, False, number, record.id))
        done = at + len(run)
    result += items[done:]
    return result, (runs[0][0], done)


def _check_run(run: Sequence[WindowItem], ids: Sequence[str]) -> None:
    for slot, entry_id in zip(run, ids, strict=False):
        if slot.entry.id != entry_id:
            raise Refused(f"the run to be replaced is not contiguous at entry {entry_id}")
        if slot.pinned:
            raise Refused(f"entry {entry_id} is pinned")
    if len(run) != len(ids):
        raise Refused(f"the run to be replaced goes beyond the window at entry {ids[len(run)]}")
