"""Finding entries behind the window by their ids: the cost does not grow with the history.

An entry that was deleted, or cleared away, cannot be found by ids alone; then the log is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from memman.entries import Entry, parse_address
from memman.errors import EntryNotFound
from memman.explain.history import STATES
from memman.log import History, speaker_of
from memman.records import Added, Compressed, Deleted, Undone, ids_moved_by, ids_retracted_by
from memman.results import EntryState
from memman.session.log import SessionLog
from memman.session.reader import LogReader, Shown
from memman.window import WindowItem, state_entry


async def find_entry(wanted: str, log: SessionLog) -> Entry | None:
    """Return an entry or a replacement of any era by id or address. Under the log's lock."""
    entry_id = await _id_of(wanted, log)
    found = await _newest(entry_id, log)
    address = parse_address(wanted)
    if found is None or wanted == entry_id or address is None or found.seq == address[0]:
        return found
    # An earlier entry with the same id: it was retracted, or cleared away.
    record = await log.reader.at(address[0])
    return record.placed(address[0]) if isinstance(record, Added) else None


async def _newest(entry_id: str, log: SessionLog) -> Entry | None:
    """Return the newest entry or replacement with an id."""
    item = log.window.shown(entry_id)
    if item is not None:
        return item.shown()
    return await _hidden(entry_id, log) or await _entry_in_log(entry_id, log)


class Place(msgspec.Struct, frozen=True):
    """The state of an added entry, and the entry that represents it in the window: None if nothing does."""

    state: EntryState
    shown_by: Entry | None = None

    def of(self, entry: Entry) -> Entry:
        """Return the entry with the fields that follow from its place."""
        by = None if self.shown_by is None else self.shown_by.id
        hidden = self.state != "active"
        return msgspec.structs.replace(
            entry, compressed=hidden, summary_id=by, pinned=entry.pinned and not hidden
        )


async def place_of(entry: Entry, log: SessionLog) -> Place:
    """Return the place of an entry that was added at its `seq` and not deleted. Under the log's lock."""
    item = log.window.find(entry.id)
    if item is not None and item.entry.seq == entry.seq:
        return Place("active")
    if entry.seq <= log.totals.era:
        return Place("cleared")
    made = await log.reader.get([entry.id])
    shown = await _shown_as(entry.id, log)
    # The id of a retracted entry may be another entry's now.
    if shown is None or shown[0] == "retract" or made[-1][0] != entry.seq:
        return Place("retracted")
    method, by = shown
    visible = log.window.shown(by) if by is not None else None
    return Place(STATES[method], None if visible is None else visible.shown())


async def newest_entries(number: int, log: SessionLog) -> list[Entry] | None:
    """Return the newest added entries that are not retracted, so many, in log order. Under the log's lock.

    Reads the log from the entry on that is so many places from the window's end. Returns None if the window
    has fewer added entries.
    """
    active = [item for item in log.window.items if item.compression is None]
    if not 0 < number <= len(active):
        return None
    return (await _entries_from(active[-number].entry.seq, log))[-number:]


async def entries_since(ids: Sequence[str], log: SessionLog) -> list[Entry]:
    """Return the added entries from the first of these on that the era has. Under the log's lock."""
    known = await known_ids(ids, log)
    first = [name for name, reason in known.items() if reason is None][:1]
    found = await log.reader.get(first) if first else ()
    return await _entries_from(found[0][0], log) if found else []


async def _entries_from(start: int, log: SessionLog) -> list[Entry]:
    """Return the added entries from a seq on that are not retracted, in log order."""
    seqs: dict[str, int] = {}
    gone: set[str] = set()
    for seq, record in await log.reader.records(start - 1):
        if seq > log.window.head:
            break
        if isinstance(record, Added):
            gone.discard(record.id)  # an earlier entry with this id was retracted,
            seqs.pop(record.id, None)  # and its place is another one
            seqs[record.id] = seq
        gone.difference_update(ids_moved_by(record))
        gone.update(record.ids if isinstance(record, Deleted) else ids_retracted_by(record))
    found = [await _newest(name, log) for name in seqs if name not in gone]
    return [entry for entry in found if entry is not None]


async def known_ids(ids: Sequence[str], log: SessionLog) -> dict[str, str | None]:
    """Return the answer of `find_ids`. Under the log's lock."""
    active = filter(None, map(log.window.find, ids))
    found: dict[str, tuple[int, str | None]]
    found = {item.entry.id: (item.entry.seq, None) for item in active}
    missing = set(ids) - found.keys()
    for seq, record in await log.reader.naming(missing) if missing else ():
        reasons: dict[str, str | None] = {}
        match record:
            case Added():
                found[record.id] = seq, None
            case Deleted():
                reasons = dict.fromkeys(record.ids, "deleted")
            case Undone():
                reasons = dict.fromkeys(record.restored)
            case Compressed():
                reason = record.reason.removeprefix("retracted: ")
                reasons = dict.fromkeys(ids_retracted_by(record), reason)
        found |= {name: (found[name][0], reasons[name]) for name in found.keys() & reasons.keys()}
    return {
        name: reason or ("cleared" if seq <= log.totals.era else None)
        for name, (seq, reason) in sorted(found.items(), key=lambda pair: pair[1][0])
    }


