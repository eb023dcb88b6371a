"""What is behind the window, found by id: it costs the piece that is asked for, not the history.

Where the way from an entry to the window cannot be followed by ids alone (what was deleted or
cleared away, or logged by an older version), the answer is None, and whoever asked reads the log.
"""

from __future__ import annotations

import msgspec

from memman.entries import Entry
from memman.history import speaker_of
from memman.records import Added, Compressed, Record, Replacement, SessionTotals, taken
from memman.session.live import LiveWindow
from memman.window import WindowItem


class Past(LiveWindow):
    """Follows ids from a hidden entry to the window, and from a compression to what it hides."""

    __slots__ = ()

    async def _hidden_entry(self, entry_id: str) -> Entry | None:
        """An entry that the window does not show, and what does; a step for each time it was compressed."""
        found = await self._get([entry_id])
        if not found:
            return None
        [(seq, record)] = found
        entry = _entry_in(record, entry_id)
        way = await self._way(entry_id)
        if entry is None or not way:
            return None
        shown_by = way[-1]
        entry = msgspec.structs.replace(entry, seq=seq)
        if isinstance(record, Added):
            entry = msgspec.structs.replace(entry, pinned=False)
        # An active end proves that all on the way holds. Without one an added entry of this era is hidden
        # by the newest compression that names it, while a replacement may have been taken back.
        if shown_by is None and (isinstance(record, Compressed) or seq <= self._era):
            return None
        return msgspec.structs.replace(entry, compressed=True, summary_id=shown_by)

    async def _way(self, name: str) -> list[str | None]:
        """What replaced a hidden entry, and what replaced that, up to the window; None at the end of a way
        on which it was dropped. Empty where it cannot be followed.
        """
        active = {slot.entry.id for slot in self._window.items if slot.compression is not None}
        way: list[str | None] = []
        speaker: str | None = name
        while speaker is not None and speaker not in active:
            found = await self._get([taken(speaker)])
            record = found[0][1] if found else None
            if not isinstance(record, Compressed):
                return []
            speaker = next(speaker_of(item) for item in record.replacements if speaker in item.ids)
            way.append(speaker)
        return way

    async def _ledger(self) -> SessionTotals:
        shared = self._shared
        snapshot = await shared.runtime.call(shared.store, shared.store.load, self.id)
        return snapshot.totals if snapshot is not None else SessionTotals()

    async def _unfolded(self, compression_id: str | None) -> tuple[str, list[WindowItem]] | None:
        """The window without a compression, the newest by default, that shows all that it made."""
        items = self._window.items
        if compression_id is None:
            compression_id = await self._newest()
        found = await self._get([compression_id]) if compression_id else ()
        record = found[0][1] if found else None
        if not isinstance(record, Compressed) or record.id != compression_id:
            return None
        shown = {slot.entry.id: slot for slot in items if slot.compression == record.id}
        made = {item.entry.id for item in record.replacements if item.entry is not None}
        if not made or made != shown.keys() or any(slot.pinned for slot in shown.values()):
            return None
        kept = [slot for slot in items if slot.compression != record.id]
        hidden = await self._hidden_by(record, shown)
        if hidden is None:
            return None
        return record.id, sorted([*kept, *hidden], key=lambda slot: slot.position)

    async def _newest(self) -> str | None:
        """The newest compression, where the window shows what it made."""
        newest = (await self._ledger()).compressed
        made = (slot for slot in self._window.items if slot.compression is not None)
        return next((slot.compression for slot in made if slot.entry.seq == newest), None)

    async def _hidden_by(
        self, record: Compressed, shown: dict[str, WindowItem]
    ) -> list[WindowItem] | None:
        """The slots that a compression replaced, which were not pinned."""
        names = [name for item in record.replacements for name in item.ids]
        makers: dict[str, tuple[int, Record]] = {}
        for seq, maker in await self._get(names):
            makers.update(dict.fromkeys(_ids_in(maker), (seq, maker)))
        hidden: list[WindowItem] = []
        for item in record.replacements:
            for number, name in enumerate(item.ids):
                if name not in makers:
                    return None
                seq, maker = makers[name]
                # A replacement stands where the first of its run stood.
                first = shown.get(item.entry.id) if item.entry is not None and number == 0 else None
                position = (
                    first.position if first is not None else await self._position(name, seq, maker)
                )
                hidden.append(_slot(name, seq, maker, position))
        return hidden

    async def _position(self, name: str, seq: int, maker: Record) -> int:
        """Where an entry stood in the window: an added one by its seq, another as the first of its run."""
        while isinstance(maker, Compressed):
            name = _replacement(maker, name)[1].ids[0]
            [(seq, maker)] = await self._get([name])
        return seq


def _slot(name: str, seq: int, maker: Record, position: int) -> WindowItem:
    """The slot of an entry; whoever takes it counts it anew."""
    entry = _entry_in(maker, name)
    assert entry is not None  # noqa: S101 - it was found by this name
    entry = msgspec.structs.replace(entry, seq=seq)
    tokens = entry.token_count.tokens
    if not isinstance(maker, Compressed):
        return WindowItem(entry, position, tokens)
    return WindowItem(entry, position, tokens, False, entry.replacement - 1, maker.id)


def _ids_in(record: Record) -> list[str]:
    """The ids of the entries that a record brought."""
    if isinstance(record, Compressed):
        return [item.entry.id for item in record.replacements if item.entry is not None]
    return [record.id] if isinstance(record, Added) else []


def _entry_in(record: Record, name: str) -> Entry | None:
    """The entry of this id that a record brought, with its number among the replacements."""
    if isinstance(record, Added):
        return record.entry
    if not isinstance(record, Compressed) or name not in _ids_in(record):
        return None
    number, item = _replacement(record, name)
    return item.entry and msgspec.structs.replace(item.entry, replacement=number)


def _replacement(record: Compressed, name: str) -> tuple[int, Replacement]:
    return next(
        (number, item)
        for number, item in enumerate(record.replacements, 1)
        if item.entry is not None and item.entry.id == name
    )
