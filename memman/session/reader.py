"""Reading the stored log of one session."""

from __future__ import annotations

from collections.abc import Sequence

from memman.errors import StoreConflict
from memman.protocols import Snapshot
from memman.records import Record
from memman.session.shared import Shared

_PAGE = 1_000


class LogReader:
    """Reads the records of one session from the store."""

    __slots__ = ("_shared", "id")

    def __init__(self, session_id: str, shared: Shared) -> None:
        self.id = session_id
        self._shared = shared

    async def state(self) -> tuple[int, int] | None:
        """Return the head and the epoch of the stored log, or None if it does not exist."""
        return await self._shared.store.state(self.id)

    async def snapshot(self) -> Snapshot | None:
        """Return the stored window and totals, or None if it does not exist."""
        return await self._shared.store.load(self.id)

    async def get(self, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the newest record that made each of these ids, in log order."""
        return await self._shared.store.get(self.id, ids)

    async def hiding(self, entry_id: str) -> Record | None:
        """Return the newest compression or deletion that hid an entry."""
        found = await self._shared.store.hiding(self.id, [entry_id])
        return found[0][1] if found else None

    async def at(self, seq: int) -> Record | None:
        """Return the record with this `seq`."""
        page = await self._shared.store.read(self.id, seq - 1, 1)
        return page[0][1] if page else None

    async def records(self, after: int = 0) -> list[tuple[int, Record]]:
        """Return all records after a seq."""
        records: list[tuple[int, Record]] = []
        while True:
            page = await self._shared.store.read(self.id, after, _PAGE)
            records += page
            if len(page) < _PAGE:
                return records
            after = page[-1][0]

    async def page(self, after: int, limit: int) -> Sequence[tuple[int, Record]]:
        """Return the next records after a seq. Raises `StoreConflict` at the end of the log."""
        page = await self._shared.store.read(self.id, after, limit)
        if not page:
            raise StoreConflict(f"session {self.id!r} was deleted while it was read")
        return page
