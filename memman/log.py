"""The fold of a session's log: `LogState.apply` has the effect of every record on the session.

A `LogState` is the window and the session totals, all that a live session needs. A `History` also keeps the
entries that the window hides. It is read from the log for an undo, a deletion, an export or a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from memman.entries import Entry, is_of_tool
from memman.errors import EntryNotFound, InvalidInput, Refused
from memman.protocols import Snapshot, StoredItem
from memman.records import (
    SHAPES,
    Added,
    Cleared,
    Compressed,
    Deleted,
    Opened,
    Pinned,
    Record,
    Replacement,
    ReplacementMethod,
    SessionTotals,
    StateSetter,
    Undone,
    ids_moved_by,
    ids_retracted_by,
)
from memman.state import NOTHING_COVERED, Covered, State
from memman.window import ActiveState, Price, Window, WindowItem, own_count, priced

R = TypeVar("R", bound=Record)


class Unfolding(msgspec.Struct, frozen=True):
    """A compression to take out of the window: the ids that it made, and the runs that it replaced."""

    made: tuple[str, ...]
    hidden: Sequence[Sequence[WindowItem]]


class LogState:
    """The window and the totals of a session at a place in its log."""

    __slots__ = ("totals", "window")

    def __init__(self, window: Window | None = None, totals: SessionTotals | None = None) -> None:
        self.window = Window() if window is None else window
        self.totals = SessionTotals() if totals is None else totals

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> LogState:
        """Return the state that a store has kept."""
        return cls(Window.from_snapshot(snapshot), snapshot.totals)

    def copy(self) -> LogState:
        """Return a state that changes apart from this one."""
        return LogState(self.window.copy(), self.totals)

    def priced(self, price: Price) -> LogState:
        """Return the state with other prices of the window's entries."""
        return LogState(self.window.priced(price), self.totals)

    def apply(
        self,
        seq: int,
        record: Record,
        price: Price = own_count,
        unfoldings: Iterable[Unfolding] = (),
    ) -> None:
        """Take the next record of the log.

        Args:
            seq: the record's place in the log.
            record: the record.
            price: returns the tokens of an entry that comes into the window.
            unfoldings: the compressions that an undo, a deletion or a retraction takes out, the outermost
                first, as returned by `History.unfoldings`.

        Raises:
            Refused: a compression does not fit the window.
            EntryNotFound: an entry to pin or unpin is not active.
            InvalidInput: the session was opened before.
        """
        window = self.window
        for unfolding in unfoldings:
            window.remove(unfolding.made)
            for run in unfolding.hidden:
                window.insert(priced(run, price))
        match record:
            case Added(entry):
                window.add(msgspec.structs.replace(entry, seq=seq), price(entry))
            case Opened() if self.totals.nonce:
                raise InvalidInput("the session was opened before")
            case Compressed():
                _compress(window, seq, record, price)
                window.forget_calls(ids_retracted_by(record))
            case Deleted():
                window.remove(record.ids)
                window.forget_calls(record.ids)
            case Pinned():
                window.pin(record.entry_id, record.on)
            case Cleared():
                window.clear()
        if isinstance(record, StateSetter):
            position = window.state_position(record.state)
            window.set_state(ActiveState.of(seq, record, position, price))
        window.advance(seq, window.epoch + isinstance(record, SHAPES))
        self.totals = self.totals.after(seq, record)


def _compress(window: Window, seq: int, record: Compressed, price: Price) -> None:
    """Put the replacements of a compression in place of their runs."""
    for start, number in reversed(_runs(window, record)):
        item = record.replacements[number]
        made = []
        if item.entry is not None:
            entry = msgspec.structs.replace(item.entry, seq=seq, replacement=number + 1)
            position = window.items[start].position
            made = [WindowItem(entry, position, price(entry), False, number, record.id)]
        window.replace(start, start + len(item.ids), made)


def _runs(window: Window, record: Compressed) -> list[tuple[int, int]]:
    """Return (start, number of the replacement) of each run, in the window's order.

    Raises `Refused` unless every run is active, contiguous, unpinned and disjoint from the others. Pinned
    entries may be retracted.
    """
    runs = []
    for number, item in enumerate(record.replacements):
        first = window.find(item.ids[0]) if item.ids else None
        if first is None:
            raise Refused(
                f"a run to be replaced is not in the window: it begins with {item.ids[:1]}"
            )
        runs.append((window.index(first), number))
    if not runs:
        raise Refused("a compression must replace at least one run")
    runs.sort()
    done = 0
    for start, number in runs:
        replacement = record.replacements[number]
        if start < done:
            raise Refused(f"two runs to be replaced overlap at entry {replacement.ids[0]}")
        done = start + len(replacement.ids)
        _check_run(window.items[start:done], replacement)
    return runs


