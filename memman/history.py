"""The whole fold of an era's log: what the window hides as well as what it shows.

The process holds windows, not histories. A `History` is read from the log when somebody asks for the
past: `get_entries`, summaries, undo, deletion, export, and the check of an import.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memman.entries import Entry
from memman.errors import EntryNotFound, InvalidInput, Refused
from memman.records import (
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
    Undone,
)
from memman.window import WindowItem, compress_slots


class History:
    """Folds records in log order; raises `Refused` or `EntryNotFound` for one that cannot follow."""

    def __init__(self) -> None:
        self.items: list[WindowItem] = []
        self.head = 0
        self.totals = SessionTotals()
        self.added: dict[str, Entry] = {}
        self.compressions: dict[str, Compressed] = {}  # those in force, in log order
        self._seqs: dict[str, int] = {}  # compression id -> its place in the log
        self._undone: dict[str, int] = {}  # compression id -> the seq of its undo
        self._hidden: dict[
            str, list[WindowItem]
        ] = {}  # compression id -> the slots that it replaced
        self._hider: dict[str, str] = {}  # entry id -> compression id
        self._replaced_by: dict[str, Replacement] = {}  # entry id -> what stands for it
        self._speaks_for: dict[str, list[str]] = {}  # replacement -> the entries that it stands for

    @classmethod
    def of(cls, records: Iterable[tuple[int, Record]]) -> History:
        """The fold of numbered records."""
        history = cls()
        for seq, record in records:
            history.apply(seq, record)
        return history

    def apply(self, seq: int, record: Record) -> None:
        """Takes the next record of the log."""
        match record:
            case Opened() if self.totals.nonce:
                raise InvalidInput("the session was opened before")
            case Added(entry):
                entry = msgspec.structs.replace(entry, seq=seq)
                self.added[entry.id] = entry
                self.items.append(WindowItem(entry, seq, entry.token_count.tokens, entry.pinned))
            case Compressed():
                self._compress(seq, record)
            case Undone():
                self.items = self.undo(record.compression_id)
                self._forget(record.compression_id)
                self._undone[record.compression_id] = seq
            case Pinned():
                self.items = pin_items(self.items, record.entry_id, record.on)
            case Deleted():
                self._delete(record.ids)
            case Cleared():
                self._clear()
        self.head = seq
        self.totals = self.totals.after(seq, record)

    # ------------------------------------------------------------ questions

    def undo(self, compression_id: str) -> list[WindowItem]:
        """The window without that compression. Raises as `undo_compression` does."""
        record = self._in_force(compression_id)
        active = {slot.entry.id: slot for slot in self.items}
        for item in record.replacements:
            if item.entry is None:
                continue
            if item.entry.id not in active:
                outermost = self.outermost(item.entry.id)
                raise Refused(
                    f"compression {compression_id} was itself compressed: "
                    f"undo {outermost} first (outermost first)"
                )
            if active[item.entry.id].pinned:
                raise Refused(f"replacement {item.entry.id} is pinned: unpin it before the undo")
        return self._unfolded(self.items, compression_id)

    def outermost(self, entry_id: str) -> str | None:
        """The compression that hides an entry and is not hidden itself; None for an active entry."""
        hider = outer = self._hider.get(entry_id)
        while outer is not None:
            hider = outer
            made = [item.entry.id for item in self.compressions[hider].replacements if item.entry]
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
        maker = self.made_by(compression_id)
        if maker is not None:
            raise EntryNotFound(
                f"{compression_id} is an entry that a compression made: undo that one, {maker}"
            )
        raise EntryNotFound(
            f"no compression {compression_id!r} is in force in this session: "
            "it is unknown, or was cleared away or unfolded by a deletion"
        )

    def made_by(self, entry_id: str) -> str | None:
        """The compression in force that put this entry into the window; None for any other."""
        for name, record in self.compressions.items():
            if any(item.entry and item.entry.id == entry_id for item in record.replacements):
                return name
        return None

    def latest(self) -> str:
        """The newest compression that can be undone."""
        if not self.compressions:
            raise EntryNotFound("there is no compression to undo in this session")
        return next(reversed(self.compressions))

    def folded_into(self, compression_id: str) -> tuple[str, ...]:
        """The compressions that replaced what this one had put into the window, in log order."""
        hiders = {
            self._hider[item.entry.id]
            for item in self.compressions[compression_id].replacements
            if item.entry is not None and item.entry.id in self._hider
        }
        if len(hiders) < 2:
            return tuple(hiders)
        return tuple(name for name in self.compressions if name in hiders)

    def undo_order(self, compression_id: str) -> list[str]:
        """What to undo, in this order, until this compression is undone too: the newest first."""
        wanted, due = {compression_id}, [compression_id]
        while due:
            more = set(self.folded_into(due.pop())) - wanted
            wanted |= more
            due += more
        return [name for name in reversed(self.compressions) if name in wanted]

    def replaced_by(self, entry_id: str) -> str | None:
        """The replacement that took a hidden entry's place, active or not; None when it was dropped."""
        item = self._replaced_by.get(entry_id)
        return speaker_of(item) if item is not None else None

    def method_of(self, entry_id: str) -> ReplacementMethod | None:
        """How a hidden entry was replaced; None for any other."""
        item = self._replaced_by.get(entry_id)
        return item.method if item is not None else None

    def shown(self) -> dict[str, tuple[ReplacementMethod, str | None]]:
        """By the id of each hidden entry the active replacement that speaks for it, and its method.

        None where it was dropped. The newest compression is read first, so that of a replacement it is
        known what hides it before it is known what it hides.
        """
        found: dict[str, tuple[ReplacementMethod, str | None]] = {}
        for record in reversed(self.compressions.values()):
            for item in record.replacements:
                speaker = speaker_of(item)
                known = found.get(speaker or "", (item.method, speaker))
                found.update(dict.fromkeys(item.ids, known))
        return found

    def hider(self, entry_id: str) -> str | None:
        """The compression in force that took this entry out of the window; None where none did."""
        return self._hider.get(entry_id)

    def entries(self) -> list[Entry]:
        """Every added entry of the era in log order, with what is derived about it."""
        pinned = {slot.entry.id for slot in self.items if slot.pinned}
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
        """The replacements of the compressions in force, with what is derived about them."""
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

    def originals(self, entry_id: str) -> list[Entry]:
        """The added entries that a replacement speaks for, in order."""
        return self.unfolded(self._speaks_for.get(entry_id, ()))

    def unfolded(self, ids: Iterable[str]) -> list[Entry]:
        """The added entries that are these, or that these replacements speak for, in order."""
        found: list[Entry] = []
        due = list(ids)
        while due:
            name = due.pop()
            if name in self.added:
                found.append(self.added[name])
            else:
                due += self._speaks_for.get(name, ())
        return sorted(found, key=lambda entry: entry.seq)

    def without(self, ids: Iterable[str]) -> tuple[list[WindowItem], int, int]:
        """The window after a deletion, and the entries and tokens that the era loses."""
        doomed = set(ids)
        slots: Iterable[WindowItem] = self.items
        for name in self._covering(doomed):
            slots = self._unfolded(slots, name)
        lost = [self.added[name].token_count.tokens for name in doomed if name in self.added]
        return [slot for slot in slots if slot.entry.id not in doomed], len(lost), sum(lost)

    # ------------------------------------------------------------ steps

    def _compress(self, seq: int, record: Compressed) -> None:
        if record.id in self.compressions:
            raise InvalidInput(f"compression {record.id} is in the log twice")
        before = {slot.entry.id: slot for slot in self.items}
        self.items = compress_slots(self.items, record, seq)
        self.compressions[record.id] = record
        self._seqs[record.id] = seq
        self._hidden[record.id] = [before[i] for item in record.replacements for i in item.ids]
        for item in record.replacements:
            for entry_id in item.ids:
                self._hider[entry_id] = record.id
                self._replaced_by[entry_id] = item
            speaker = speaker_of(item)
            if speaker is not None:
                self._speaks_for.setdefault(speaker, []).extend(item.ids)

    def _unfolded(self, slots: Iterable[WindowItem], compression_id: str) -> list[WindowItem]:
        kept = [slot for slot in slots if slot.compression != compression_id]
        return sorted(kept + self._hidden[compression_id], key=lambda slot: slot.position)

    def _forget(self, compression_id: str) -> None:
        del self._seqs[compression_id]
        for item in self.compressions.pop(compression_id).replacements:
            self._speaks_for.pop(speaker_of(item) or "", None)
        for slot in self._hidden.pop(compression_id):
            del self._hider[slot.entry.id]
            del self._replaced_by[slot.entry.id]

    def _covering(self, doomed: set[str]) -> list[str]:
        """The compressions whose originals, at any depth, include one of these; outermost first."""
        covering: dict[str, None] = {}
        for name in self.compressions:
            hidden = self._hidden[name]
            if any(s.entry.id in doomed or s.compression in covering for s in hidden):
                covering[name] = None
        return list(reversed(covering))

    def _delete(self, ids: tuple[str, ...]) -> None:
        doomed = set(ids)
        covering = self._covering(doomed)
        self.items, _, _ = self.without(doomed)
        for name in covering:
            self._forget(name)
        for name in doomed & self.added.keys():
            del self.added[name]

    def _clear(self) -> None:
        self.items = []
        self.added.clear()
        self.compressions.clear()
        self._seqs.clear()
        self._undone.clear()
        self._hidden.clear()
        self._hider.clear()
        self._replaced_by.clear()
        self._speaks_for.clear()


def speaker_of(item: Replacement) -> str | None:
    """The id of what stands for a replaced run; None where nothing does."""
    return item.entry.id if item.entry is not None else item.into


def pin_items(slots: list[WindowItem], entry_id: str, on: bool) -> list[WindowItem]:
    """The window with one entry pinned or unpinned. Raises `EntryNotFound` unless it is active."""
    for number, slot in enumerate(slots):
        if slot.entry.id == entry_id:
            changed = WindowItem(
                slot.entry, slot.position, slot.tokens, on, slot.index, slot.compression
            )
            return [*slots[:number], changed, *slots[number + 1 :]]
    raise EntryNotFound(
        f"entry {entry_id!r} is not active in this session's window, so it cannot be pinned or "
        "unpinned (a compressed entry: undo its compression first)"
    )
