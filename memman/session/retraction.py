"""The record of a retraction. If its entries are active, the window is enough to make it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from memman.entries import Entry
from memman.errors import EntryNotFound
from memman.log import History, LogState, torn_by
from memman.records import Compressed, Replacement
from memman.session.log import SessionLog
from memman.session.shared import Shared
from memman.window import own_count


async def retraction(
    ids: Sequence[str], reason: str, log: SessionLog, shared: Shared
) -> tuple[Compressed, LogState | None]:
    """Return the retraction of added entries, and the state after it. Under the log's lock.

    Entries that are retracted already stay so. If all are, returns the newest such retraction and None.
    """
    items = [item for name in ids if (item := log.window.find(name)) is not None]
    if len(items) == len(ids) and all(item.compression is None for item in items):
        active = (item.entry for item in log.window.items)
        record = _record([item.entry for item in items], active, reason, log, shared)
        if log.window.state is not None:
            record = msgspec.structs.replace(record, state=log.window.state.state)
        return _with_size(record, log.after(record))
    history = History.of(await log.era())
    for name in ids:
        if name not in history.added and not history.is_retracted(name):
            raise EntryNotFound(
                f"no entry {name!r} of this era to retract in session {log.id!r} "
                "(ids are those of Entry.id; a replacement is taken back with undo_compression)"
            )
    entries = [history.added[name] for name in ids if name in history.added]
    if not entries:
        return history.newest_hiding(ids), None
    record = _record(entries, history.added.values(), reason, log, shared)
    record = msgspec.structs.replace(record, unfolds=tuple(history.unfolded_by(record)))
    record = history.completed(record)
    return _with_size(record, log.after(record, history.unfoldings(record)))


def _record(
    entries: Sequence[Entry], others: Iterable[Entry], reason: str, log: SessionLog, shared: Shared
) -> Compressed:
    """Return the retraction of entries, each of which is a run of its own."""
    retracted = {entry.id: entry for entry in sorted(entries, key=lambda entry: entry.seq)}
    return Compressed(
        id=shared.new_id(),
        at=shared.clock(),
        replacements=tuple(Replacement((name,), None, "retract") for name in retracted),
        reason=f"retracted: {reason}" if reason else "retracted",
        tokens_before=log.window.tokens,
        tokens_after=0,
        lost_tokens=sum(map(own_count, retracted.values())),
        torn=torn_by(entries, others),
    )


def _with_size(record: Compressed, state: LogState) -> tuple[Compressed, LogState]:
    """Return the record with the tokens of the window after it."""
    return msgspec.structs.replace(record, tokens_after=state.window.tokens), state
