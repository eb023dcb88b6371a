"""The window: the active entries in order, their total, and the exchanges they form.

An exchange is an assistant message, its tool calls and all their results. A call and its result
belong together by `call_id` *and* order (real logs repeat ids), or by name and order without an id.
Cuts fall only between exchanges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from memman.entries import Entry
from memman.errors import Refused, StoreError
from memman.ports import Place, Snapshot
from memman.records import Added, Compressed, Record

_LOOSE = ("message", "context", "summary")  # not tied to others, unless by a shared message id


class Slot(msgspec.Struct, eq=False, gc=False):  # a result does not refer back: no cycle
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
    result: Slot | None = None
    answers: bool = False
    nth: int = 0

    @property
    def unanswered(self) -> bool:
        """A call that has no result yet."""
        return self.entry.type == "tool_call" and self.result is None

    def place(self) -> Place:
        """How a store keeps this slot."""
        return Place(self.entry.seq, self.index, self.position, self.pinned)


class Exchange(msgspec.Struct, eq=False, gc=False):
    """The slots that may only be taken whole, their tokens, and what of them matters to who cuts.

    `slots` is another tuple whenever they change, so who holds one can see that they did. `pinned`
    says whether one of them is, `unanswered` how many calls lack a result, `results` how many
    results there are.
    """

    slots: tuple[Slot, ...]
    tokens: int
    pinned: bool
    unanswered: int = 0
    results: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether each call has its result here, and each result its call."""
        return not self.unanswered and (
            not self.results
            or all([slot.answers for slot in self.slots if slot.entry.type == "tool_result"])
        )

    def absorb(self, later: Exchange) -> None:
        """Takes over the slots of the exchange that follows."""
        self.slots += later.slots
        self.tokens += later.tokens
        self.pinned |= later.pinned
        self.unanswered += later.unanswered
        self.results += later.results


class Window:
    """The fold of a session's records up to `head`: the part that a context is built from."""

    __slots__ = (
        "_call_ids", "_messages", "_open", "_repeats", "epoch", "exchanges", "head", "slots",
        "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.head = 0
        self.epoch = 0
        self._reset()

    def _reset(self) -> None:
        self.tokens = 0
        self.slots: list[Slot] = []  # the active entries in order; read it, do not keep it
        self.exchanges: list[Exchange] = []  # the same, by what one may cut; not to be kept either
        # Made when the first call or shared message comes: many sessions have neither.
        self._open: list[Slot] | None = None
        self._messages: dict[str, Slot] | None = None
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

    def find(self, entry_id: str) -> Slot | None:
        """The slot that shows this entry, the newest first looked at; None where none does."""
        return next((slot for slot in reversed(self.slots) if slot.entry.id == entry_id), None)

    def add(self, entry: Entry, pinned: bool, price: int | None = None) -> None:
        """Appends an added entry; its seq is its position and the window's new head.

        It costs its own count, or `price` where another counter is in use.
        """
        seq = entry.seq
        tokens = entry.token_count.tokens if price is None else price
        self.push(Slot(entry, seq, tokens, pinned))
        self.head = seq

    def push(self, slot: Slot) -> None:
        """Puts a slot at the end and ties it to the exchange it belongs to."""
        entry = slot.entry
        alone = Exchange((slot,), slot.tokens, slot.pinned)
        exchanges = self.exchanges
        if _is_loose(entry):
            exchanges.append(alone)
        else:
            tied = self._tie(slot, alone)
            exchanges.append(alone)
            while tied is not None and exchanges[-1].slots[0].position > tied.position:
                later = exchanges.pop()
                exchanges[-1].absorb(later)
        self.slots.append(slot)
        self.tokens += slot.tokens

    def reshape(
        self, slots: Iterable[Slot], head: int, epoch: int, touched: tuple[int, int] | None = None
    ) -> None:
        """Takes a new list of slots, as one change of shape.

        `touched` is the stretch of the slots as they were outside of which nothing changes; what
        lies outside keeps its exchanges.
        """
        listed = list(slots)
        if touched is None or not self._patch(listed, *touched):
            self._reset()
            for slot in listed:
                self.push(_untied(slot))
        self.head = head
        self.epoch = epoch

    def _patch(self, slots: list[Slot], start: int, stop: int) -> bool:
        """Ties anew only what was touched; False, with nothing changed, where ties may go beyond."""
        exchanges = self.exchanges
        if self._repeats or not exchanges:
            return False
        first = begin = 0
        while begin + len(exchanges[first].slots) <= start:
            begin += len(exchanges[first].slots)
            first += 1
        last, end = first, begin
        while end < stop:
            end += len(exchanges[last].slots)
            last += 1
        stays = len(self.slots) - end
        between = Window()
        for slot in slots[begin : len(slots) - stays]:
            between.push(_untied(slot))
        before, after = exchanges[first:last], between.exchanges
        if any([one.unanswered for one in before]) or not all([one.is_closed for one in after]):
            return False
        edges = [*exchanges[first - 1 : first], *after, *exchanges[last : last + 1]]
        if _may_join(edges[:2]) or _may_join(edges[-2:]):
            return False
        self._forget([slot.entry for exchange in before for slot in exchange.slots])
        if between._messages:
            self._messages = {**(self._messages or {}), **between._messages}
        if between._call_ids:
            self._call_ids = {**(self._call_ids or {}), **between._call_ids}
        self.slots = slots
        self.exchanges = [*exchanges[:first], *after, *exchanges[last:]]
        self.tokens += between.tokens - sum([exchange.tokens for exchange in before])
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
            slot.entry.role == "system" and slot.entry.type == "message" for slot in self.slots
        )

    def _tie(self, slot: Slot, alone: Exchange) -> Slot | None:
        """The earliest slot that must stay with this one, and the links between the two."""
        entry = slot.entry
        kind = entry.type
        tied: Slot | None = None
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

    def _answer(self, result: Slot, alone: Exchange) -> Slot | None:
        call = self.open_call(result.entry.call_id, result.entry.name)
        if call is not None:
            opened = self._open or []
            self._open = [other for other in opened if other is not call] if opened[1:] else None
            call.result = result
            result.answers = True
            alone.unanswered = -1  # of the exchange that this one goes into
        return call

    def open_call(self, call_id: str | None, name: str | None) -> Slot | None:
        """The first open call that a result with this id answers, or without one, of this name.

        A result without an id goes to a call without one where there is such a call.
        """
        calls = self._open or ()
        if call_id is not None:
            return next((call for call in calls if call.entry.call_id == call_id), None)
        named = [call for call in calls if name in (None, call.entry.name)]
        bare = (call for call in named if call.entry.call_id is None)
        return next(bare, named[0] if named else None)

    def _register(self, call: Slot) -> Slot | None:
        """Opens a call; a call without ids that directly follows another runs in parallel with it."""
        if self._open is None:
            self._open = []
        self._open.append(call)
        entry = call.entry
        if entry.call_id is not None:
            if self._call_ids is None:
                self._call_ids = {}
            call.nth = self._call_ids.get(entry.call_id, 0)
            self._call_ids[entry.call_id] = call.nth + 1
            if call.nth:
                self._repeats = True
        previous = self.slots[-1] if self.slots else None
        return previous if previous is not None and _parallel(previous.entry, entry) else None


