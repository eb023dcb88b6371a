"""Sessions with a long history and a short window, created as fast as their rows are written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from memman import Entry, TokenCount
from memman.ids import new_id
from memman.protocols import Store, StoredItem
from memman.records import Added, Compressed, Replacement

_RUN = 1_000  # entries that one compression replaces


def grow(store: Store, session: str, entries: int, window: int) -> None:
    """Create a session of so many short entries, the newest of them in the window after a summary.

    The log is like a manager's: each compression replaces the oldest entries, and the summary before.
    """
    summary: list[str] = []
    left = entries
    while left:
        batch = [Added(_entry(f"entry {left - n}")) for n in range(min(left, _RUN + window))]
        left -= len(batch)
        appended = store.append(session, batch)
        stay = window if not left else 0
        covered = [record.id for record in batch[: len(batch) - stay]]
        if covered:
            record, summary_id = _compressed([*summary, *covered])
            summary = [summary_id]
            seqs = appended.seqs[len(covered) :]
            places = [StoredItem(0, 0, 1), *(StoredItem(seq, -1, seq) for seq in seqs)]
            store.commit(session, appended.epoch, (record,), places, appended.head)


def _entry(text: str) -> Entry:
    return Entry(
        id=new_id(),
        type="message",
        role="user",
        content=text,
        timestamp=datetime.now(UTC),
        token_count=TokenCount(3, "client", "high"),
    )


def _compressed(ids: Sequence[str]) -> tuple[Compressed, str]:
    """A compression of these into a summary, and the summary's id."""
    summary = msgspec.structs.replace(_entry("what was said"), type="summary", role="system")
    record = Compressed(
        id=new_id(),
        at=datetime.now(UTC),
        replacements=(Replacement(tuple(ids), summary, "summary"),),
        reason="manual",
        tokens_before=3 * len(ids),
        tokens_after=3,
    )
    return record, summary.id
