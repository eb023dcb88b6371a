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

    `at` is its index in the window's list. `result` is the slot that answers a call, and `answers`
    says of a result that its call is in the window. `nth` counts the earlier calls of the window that
    carry the same id. `index` and `compression` are set for a replacement: its place in its record,
    and that record's id.
    """

    entry: Entry
    position: int
    tokens: int
    pinned: bool = False
    index: int = -1
    compression: str | None = None
    result: Slot | None = None
    answers: bool = False
    nth: int = 0
    at: int = 0

    @property
    def unanswered(self) -> bool:
        """A call that has no result yet."""
        return self.entry.type == "tool_call" and self.result is None

    def place(self) -> Place:
        """How a store keeps this slot."""
        return Place(self.entry.seq, self.index, self.position, self.pinned)


class Window:
    """The fold of a session's records up to `head`: the part that a context is built from."""

    __slots__ = (
        "_call_ids", "_messages", "_open", "entries", "epoch", "head", "slots", "starts", "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.head = 0
        self.epoch = 0
        self.tokens = 0
        self._reset()

    def _reset(self) -> None:
        self.tokens = 0
        self.slots: list[Slot] = []  # the active entries in order; read it, do not keep it
        self.starts: list[int] = []  # where each exchange begins
        self.entries: dict[str, Slot] = {}
        # Made when the first call or shared message comes: many sessions have neither.
        self._open: list[Slot] | None = None
        self._messages: dict[str, Slot] | None = None
        self._call_ids: dict[str, int] | None = None

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

    def add(self, entry: Entry, pinned: bool) -> None:
        """Appends an added entry; its seq is its position and the window's new head."""
        self.push(Slot(entry, entry.seq, entry.token_count.tokens, pinned))
        self.head = entry.seq

    def push(self, slot: Slot) -> None:
        """Puts a slot at the end and ties it to the exchange it belongs to."""
        entry = slot.entry
        slots = self.slots
        starts = self.starts
        slot.at = len(slots)
        if entry.type in _LOOSE and entry.message_id is None:
            starts.append(slot.at)
        else:
            tied = self._tie(slot)
            if tied is None:
                starts.append(slot.at)
            else:
                while starts[-1] > tied.at:
                    starts.pop()
        slots.append(slot)
        self.entries[entry.id] = slot
        self.tokens += slot.tokens

    def reshape(self, slots: Iterable[Slot], head: int, epoch: int) -> None:
        """Takes a new list of slots, as one change of shape."""
        self._reset()
        self.head = head
        self.epoch = epoch
        for slot in slots:
            slot.result = None
            slot.answers = False
            slot.nth = 0
            self.push(slot)

    def only_system(self) -> bool:
        """Whether nothing but system messages is in the window: the head of a session."""
        return all(
            slot.entry.role == "system" and slot.entry.type == "message" for slot in self.slots
        )

    def _tie(self, slot: Slot) -> Slot | None:
        """The earliest slot that must stay with this one, and the links between the two."""
        entry = slot.entry
        kind = entry.type
        tied: Slot | None = None
        if kind == "tool_result":
            tied = self._answer(slot)
        elif kind == "tool_call":
            tied = self._register(slot)
        message_id = entry.message_id
        if message_id is not None:
            if self._messages is None:
                self._messages = {}
            first = self._messages.setdefault(message_id, slot)
            if first is not slot and (tied is None or first.at < tied.at):
                tied = first
        return tied

    def _answer(self, result: Slot) -> Slot | None:
        call = self.open_call(result.entry.call_id, result.entry.name)
        if call is not None:
            self._open = [other for other in self._open or () if other is not call]
            call.result = result
            result.answers = True
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
        previous = self.slots[-1] if self.slots else None
        if (
            entry.message_id is None
            and previous is not None
            and previous.entry.type == "tool_call"
            and previous.entry.message_id is None
        ):
            return previous
        return None


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


def exchanges(slots: Sequence[Slot], starts: Sequence[int]) -> list[tuple[int, int]]:
    """The exchanges of a window as (start, end) indices: the only places where one may cut."""
    return list(zip(starts, [*starts, len(slots)][1:], strict=True))


def compress_slots(slots: Sequence[Slot], record: Compressed, seq: int) -> list[Slot]:
    """The window with the replacements of `record` (which has or will have `seq`) in place.

    Raises `Refused` unless every run is active, contiguous, unpinned and disjoint from the others.
    """
    firsts = {item.ids[0]: number for number, item in enumerate(record.replacements) if item.ids}
    result: list[Slot] = []
    done = 0
    at = 0
    while at < len(slots):
        number = firsts.get(slots[at].entry.id)
        if number is None:
            result.append(slots[at])
            at += 1
            continue
        item = record.replacements[number]
        run = slots[at : at + len(item.ids)]
        _check_run(run, item.ids)
        if item.entry is not None:
            entry = msgspec.structs.replace(item.entry, seq=seq)
            tokens = entry.token_count.tokens
            result.append(Slot(entry, run[0].position, tokens, False, number, record.id))
        at += len(run)
        done += 1
    if done != len(record.replacements) or not done:
        missing = next(
            (i.ids[:1] for i in record.replacements if not i.ids or not _active(slots, i.ids[0])),
            (),
        )
        raise Refused(f"a run to be replaced is not in the window: it begins with {missing}")
    return result


def _active(slots: Sequence[Slot], entry_id: str) -> bool:
    return any(slot.entry.id == entry_id for slot in slots)


def _check_run(run: Sequence[Slot], ids: Sequence[str]) -> None:
    for slot, entry_id in zip(run, ids, strict=False):
        if slot.entry.id != entry_id:
            raise Refused(f"the run to be replaced is not contiguous at entry {entry_id}")
        if slot.pinned:
            raise Refused(f"entry {entry_id} is pinned")
    if len(run) != len(ids):
        raise Refused(f"the run to be replaced goes beyond the window at entry {ids[len(run)]}")
