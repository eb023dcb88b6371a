"""Reading the stored log of one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from memman.errors import StoreConflict
from memman.records import Deleted, Record, ReplacementMethod
from memman.session.shared import Shared

Shown = tuple[ReplacementMethod, str | None]
"""The method by which a hidden entry was replaced last, and the id of its replacement in the window."""
_PAGE = 1_000
_COPIED = 200  # records of a page that is copied; entries may be large


class LogReader:
    """Reads the records of one session from the store."""

    __slots__ = ("_representatives", "_shared", "id")

    def __init__(self, session_id: str, shared: Shared) -> None:
        self.id = session_id
        self._shared = shared
        self._representatives: tuple[int, dict[str, Shown]] = (0, {})  # at an epoch

    def representatives(self, epoch: int) -> dict[str, Shown]:
        """Return the cache of the entries that represent replacements in the window at an epoch."""
        if self._representatives[0] != epoch:
            self._representatives = epoch, {}
        return self._representatives[1]

    async def state(self) -> tuple[int, int] | None:
        """Return the head and the epoch of the stored log, or None if it does not exist."""
        return await self._shared.store.state(self.id)

    async def get(self, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the newest record that made each of these ids, in log order."""
        return await self._shared.store.get(self.id, ids)

    async def naming(self, ids: Collection[str]) -> Sequence[tuple[int, Record]]:
        """Return every record that names one of these ids, of any era, in log order."""
        return await self._shared.store.find(self.id, list(ids))

    async def hiding(self, entry_id: str) -> Record | None:
        """Return the newest compression or deletion that hid an entry."""
        found = await self._shared.store.hiding(self.id, [entry_id])
        return found[0][1] if found else None

    async def at(self, seq: int) -> Record | None:
        """Return the record with this `seq`."""
        page = await self.page(seq - 1, 1)
        return page[0][1] if page else None

    async def page(self, after: int, limit: int) -> Sequence[tuple[int, Record]]:
        """Return the next records after a seq, at most `limit`."""
        return await self._shared.store.read(self.id, after, limit)

    async def records(self, after: int = 0) -> list[tuple[int, Record]]:
        """Return all records after a seq."""
        records: list[tuple[int, Record]] = []
        while True:
            page = await self.page(after, _PAGE)
            records += page
            if len(page) < _PAGE:
                return records
            after = page[-1][0]

    async def pages(self, head: int) -> AsyncIterator[Sequence[tuple[int, Record]]]:
        """Yield the records up to `head`, page by page. Raises `StoreConflict` if the log ends before."""
        after = 0
        while after < head:
            page = await self.page(after, min(_COPIED, head - after))
            if not page:
                raise StoreConflict(f"session {self.id!r} was deleted while it was read")
            yield page
            after = page[-1][0]

    async def check_kept(self, head: int, epoch: int) -> None:
        """Raise `StoreConflict` if entries, or the session, were deleted since it was at this state."""
        state = await self.state() or (0, 0)
        if state[1] == epoch and state[0] >= head:
            return
        later = await self.records(head) if state[0] >= head else ()
        if not later or any(isinstance(record, Deleted) for _, record in later):
            raise StoreConflict(
                f"entries of session {self.id!r} were deleted while it was copied; nothing was changed: "
                "try again"
            )
