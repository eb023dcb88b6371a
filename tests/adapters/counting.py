"""A store that counts the records that it reads, for tests of costs that must not grow with a log."""

from __future__ import annotations

from collections.abc import Sequence

from memman.records import Record
from memman.stores import MemoryStore


class CountingStore(MemoryStore):
    """`MemoryStore` with the number of records that were read so far."""

    def __init__(self) -> None:
        super().__init__()
        self.records_read = 0

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """Return records of the log."""
        return self._counted(super().read(session_id, after, limit))

    def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""
        return self._counted(super().find(session_id, ids))

    def _counted(self, found: Sequence[tuple[int, Record]]) -> Sequence[tuple[int, Record]]:
        self.records_read += len(found)
        return found
