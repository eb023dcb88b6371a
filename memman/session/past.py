"""What is behind the window, found by id: it costs the piece that is asked for, not the history.

Where the way from an entry to the window cannot be followed by ids alone (what was deleted or
cleared away, or logged by an older version), the answer is None, and whoever asked reads the log.
"""

from __future__ import annotations

import msgspec

from memman.entries import Entry
from memman.log import speaker_of
from memman.records import Added, Compressed, Record, Replacement
from memman.session.live import LiveWindow


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
        if shown_by is None and (isinstance(record, Compressed) or seq <= self._totals.era):
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
            found = await self._shared.store.hiding(self.id, [speaker])
            record = found[0][1] if found else None
            if not isinstance(record, Compressed):
                return []
            speaker = next(speaker_of(item) for item in record.replacements if speaker in item.ids)
            way.append(speaker)
        return way


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
