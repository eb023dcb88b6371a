"""Writing a session's log as an archive, and comparing it with one, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence

from memman.archive.info import ArchiveInfo, Packing, Target
from memman.archive.lines import Header
from memman.archive.writer import ArchiveWriter
from memman.plugins import CREATED_BY
from memman.records import Added, Record, deleted_in
from memman.session.log import no_session
from memman.session.reader import LogReader
from memman.session.shared import Shared


async def export_archive(
    session_id: str, shared: Shared, to: Target, packing: Packing | None
) -> ArchiveInfo:
    """Write the log as it is now; records that are added in the meantime are not in the archive.

    Raises:
        SessionNotFound: the session does not exist.
        StoreConflict: entries, or the session, were deleted in the meantime.
    """
    runtime, reader = shared.runtime, LogReader(session_id, shared)
    head, epoch = await reader.state() or (0, 0)
    if not head:
        raise no_session(session_id)
    # A store may not have erased yet what deletions name; those change the epoch.
    deleted: set[str] = set()
    if epoch:
        async for page in reader.pages(head):
            deleted |= deleted_in(record for _, record in page)
    writer = ArchiveWriter(to, packing, frozenset(deleted))
    header = Header(session_id=session_id, head=head, created_by=CREATED_BY)
    try:
        await runtime.complete(runtime.call(writer, writer.begin, header))
        async for page in reader.pages(head):
            await runtime.complete(runtime.call(writer, writer.write, page))
        await reader.check_kept(head, epoch)
        return await runtime.complete(runtime.call(writer, writer.finish))
    except BaseException:
        await runtime.complete(runtime.call(writer, writer.abandon))
        raise


async def begins_with(records: Sequence[Record], reader: LogReader) -> bool:
    """Return whether the log begins with these records, deleted ones as they are now."""
    coming, head = iter(records), len(records)
    if (await reader.state() or (0, 0))[0] < head:
        return False
    async for page in reader.pages(head):
        if not all(_is_same(record, next(coming)) for _, record in page):
            return False
    return True


def _is_same(stored: Record, coming: Record) -> bool:
    """Return whether a stored record is this one, or its tombstone."""
    if type(stored) is not type(coming) or stored.id != coming.id:
        return False
    if isinstance(stored, Added) and isinstance(coming, Added):
        return stored.entry.content in (coming.entry.content, "")
    return True
