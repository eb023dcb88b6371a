"""Compactions that a provider made: the record of one, and the window for other providers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime

import msgspec

from memman.compression import View
from memman.entries import Entry
from memman.events import CompactionUnreadable
from memman.formats.parts import NOT_CARRIED, compaction_in
from memman.log import History
from memman.records import Added, Compressed, Record
from memman.session.log import SessionLog
from memman.summary_metadata import summary_draft
from memman.window import Price, Window, WindowItem, is_compaction

COMPACTED = "compacted by the provider"

Hidden = Mapping[str, list[WindowItem]]
"""What compressions hide, by their ids."""


def with_compaction(view: View, source: Entry, upto: int, new_id: str, now: datetime) -> View:
    """Return a view with a copy of an added compaction in place of the exchanges up to a position.

    Pinned entries stay, and so does an exchange that goes on behind the position.
    """
    covered = {
        number
        for number, group in enumerate(view.groups)
        if all(
            (item.position <= upto or item.entry.id == source.id) and not item.pinned
            for item in group.window_items
        )
    }
    originals = [item.entry for number in covered for item in view.groups[number].window_items]
    originals.sort(key=lambda entry: entry.seq)
    copy = msgspec.structs.replace(
        source,
        id=new_id,
        seq=0,
        timestamp=now,
        role="system",
        message_id=None,
        pinned=False,
        metadata_json=summary_draft("", originals).metadata_json,
    )
    return view.with_summary(covered, copy)


def made_of(records: Iterable[Record], ids: Iterable[str]) -> list[str]:
    """Return the ids of the added compactions that stand for one of these entries."""
    compactions: set[str] = set()
    tainted, found = set(ids), list[str]()
    for record in records:
        if isinstance(record, Added) and is_compaction(record.entry):
            compactions.add(record.id)
        elif isinstance(record, Compressed):
            covered = {name for item in record.replacements for name in item.ids}
            if not tainted.isdisjoint(covered):
                tainted |= {item.entry.id for item in record.replacements if item.entry}
                found += sorted(covered & compactions)
    return found


def fresh_compaction(entries: Iterable[Entry], fresh: Container[str]) -> Entry | None:
    """Return the last compaction among entries that were added just now."""
    found = [entry for entry in entries if entry.id in fresh and is_compaction(entry)]
    return found[-1] if found else None


def _unreadable_in(window: Window, form: str) -> list[WindowItem]:
    """Return the sealed compactions of a window that a format has no form for."""
    if not window.shares.get("summary"):
        return []
    sealed = (item for item in window.items if item.is_sealed)
    return [item for item in sealed if compaction_in(item.entry, form) is None]


class BehindWindow(msgspec.Struct):
    """What is behind the window at an epoch, each read once: calls of late results, and hidden items.

    `hidden` are those of compressions, as soon as a format has no form for a sealed compaction.
    """

    epoch: int
    calls: dict[str, Entry | None] = {}
    hidden: Hidden = {}
    _reported: set[str] = set()

    async def unread(self, log: SessionLog, form: str) -> list[CompactionUnreadable]:
        """Read what a context needs, and return its events. Under the log's lock, refreshed."""
        unreadable = _unreadable_in(log.window, form)
        if not unreadable or form in self._reported:
            return []
        self._reported.add(form)
        if not self.hidden and any(item.compression for item in unreadable):
            history = History.of(await log.era())
            self.hidden = {name: history.hidden_by(name) for name in history.compressions}
        return [
            CompactionUnreadable(session_id=log.id, entry_id=item.entry.id, format=form)
            for item in unreadable
        ]


def readable(window: Window, form: str, hidden: Hidden, price: Price) -> Window:
    """Return the window with the originals of the sealed compactions that a format has no form for.

    One whose originals nobody has, since the session began with it, is a summary of nothing.
    """
    if not _unreadable_in(window, form):
        return window
    due, found = list(window.items), list[WindowItem]()
    while due:
        item = due.pop()
        if not item.is_sealed or compaction_in(item.entry, form) is not None:
            found.append(msgspec.structs.replace(item))
        elif behind := hidden.get(item.compression or ""):
            due += [each for each in behind if each.compression or not is_compaction(each.entry)]
        elif item.compression is None:
            entry = msgspec.structs.replace(item.entry, content=NOT_CARRIED)
            found.append(msgspec.structs.replace(item, entry=entry, tokens=price(entry)))
    return window.with_items(sorted(found, key=lambda item: item.position))