async def originals_of(items: Sequence[WindowItem], reader: LogReader) -> list[tuple[Entry, ...]]:
    """Return the added entries that stubs or clipped entries replace, as they are stored."""
    added: dict[str, Entry] = {}
    replaced: dict[str, tuple[str, ...]] = {}  # by a replacement
    missing = [item.entry.id for item in items]
    while missing:
        wanted, missing = missing, []
        for seq, record in await reader.get(wanted):
            if isinstance(record, Added):
                added[record.id] = record.placed(seq)
            elif isinstance(record, Compressed):
                for item in record.replacements:
                    if item.entry is not None and item.entry.id in wanted:
                        replaced[item.entry.id] = item.ids
                        missing += item.ids
    return [tuple(_added_by(item.entry.id, added, replaced)) for item in items]


def _added_by(
    entry_id: str, added: Mapping[str, Entry], replaced: Mapping[str, tuple[str, ...]]
) -> Iterator[Entry]:
    if entry_id in added:
        yield added[entry_id]
    else:
        for name in replaced.get(entry_id, ()):
            yield from _added_by(name, added, replaced)


async def _id_of(wanted: str, log: SessionLog) -> str:
    """Return the id of the entry at an address; anything else, or an id that looks like one, is an id."""
    address = parse_address(wanted)
    if address is None or log.window.find(wanted) or await log.reader.get([wanted]):
        return wanted
    seq, number = address
    record = await log.reader.at(seq)
    if isinstance(record, Added):
        return wanted if number else record.id
    if not isinstance(record, Compressed):
        return wanted
    if not number and record.state is not None and record.state.text:
        return record.id
    made = _made_by(record)
    if not number and len(made) > 1:
        raise EntryNotFound(
            f"#{seq} is a compression that made {len(made)} entries, "
            f"#{seq}.{min(made)} to #{seq}.{max(made)}: name one of them"
        )
    entry = made.get(number or min(made, default=0))
    return wanted if entry is None else entry.id


async def _hidden(entry_id: str, log: SessionLog) -> Entry | None:
    """Return an entry that the window does not show, with its replacement there, if ids lead to that."""
    found = await log.reader.get([entry_id])
    if not found:
        return None
    [(seq, record)] = found
    made = _made_by(record).values() if isinstance(record, Compressed) else ()
    entry = next((each for each in made if each.id == entry_id), None)
    if isinstance(record, Added):
        entry = msgspec.structs.replace(record.entry, pinned=False)
    shown = await _shown_as(entry_id, log)
    if entry is None or shown is None:
        return None
    active = shown[1]
    # An active end proves that all before it is in force. Without one an added entry of this era is hidden
    # by the newest compression that names it, while a replacement may have been undone.
    if active is None and (isinstance(record, Compressed) or seq <= log.totals.era):
        return None
    return msgspec.structs.replace(entry, seq=seq, compressed=True, summary_id=active)


async def _shown_as(name: str, log: SessionLog) -> Shown | None:
    """Return the method and the id of the entry that represents a hidden one in the window.

    The id is None if there is no such entry. Returns None if a step to it cannot be found by its id.
    """
    known = log.reader.representatives(log.window.epoch)
    passed: list[str] = []  # replacements on the way
    shown: Shown | None = None
    speaker: str | None = name
    while speaker is not None and (
        (active := log.window.find(speaker)) is None or active.compression is None
    ):
        if speaker in known:
            shown = known[speaker]
            break
        passed.append(speaker)
        record = await log.reader.hiding(speaker)
        if not isinstance(record, Compressed):
            return None
        item = next(item for item in record.replacements if speaker in item.ids)
        speaker, outline = speaker_of(item), log.window.outline
        if item.method == "outline" and outline is not None:
            shown = (item.method, outline.entry.id)
            break
        shown = (item.method, speaker)
    if shown is not None:
        known.update(dict.fromkeys(passed[1:], shown))
    return shown


async def _entry_in_log(entry_id: str, log: SessionLog) -> Entry | None:
    """Return an entry by reading the log: of this era, or added in an earlier one and not deleted."""
    history = History.of(await log.era())
    compression = history.compressions.get(entry_id)
    if compression is not None and compression.state is not None:
        outline = log.window.outline
        return msgspec.structs.replace(
            state_entry(compression, compression.state),
            seq=history.seq_of(entry_id),
            compressed=True,
            summary_id=None if outline is None else outline.entry.id,
        )
    for entry in (*history.entries(), *history.replaced_entries()):
        if entry.id == entry_id:
            return entry
    found: Entry | None = None
    for seq, record in await log.reader.records():
        if isinstance(record, Added) and record.id == entry_id:
            found = record.placed(seq)
        elif isinstance(record, Deleted) and entry_id in record.ids:
            found = None
    return found


def _made_by(record: Compressed) -> dict[int, Entry]:
    """Return the entries that a compression made, by their numbers among its replacements."""
    return {
        number: msgspec.structs.replace(item.entry, replacement=number)
        for number, item in enumerate(record.replacements, 1)
        if item.entry is not None
    }
