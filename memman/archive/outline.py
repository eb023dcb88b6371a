"""The fold of a log without its texts, in a temporary file: checking a long log takes little memory.

It refuses what `History` refuses and comes to the same window; a property test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from memman.config import MemoryConfig, readable
from memman.entries import Entry
from memman.errors import EntryNotFound, InvalidInput, Refused
from memman.protocols import StoredItem
from memman.records import (
    SHAPES,
    Added,
    Cleared,
    Compressed,
    Configured,
    Deleted,
    Opened,
    Pinned,
    Record,
    Undone,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

# `place` is that among a compression's replacements, -1 for an added entry, -2 for any other record.
# `state` is 0 in the window, -1 out of it for good, -3 deleted, -2 for a compression in force, else the
# seq of the compression that hides it.
_TABLES = (
    """CREATE TABLE item (
        id TEXT PRIMARY KEY, seq INTEGER, place INTEGER, position INTEGER, tokens INTEGER,
        pinned INTEGER, state INTEGER
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX active ON item (position) WHERE state = 0",
    "CREATE INDEX hidden ON item (state) WHERE state > 0",
    "CREATE INDEX made ON item (seq) WHERE place >= 0",
    "CREATE INDEX in_force ON item (seq) WHERE state = -2",
)
_SETTINGS = ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", "cache_size = -8000")
_ENTRY, _OTHER = -1, -2
_ACTIVE, _GONE, _IN_FORCE = 0, -1, -2
_INSERT = "INSERT OR IGNORE INTO item VALUES (?, ?, ?, ?, ?, ?, ?)"
_BATCH = 512
Item = tuple[str, int, int, int, int, bool, int]