def _check_run(run: Sequence[WindowItem], replacement: Replacement) -> None:
    ids = replacement.ids
    for item, entry_id in zip(run, ids, strict=False):
        if item.entry.id != entry_id:
            raise Refused(f"the run to be replaced is not contiguous at entry {entry_id}")
        if item.pinned and replacement.method != "retract":
            raise Refused(f"entry {entry_id} is pinned")
    if len(run) != len(ids):
        raise Refused(f"the run to be replaced goes beyond the window at entry {ids[len(run)]}")


def places_for_commit(window: Window, record: Record) -> list[StoredItem]:
    """Return the window as a commit of `record` stores it: 0 is the seq of the record's own entries."""
    places = ((item.compression == record.id, item.place()) for item in window.stored_items)
    return [msgspec.structs.replace(at, seq=0) if is_own else at for is_own, at in places]


class History:
    """The fold of an era's log with everything that its window hides.

    `apply` takes records in log order and raises `Refused`, `EntryNotFound` or `InvalidInput` for a record
    that cannot follow.
    """

    def __init__(self) -> None:
        self.state = LogState()
        self._begin_era()

    def _begin_era(self) -> None:
        self.added: dict[str, Entry] = {}  # those not retracted, in log order
        self.compressions: dict[str, Compressed] = {}  # those in force, in log order
        self._seqs: dict[str, int] = {}  # compression -> its place in the log
        self._undone: dict[str, int] = {}  # compression -> the seq of its undo
        self._hidden: dict[str, list[list[WindowItem]]] = {}  # compression -> the runs it replaced
        self._hider: dict[str, str] = {}  # entry -> compression
        self._replaced_by: dict[str, Replacement] = {}  # entry -> its replacement
        self._speaks_for: dict[str, list[str]] = {}  # replacement -> the entries that it replaced

    @classmethod
    def of(cls, records: Iterable[tuple[int, Record]]) -> History:
        """Return the fold of numbered records."""
        history = cls()
        for seq, record in records:
            history.apply(seq, record)
        return history

    @property
    def items(self) -> list[WindowItem]:
        """The window's items; read the list, do not keep it."""
        return self.state.window.items

    @property
    def head(self) -> int:
        """The seq of the last record."""
        return self.state.window.head

    @property
    def totals(self) -> SessionTotals:
        """The session totals."""
        return self.state.totals

    def apply(self, seq: int, record: Record) -> None:
        """Take the next record of the log."""
        covering = self.unfolded_by(record)
        hidden = self._to_hide(record, covering) if isinstance(record, Compressed) else []
        states = self._states_after(record) if isinstance(record, SHAPES) else {}
        self.state.apply(seq, record, unfoldings=list(map(self._unfolding, covering)))
        for name in covering:
            self._forget(name)
        for name, state in states.items():
            before = self.compressions[name]
            if state is not before.state:
                self.compressions[name] = msgspec.structs.replace(before, state=state)
        match record:
            case Added(entry):
                self._release(entry.id)
                self.added[entry.id] = self.items[-1].entry
            case Compressed():
                self._hide(seq, record, hidden)
            case Undone():
                self._undone[record.compression_id] = seq
            case Deleted():
                for name in record.ids:
                    self.added.pop(name, None)
                    self._release(name)
                self._delete_retracted(record.ids)
            case Cleared():
                self._begin_era()

    def unfoldings(self, record: Record) -> list[Unfolding]:
        """Return what `LogState.apply` needs of the compressions that `unfolded_by` returns."""
        return [self._unfolding(name) for name in self.unfolded_by(record)]

    def unfolded_by(self, record: Record) -> list[str]:
        """Return the ids of the compressions that a record dissolves, the outermost first.

        An undo names one; a deletion and a retraction dissolve all that cover one of their entries.

        Raises `Refused` or `EntryNotFound`, as `undo_compression` does, for an undo that is impossible.
        """
        if isinstance(record, Undone):
            self.check_undo(record.compression_id)
            return [record.compression_id]
        due = _ids_lost_by(record)
        covering: set[str] = set()
        while due:
            name = due.pop()
            hider = self._hider.get(name)
            # A deletion of a retracted entry leaves the other entries of the retraction as they are.
            if hider is not None and hider not in covering and not self.is_retracted(name):
                covering.add(hider)
                due += self._made_by(hider)
        return sorted(covering, key=self._seqs.__getitem__, reverse=True)

    def completed(self, record: R) -> R:
        """Return the next record with the entries and tokens by which it changes the era's totals."""
        changes: dict[str, Any]
        lost = [self.added[name] for name in self.added.keys() & set(_ids_lost_by(record))]
        match record:
            case Deleted():
                # What is left of an entry that was deleted has no message id.
                torn = record.torn or torn_by(lost, self.added.values())
                changes = {"entries": len(lost), "tokens": _tokens(lost), "torn": torn}
            case Compressed() if ids_retracted_by(record):
                torn = record.torn or torn_by(lost, self.added.values())
                changes = {"lost_tokens": _tokens(lost), "torn": torn}
            case Undone():
                back = self.retracted_by(record.compression_id)
                restored = tuple(entry.id for entry in back)
                changes = {"restored": restored, "restored_tokens": _tokens(back)}
            case _:
                return record
        # The outline of the newest compression that stays in force, without the entries that go.
        state = next(reversed(self._states_after(record).values()), None)
        return msgspec.structs.replace(record, **changes, state=state)

    def _states_after(self, record: Record) -> dict[str, State | None]:
        """Return the outlines of the compressions that a record leaves in force, by id, the newest last.

        A compression without its own entries loses those of older compressions that are dissolved, since
        they return to the window, and entries that are deleted or retracted.
        """
        dissolved, lost = self.unfolded_by(record), set(_ids_lost_by(record))
        active = (self.state.window.find(name) for name in lost)
        counted = lost.difference(each.entry.id for each in active if each and not each.compression)
        states: dict[str, State | None] = {}
        for name, compression in self.compressions.items():
            if name in dissolved:
                moved = ids_moved_by(compression)
                lost.update(moved)
                counted.update(moved)
            elif not ids_retracted_by(compression):
                state = compression.state
                if state is not None and (counted or state.is_of(lost)):
                    state = state.without(lost)
                states[name] = state
        return states

    def covered(self, recall: str) -> Covered:
        """Return the counts of the entries that left, without those of the agent's recall tool."""
        find = self.state.window.find
        gone = [entry for entry in self.added.values() if find(entry.id) is None]
        return NOTHING_COVERED.plus([entry for entry in gone if not is_of_tool(entry, recall)])

    # ------------------------------------------------------------ questions

    def check_undo(self, compression_id: str) -> None:
        """Raise `EntryNotFound` or `Refused`, as `undo_compression` does, if the undo is impossible."""
        window = self.state.window
        if ids_retracted_by(self._in_force(compression_id)):
            self._check_restore(compression_id)
        for name in self._made_by(compression_id):
            active = window.find(name)
            if active is None:
                raise Refused(
                    f"compression {compression_id} was itself compressed: "
                    f"undo {self.outermost(name)} first (outermost first)"
                )
            if active.pinned:
                raise Refused(f"replacement {name} is pinned: unpin it before the undo")

    def _check_restore(self, retraction: str) -> None:
        """Raise `EntryNotFound` or `Refused` unless each entry of a retraction can come back."""
        entries = self.retracted_by(retraction)
        if not entries:
            raise EntryNotFound(f"every entry that {retraction} retracted was deleted")
        for entry in entries:
            if self._hider.get(entry.id) != retraction:
                raise Refused(
                    f"entry {entry.id} was added again after {retraction} retracted it, so the retraction "
                    f"cannot be undone; get_entry returns the retracted one as {entry.address}"
                )

    def outermost(self, entry_id: str) -> str | None:
        """Return the compression that hides an entry and is not hidden itself; None for an active entry."""
        hider = outer = self._hider.get(entry_id)
        while outer is not None:
            hider = outer
            made = self._made_by(hider)
            outer = next((self._hider[name] for name in made if name in self._hider), None)
        return hider

    def _in_force(self, compression_id: str) -> Compressed:
        if compression_id in self.compressions:
            return self.compressions[compression_id]
        if compression_id in self._undone:
            newest = next(reversed(self.compressions), None)
            raise EntryNotFound(
                f"compression {compression_id} was undone already, by record "
                f"{self._undone[compression_id]}: "
                + (f"the newest in force is {newest}" if newest else "none is in force")
            )
        for maker in self.compressions:
            if compression_id in self._made_by(maker):
                raise EntryNotFound(
                    f"{compression_id} is an entry that a compression made: undo that one, {maker}"
                )
        raise EntryNotFound(
            f"no compression {compression_id!r} is in force in this session: "
            "it is unknown, or was cleared away or unfolded by a deletion or retraction"
        )

    def _made_by(self, compression_id: str) -> tuple[str, ...]:
        """Return the ids of the replacements of a compression in force."""
        items = self.compressions[compression_id].replacements
        return tuple(item.entry.id for item in items if item.entry is not None)

    def latest(self) -> str:
        """Return the newest compression that can be undone. A retraction is undone by its id alone."""
        for name, record in reversed(self.compressions.items()):
            if not ids_retracted_by(record):
                return name
        raise EntryNotFound("there is no compression to undo in this session")

    def folded_into(self, compression_id: str) -> tuple[str, ...]:
        """Return the compressions that replaced entries of this one, in log order."""
        made = self._made_by(compression_id)
        hiders = {self._hider[name] for name in made if name in self._hider}
        return tuple(sorted(hiders, key=self._seqs.__getitem__))

    def undo_order(self, compression_id: str) -> list[str]:
        """Return what to undo until this compression is undone too, the newest first."""
        wanted, due = {compression_id}, [compression_id]
        while due:
            more = set(self.folded_into(due.pop())) - wanted
            wanted |= more
            due += more
        return sorted(wanted, key=self._seqs.__getitem__, reverse=True)

    def replaced_by(self, entry_id: str) -> str | None:
        """Return the id of the replacement of a hidden entry, active or not; None if it was dropped."""
        item = self._replaced_by.get(entry_id)
        return speaker_of(item) if item is not None else None

    def method_of(self, entry_id: str) -> ReplacementMethod | None:
        """Return how a hidden entry was replaced; None for any other."""
        item = self._replaced_by.get(entry_id)
        return item.method if item is not None else None

    def shown(self) -> dict[str, tuple[ReplacementMethod, str | None]]:
        """Return the method and the active replacement of each hidden entry; None if it was dropped."""
        found: dict[str, tuple[ReplacementMethod, str | None]] = {}
        outline = self.state.window.outline
        # The newest first, so that a replacement's own replacement is known before its originals come.
        for record in reversed(self.compressions.values()):
            for item in record.replacements:
                speaker = speaker_of(item)
                if item.method == "outline" and outline is not None:
                    speaker = outline.entry.id
                known = found.get(speaker or "", (item.method, speaker))
                # An id that was retracted may be that of another entry now.
                own = [name for name in item.ids if self._hider.get(name) == record.id]
                found.update(dict.fromkeys(own, known))
        return found

    def is_retracted(self, entry_id: str) -> bool:
        """Return whether an entry is retracted."""
        return self.method_of(entry_id) == "retract"

    def newest_hiding(self, ids: Iterable[str]) -> Compressed:
        """Return the newest of the compressions in force that hide one of these hidden entries."""
        return self.compressions[max(map(self._hider.__getitem__, ids), key=self._seqs.__getitem__)]

    def seq_of(self, compression_id: str) -> int:
        """Return the place of a compression in force in the log."""
        return self._seqs[compression_id]

    def hider(self, entry_id: str) -> str | None:
        """Return the compression in force that took an entry out of the window, if any."""
        return self._hider.get(entry_id)

    def entries(self) -> list[Entry]:
        """Return the added entries of the era in log order, without retracted ones."""
        pinned = {item.entry.id for item in self.items if item.pinned}
        shown = self.shown()
        return [
            msgspec.structs.replace(
                entry,
                pinned=name in pinned,
                compressed=name in shown,
                summary_id=shown[name][1] if name in shown else None,
            )
            for name, entry in self.added.items()
        ]

    def replaced_entries(self) -> list[Entry]:
        """Return the replacements of the compressions in force, with their own replacements."""
        shown = self.shown()
        return [
            msgspec.structs.replace(
                item.entry,
                seq=self._seqs[name],
                replacement=number,
                compressed=item.entry.id in shown,
                summary_id=shown[item.entry.id][1] if item.entry.id in shown else None,
            )
            for name, record in self.compressions.items()
            for number, item in enumerate(record.replacements, 1)
            if item.entry is not None
        ]

    def outlined(self) -> list[Entry]:
        """Return the added entries that the outline alone represents, in order."""
        shown = self.shown()
        return [
            entry for name, entry in self.added.items() if shown.get(name, ("",))[0] == "outline"
        ]

    def originals(self, ids: Iterable[str]) -> list[Entry]:
        """Return the added entries among these ids and behind the replacements among them, in order."""
        found: list[Entry] = []
        due = list(ids)
        while due:
            name = due.pop()
            if name in self.added:
                found.append(self.added[name])
            else:
                due += self._speaks_for.get(name, ())
        return sorted(found, key=lambda entry: entry.seq)

    # ------------------------------------------------------------ steps

    def _to_hide(self, record: Compressed, covering: Sequence[str]) -> list[list[WindowItem]]:
        """Return the items of each run of a compression that are active once `covering` is unfolded."""
        if record.id in self.compressions:
            raise InvalidInput(f"compression {record.id} is in the log twice")
        for name in ids_retracted_by(record):
            if name not in self.added:
                raise Refused(f"{name} cannot be retracted: it is no added entry of this era")
        if tuple(covering) != record.unfolds:
            raise Refused(f"it unfolds {covering}, not {list(record.unfolds)}")
        runs = [run for name in covering for run in self._hidden[name]]
        behind = {item.entry.id: item for run in runs for item in run}
        found = [
            [self.state.window.find(name) or behind.get(name) for name in each.ids]
            for each in record.replacements
        ]
        return [[item for item in run if item is not None] for run in found]

    def _hide(self, seq: int, record: Compressed, hidden: list[list[WindowItem]]) -> None:
        self.compressions[record.id] = record
        self._seqs[record.id] = seq
        self._hidden[record.id] = hidden
        for item in record.replacements:
            for entry_id in item.ids:
                self._hider[entry_id] = record.id
                self._replaced_by[entry_id] = item
                if item.method == "retract":
                    del self.added[entry_id]
            speaker = speaker_of(item)
            if speaker is not None:
                self._speaks_for.setdefault(speaker, []).extend(item.ids)

    def _forget(self, compression_id: str) -> None:
        if restored := self.retracted_by(compression_id):
            entries = sorted([*self.added.values(), *restored], key=lambda entry: entry.seq)
            self.added = {entry.id: entry for entry in entries}
        del self._seqs[compression_id]
        for item in self.compressions.pop(compression_id).replacements:
            self._speaks_for.pop(speaker_of(item) or "", None)
            for entry_id in item.ids:
                self._release(entry_id)
        del self._hidden[compression_id]

    def _release(self, entry_id: str) -> None:
        """Forget what hides the entry with this id."""
        self._hider.pop(entry_id, None)
        self._replaced_by.pop(entry_id, None)

    def hidden_by(self, compression_id: str) -> list[WindowItem]:
        """Return the items that a compression in force took out of the window."""
        return [item for run in self._hidden[compression_id] for item in run]

    def retracted_by(self, compression_id: str) -> list[Entry]:
        """Return the entries that a retraction in force retracted, without those deleted since."""
        record = self.compressions.get(compression_id)
        if record is None or not ids_retracted_by(record):
            return []
        return [item.entry for item in self.hidden_by(compression_id)]

    def _delete_retracted(self, ids: Sequence[str]) -> None:
        """Remove deleted entries from the retractions, which would restore them."""
        for name, record in self.compressions.items():
            if ids_retracted_by(record):
                self._hidden[name] = [
                    [item for item in run if item.entry.id not in ids] for run in self._hidden[name]
                ]

    def _unfolding(self, compression_id: str) -> Unfolding:
        return Unfolding(self._made_by(compression_id), self._hidden[compression_id])


def torn_by(lost: Sequence[Entry], entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the message ids of lost entries that others of these entries have too."""
    messages = {entry.message_id for entry in lost} - {None}
    if not messages:
        return ()
    ids = {entry.id for entry in lost}
    left = {entry.message_id for entry in entries if entry.id not in ids}
    return tuple(sorted(name for name in messages & left if name is not None))


def _ids_lost_by(record: Record) -> list[str]:
    """Return the ids of the entries that a record deletes or retracts."""
    return list(record.ids) if isinstance(record, Deleted) else ids_retracted_by(record)


def _tokens(entries: Iterable[Entry]) -> int:
    """Return the tokens of entries as they were counted when they were recorded."""
    return sum(map(own_count, entries))


def speaker_of(item: Replacement) -> str | None:
    """Return the id of the entry that represents a replaced run, if any."""
    return item.entry.id if item.entry is not None else item.into
