"""The full-text index of the store in memory, in a database of its own that is in memory, too."""

from __future__ import annotations

from collections.abc import Sequence

from memman.protocols import Candidates, SearchRequest
from memman.records import Added, Record
from memman.search import index, searchable
from memman.stores.drivers import Library
from memman.stores.rows import candidates_of

_TABLES = (
    "CREATE TABLE session (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, head INTEGER)",
    "CREATE TABLE record (number INTEGER PRIMARY KEY, session INTEGER NOT NULL)",
)


class MemoryIndex:
    """Finds records that are kept elsewhere. It forgets nothing: after a deletion another one is made."""

    def __init__(self, library: Library) -> None:
        self._db = library.connect(":memory:", 1.0)
        for statement in _TABLES:
            self._db.execute(statement)
        index.create(self._db)
        self._records: list[tuple[str, int, Added]] = []
        self._heads: dict[str, int] = {}

    def __del__(self) -> None:
        self._db.close()

    def add(self, session_id: str, records: Sequence[Record]) -> None:
        """Index the records of a session behind those that were."""
        head = self._heads.get(session_id, 0)
        if head == len(records):
            return
        added = [
            (session_id, seq, record)
            for seq, record in enumerate(records[head:], head + 1)
            if isinstance(record, Added)
        ]
        self._heads[session_id] = len(records)
        self._db.execute("BEGIN")
        self._db.execute("INSERT OR IGNORE INTO session (id) VALUES (?)", (session_id,))
        self._db.execute("UPDATE session SET head = ? WHERE id = ?", (len(records), session_id))
        [(session,)] = self._db.execute("SELECT number FROM session WHERE id = ?", (session_id,))
        numbers = range(len(self._records) + 1, len(self._records) + len(added) + 1)
        self._records += added
        self._db.executemany(
            "INSERT INTO record VALUES (?, ?)", [(number, session) for number in numbers]
        )
        rows = [
            (number, session, searchable(record.entry))
            for number, (_, _, record) in zip(numbers, added, strict=True)
        ]
        index.add(self._db, rows, len(self._records))
        self._db.execute("COMMIT")

    def search(self, request: SearchRequest) -> Candidates:
        """Return the candidates for a request."""
        found = index.find(self._db, request)
        records = {number: self._records[number - 1] for number, _ in found.rows}
        return candidates_of(request, found, records)