def _is_loose(entry: Entry) -> bool:
    """Whether an entry is never tied to another."""
    return entry.message_id is None and entry.type in _LOOSE


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
        neighbours[0].slots[-1].entry, neighbours[1].slots[0].entry
    )


def _untied(slot: Slot) -> Slot:
    """The slot as it is before it is put into a window."""
    slot.result = None
    slot.answers = False
    slot.nth = 0
    return slot


def _slot_of(place: Place, record: Record) -> Slot:
    """A slot from what a store keeps of it."""
    if isinstance(record, Compressed):
        entry = record.replacements[place.index].entry
        compression: str | None = record.id
    else:
        entry = record.entry if isinstance(record, Added) else None
        compression = None
    if entry is None:
        raise StoreError(f"the window refers to seq {place.seq}, which holds no entry")
    entry = msgspec.structs.replace(entry, seq=place.seq)
    tokens = entry.token_count.tokens
    return Slot(entry, place.position, tokens, place.pinned, place.index, compression)


def compress_slots(slots: Sequence[Slot], record: Compressed, seq: int) -> list[Slot]:
    """The window with the replacements of `record` (which has or will have `seq`) in place.

    Raises `Refused` unless every run is active, contiguous, unpinned and disjoint from the others.
    """
    return replaced_in(slots, record, seq)[0]


def replaced_in(
    slots: Sequence[Slot], record: Compressed, seq: int
) -> tuple[list[Slot], tuple[int, int]]:
    """What `compress_slots` gives, and the stretch of `slots` outside of which nothing changes."""
    places = {slot.entry.id: at for at, slot in enumerate(slots)}
    runs = [
        (places.get(item.ids[0], -1) if item.ids else -1, number)
        for number, item in enumerate(record.replacements)
    ]
    runs.sort()
    if not runs or runs[0][0] < 0:
        missing = record.replacements[runs[0][1]].ids[:1] if runs else ()
        raise Refused(f"a run to be replaced is not in the window: it begins with {missing}")
    result: list[Slot] = []
    done = 0
    for at, number in runs:
        item = record.replacements[number]
        if at < done:
            raise Refused(f"two runs to be replaced overlap at entry {item.ids[0]}")
        run = slots[at : at + len(item.ids)]
        _check_run(run, item.ids)
        result += slots[done:at]
        if item.entry is not None:
            entry = msgspec.structs.replace(item.entry, seq=seq)
            tokens = entry.token_count.tokens
            result.append(Slot(entry, run[0].position, tokens, False, number, record.id))
        done = at + len(run)
    result += slots[done:]
    return result, (runs[0][0], done)


def _check_run(run: Sequence[Slot], ids: Sequence[str]) -> None:
    for slot, entry_id in zip(run, ids, strict=False):
        if slot.entry.id != entry_id:
            raise Refused(f"the run to be replaced is not contiguous at entry {entry_id}")
        if slot.pinned:
            raise Refused(f"entry {entry_id} is pinned")
    if len(run) != len(ids):
        raise Refused(f"the run to be replaced goes beyond the window at entry {ids[len(run)]}")