class Outline:
    """Takes the records of a log in order; raises as `History` does for one that cannot follow."""

    def __init__(self) -> None:
        import sqlite3

        # Without a name it is a file of its own that goes with the connection; the doors' threads differ.
        self._db: Connection = sqlite3.connect(
            "", isolation_level=None, check_same_thread=False, cached_statements=64
        )
        for setting in _SETTINGS:
            self._db.execute(f"PRAGMA {setting}")
        for table in _TABLES:
            self._db.execute(table)
        self._db.execute("BEGIN")
        self._waiting: list[Item] = []  # added entries that nobody asked for yet
        self.settings: dict[str, Any] = {}
        self._opened = False
        self.floor = 0  # the seq of the last record that changed the window's shape

    def close(self) -> None:
        """Lets the file go."""
        self._db.close()

    def apply(self, seq: int, record: Record) -> Record:
        """Takes the next record, and returns it with what a deletion took from the totals worked out.

        Raises `Refused`, `EntryNotFound` or `InvalidInput`; nothing may be taken after that.
        """
        if isinstance(record, Added):
            self._wait(seq, record.entry)
            return record
        self.settle()
        state = _IN_FORCE if isinstance(record, Compressed) else _GONE
        self._add([(record.id, seq, _OTHER, 0, 0, False, state)])
        match record:
            case Opened():
                self._open()
            case Compressed():
                self._compress(seq, record)
            case Undone():
                self._undo(record.compression_id)
            case Pinned():
                self._pin(record)
            case Deleted():
                record = self._delete(record)
            case Cleared():
                self._clear()
            case Configured():
                MemoryConfig().updated(readable(self.settings | record.changes))
                self.settings = self.settings | record.changes
        if isinstance(record, SHAPES):
            self.floor = seq
        return record

    def places(self) -> list[StoredItem]:
        """The window as a commit of this very log takes it: its places up to the floor."""
        self.settle()
        found = self._db.execute(
            "SELECT seq, place, position, pinned FROM item WHERE state = 0 AND position <= ?"
            " ORDER BY position",
            (self.floor,),
        )
        return [
            StoredItem(1 - seq, place, position, bool(pinned))
            for seq, place, position, pinned in found
        ]

    def settle(self) -> None:
        """Takes the added entries that wait, as they are taken together. Raises `TakenIdError`."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._add(waiting)

    # ------------------------------------------------------------ the records

    def _wait(self, seq: int, entry: Entry) -> None:
        tokens = entry.token_count.tokens
        self._waiting.append((entry.id, seq, _ENTRY, seq, tokens, entry.pinned, _ACTIVE))
        if len(self._waiting) >= _BATCH:
            self.settle()

    def _open(self) -> None:
        if self._opened:
            raise InvalidInput("the session was opened before")
        self._opened = True

    def _compress(self, seq: int, record: Compressed) -> None:
        runs = sorted((*self._run(item.ids), n) for n, item in enumerate(record.replacements))
        if not runs:
            raise Refused("a compression that replaces nothing")
        for (_, last, _), (first, _, number) in pairwise(runs):
            if first <= last:
                ids = record.replacements[number].ids
                raise Refused(f"two runs to be replaced overlap at entry {ids[0]}")
        made: list[Item] = []
        for position, _, number in runs:
            item = record.replacements[number]
            hidden = [(seq, name) for name in item.ids]
            self._db.executemany("UPDATE item SET state = ? WHERE id = ?", hidden)
            if item.entry is not None:
                tokens = item.entry.token_count.tokens
                made.append((item.entry.id, seq, number, position, tokens, False, _ACTIVE))
        self._add(made)

    def _run(self, ids: tuple[str, ...]) -> tuple[int, int]:
        """The first and the last position of a run that may be replaced."""
        first = self._active(ids[0]) if ids else None
        if first is None:
            raise Refused(f"a run to be replaced is not in the window: it begins with {ids[:1]}")
        run = self._db.execute(
            "SELECT id, pinned, position FROM item WHERE state = 0 AND position >= ?"
            " ORDER BY position LIMIT ?",
            (first, len(ids)),
        ).fetchall()
        for (active, pinned, _), name in zip(run, ids, strict=False):
            if active != name:
                raise Refused(f"the run to be replaced is not contiguous at entry {name}")
            if pinned:
                raise Refused(f"entry {name} is pinned")
        if len(run) != len(ids):
            raise Refused(f"the run to be replaced goes beyond the window at entry {ids[len(run)]}")
        return first, run[-1][2]

    def _undo(self, compression_id: str) -> None:
        found = self._one("SELECT seq FROM item WHERE id = ? AND state = -2", compression_id)
        if found is None:
            raise EntryNotFound(f"no compression {compression_id!r} is in force at this place")
        made = self._db.execute(
            "SELECT id, state, pinned FROM item WHERE seq = ? AND place >= 0", found
        )
        for name, state, pinned in made:
            if state != _ACTIVE:
                raise Refused(
                    f"compression {compression_id} was itself compressed or deleted: {name}"
                )
            if pinned:
                raise Refused(f"replacement {name} is pinned: unpin it before the undo")
        self._unfold(compression_id, *found)

    def _unfold(self, compression_id: str, seq: int) -> None:
        """Puts what a compression hides back into the window, and what it made out of it."""
        run = self._db.execute
        run("UPDATE item SET state = -1 WHERE seq = ? AND place >= 0", (seq,))
        run("UPDATE item SET state = 0 WHERE state = ? AND state > 0", (seq,))
        run("UPDATE item SET state = -1 WHERE id = ?", (compression_id,))

    def _pin(self, record: Pinned) -> None:
        if self._active(record.entry_id) is None:
            raise EntryNotFound(f"entry {record.entry_id!r} is not active, so it cannot be pinned")
        self._db.execute("UPDATE item SET pinned = ? WHERE id = ?", (record.on, record.entry_id))

    def _delete(self, record: Deleted) -> Deleted:
        doomed = list(dict.fromkeys(record.ids))
        for seq in sorted(self._covering(doomed), reverse=True):
            [name] = self._one("SELECT id FROM item WHERE seq = ? AND state = -2", seq)
            self._unfold(name, seq)
        lost = [
            tokens
            for name in doomed
            for tokens in self._one(
                "SELECT tokens FROM item WHERE id = ? AND place = -1 AND state >= 0", name
            )
            or ()
        ]
        self._db.executemany(
            "UPDATE item SET state = -3 WHERE id = ? AND place >= -1", [(name,) for name in doomed]
        )
        return msgspec.structs.replace(record, entries=len(lost), tokens=sum(lost))

    def _covering(self, doomed: Iterable[str]) -> set[int]:
        """The seqs of the compressions whose originals, at any depth, include one of these."""
        covering: set[int] = set()
        due = [
            seq
            for name in doomed
            for seq in self._one("SELECT state FROM item WHERE id = ? AND state > 0", name) or ()
        ]
        while due:
            seq = due.pop()
            if seq not in covering:
                covering.add(seq)
                query = "SELECT state FROM item WHERE seq = ? AND place >= 0 AND state > 0"
                due += [hider for (hider,) in self._db.execute(query, (seq,))]
        return covering

    def _clear(self) -> None:
        for state in ("= 0", "> 0", "= -2"):  # each by its index
            self._db.execute(f"UPDATE item SET state = -1 WHERE state {state}")  # noqa: S608 - our own
        # Their ids may come again, but for those of deleted entries.
        self._db.execute(
            "UPDATE item SET id = id || char(1) || seq WHERE place = -1 AND state != -3"
            " AND instr(id, char(1)) = 0"
        )

    # ------------------------------------------------------------ the table

    def _add(self, items: list[Item]) -> None:
        """Takes new ids. Raises `InvalidInput` for one that is taken."""
        before = self._db.total_changes
        self._db.executemany(_INSERT, items)
        if self._db.total_changes - before == len(items):
            return
        for item in items:
            if self._one("SELECT seq, place FROM item WHERE id = ?", item[0]) != item[1:3]:
                raise TakenIdError(item[1], f"the id {item[0]!r} was there before")

    def _active(self, name: str) -> int | None:
        """The position of an active entry."""
        found = self._one("SELECT position FROM item WHERE id = ? AND state = 0", name)
        return None if found is None else found[0]

    def _one(self, query: str, value: Any) -> Any:
        return self._db.execute(query, (value,)).fetchone()


class TakenIdError(InvalidInput):
    """An id was there before; `seq` is the place of the record that brings it again."""

    def __init__(self, seq: int, message: str) -> None:
        self.seq = seq
        super().__init__(message)
