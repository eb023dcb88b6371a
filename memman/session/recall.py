"""Reading the entries at addresses, for the agent's recall tool."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from memman.entries import Entry
from memman.records import Added, Compressed, Record
from memman.results import EntryState, Hit
from memman.session.log import SessionLog
from memman.session.lookup import find_entry, place_of

_QUOTED = re.compile(r"^\[memman recalled #(\d+)", re.MULTILINE)
_PAGE = 200  # records that are read at once
_HIDDEN = ("retracted", "deleted", "cleared")


class Addresses(msgspec.Struct, frozen=True, order=True):
    """The addresses `#first` to `#last`; with a `replacement`, `#first.replacement` alone."""

    first: int
    last: int
    replacement: int = 0


def copies_in(records: Sequence[tuple[int, Record]], ids: Collection[str], nonce: str) -> list[str]:
    """Return the ids of answers of the recall tool that quote one of these entries.

    A deletion removes them, too. Only answers of memman's have the session's nonce.
    """
    added = [(seq, record) for seq, record in records if isinstance(record, Added)]
    gone = {str(seq) for seq, record in added if record.id in ids}
    found = []
    for _, record in added:
        head, _, quoted = record.entry.text.partition("\n")
        is_answer = head.startswith("[memman recall: ") and head.endswith(f", {nonce}]")
        if nonce and is_answer and not gone.isdisjoint(_QUOTED.findall(quoted)):
            found.append(record.id)
    return found


async def entries_at(ranges: Sequence[Addresses], most: int, log: SessionLog) -> list[Hit]:
    """Return the first entries at these addresses, in log order. Under the log's lock.

    A range has the added entries, the address of a compression its replacements, if they are in force.
    Entries that were retracted, deleted or cleared are left out.
    """
    found: dict[str, Hit] = {}
    for each in sorted(ranges):
        seq, last = max(log.totals.era, each.first - 1), min(each.last, log.window.head)
        while seq < last and len(found) < most:
            page = await log.reader.page(seq, min(last - seq, _PAGE))
            for seq, record in page:
                for hit in await _hits(record, seq, each, log):
                    found.setdefault(hit.address, hit)
    return list(found.values())[:most]


async def _hits(record: Record, seq: int, wanted: Addresses, log: SessionLog) -> list[Hit]:
    """Return the hits of a record at one of these addresses."""
    if isinstance(record, Added) and not wanted.replacement:
        entry = record.placed(seq)
        place = await place_of(entry, log)
        hidden = place.state in _HIDDEN
        return [] if hidden else [_hit(log, place.of(entry), place.state, place.shown_by)]
    if isinstance(record, Compressed) and wanted.first == wanted.last:
        return await _replacements(record, wanted.replacement, log)
    return []


async def _replacements(record: Compressed, number: int, log: SessionLog) -> list[Hit]:
    """Return the replacements of a compression that are in force, or only that of a number."""
    hits: list[Hit] = []
    outline = log.window.outline
    if not number and outline is not None and outline.entry.id == record.id:
        hits.append(_hit(log, outline.shown(), "active", None))
    for at, item in enumerate(record.replacements, 1):
        found = None
        if item.entry is not None and number in (0, at):
            found = await find_entry(item.entry.id, log)
        if found is not None and found.replacement:
            by = log.window.find(found.summary_id or "")
            state: EntryState = "summarised" if found.compressed else "active"
            hits.append(_hit(log, found, state, None if by is None else by.entry))
    return hits


def _hit(log: SessionLog, entry: Entry, state: EntryState, shown: Entry | None) -> Hit:
    shown_by = None if shown is None else shown.address
    return Hit(
        session_id=log.id, entry=entry, score=0.0, snippet="", state=state, shown_by=shown_by
    )
