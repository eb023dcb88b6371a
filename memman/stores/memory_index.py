"""The full-text index of the store in memory, in a database of its own that is in memory, too."""

from __future__ import annotations

from collections.abc import Sequence

from memman.protocols import Candidates, SearchRequest
from memman.records import Added, Record
from memman.search import index, searchable
from memman.stores.drivers import Library
from memman.stores.rows import candidates_of

_TABLE = "CREATE TABLE session (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, head INTEGER)"


class MemoryIndex:
    """Finds records that are kept elsewhere. It forgets nothing: after a deletion another one is made."""

    def __init__(self, library: Library) -> None:
        self._db = library.connect(":memory:", 1.0)
        self._db.execute(_TABLE)
        index.create(self._db)
        self._records: dict[int, tuple[str, int, Added]] = {}
        self._heads: dict[str, int] = {}

    def __del__(self) -> None:
        self._db.close()

    def add(self, session_id: str, records: Sequence[Record]) -> None:
        """Index the records of a session behind those that were."""
        head = self._heads.get(session_id, 0)
        if head == len(records):
            return
        self._heads[session_id] = len(records)
        self._db.execute("BEGIN")
        self._db.execute("INSERT OR IGNORE INTO session (id) VALUES (?)", (session_id,))
        self._db.execute("UPDATE session SET head = ? WHERE id = ?", (len(records), session_id))
        [(session,)] = self._db.execute("SELECT number FROM session WHERE id = ?", (session_id,))
        added = {
            index.place_of(session, seq): (session_id, seq, record)
            for seq, record in enumerate(records[head:], head + 1)
            if isinstance(record, Added)
        }
        self._records |= added
        rows = [(place, searchable(record.entry)) for place, (_, _, record) in added.items()]
        index.add(self._db, rows, 0)
        self._db.execute("COMMIT")

    def search(self, request: SearchRequest) -> Candidates:
        """Return the candidates for a request."""
        found = index.find(self._db, request)
        records = {place: self._records[place] for place, _ in found.rows}
        return candidates_of(request, found, records)
