"""Writing of archives: to a path, whole or not at all, or to a stream."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from memman.archive.encoding import packed, packing_for
from memman.archive.info import ArchiveInfo, Target
from memman.archive.lines import VERSION, Header, Trailer, record_line, with_checksum
from memman.display import safe_repr
from memman.entries import is_path
from memman.errors import InvalidInput
from memman.files import NewFile
from memman.records import Added, Record, tainted_by, tombstone, trusting


class ArchiveWriter:
    """Writes one archive: `begin`, `write` for each page of the log, then `finish` or `abandon`.

    `finish` puts the file at its path. Only its owner can read it; the permissions of an existing file
    stay. A symbolic link is replaced, not followed. Deleted entries (`gone`) are written as tombstones. A
    stream is not closed.
    """

    blocking = True

    def __init__(self, to: Target, packing: str | None, gone: frozenset[str] = frozenset()) -> None:
        self._path = Path(to) if isinstance(to, str | os.PathLike) else None
        if self._path is None and not callable(getattr(to, "write", None)):
            raise InvalidInput(
                f"an archive is written to a path or a binary file, not to {type(to).__name__}"
            )
        if self._path is not None and not (self._path.name and is_path(str(self._path))):
            raise InvalidInput(
                f"an archive cannot be written to {safe_repr(to)}: it is not the path of a file"
            )
        self._packing = packing_for(self._path.name if self._path else "", packing)
        self._new = None if self._path is None else NewFile(self._path)
        self._out = cast("BinaryIO", to)  # with a path, `begin` opens its file
        self._packed = self._out
        self._tainted = gone
        self._digest = hashlib.sha256()
        self._header: Header | None = None
        self._records = self._entries = self._bytes = 0

    def begin(self, header: Header) -> None:
        """Open the file and write the first line. Raises `OSError`."""
        self._header = header
        if self._new is not None:
            self._out = self._new.open()
        self._packed = self._out if self._packing == "none" else packed(self._out, self._packing)
        self._put(with_checksum(msgspec.json.encode(header)))

    def write(self, records: Iterable[tuple[int, Record]]) -> None:
        """Write the next page of the log."""
        found = []
        for _, record in records:
            self._records += 1
            found.append(record_line(self._records, self._as_archived(record)))
        self._put(b"".join(found))

    def finish(self) -> ArchiveInfo:
        """Write the last line and put the file at its path."""
        header = self._header
        assert header is not None  # noqa: S101 - `begin` comes first
        trailer = Trailer(count=self._records, sha256=self._digest.hexdigest())
        self._put(with_checksum(msgspec.json.encode(trailer)))
        if self._packed is not self._out:
            self._packed.close()
        if self._new is None:
            self._out.flush()
        else:
            self._new.commit()
        return ArchiveInfo(
            session_id=header.session_id,
            records=self._records,
            entries=self._entries,
            bytes=self._bytes,
            sha256=trailer.sha256,
            packing=self._packing,
            version=VERSION,
            created_by=header.created_by,
        )

    def abandon(self) -> None:
        """Remove an unfinished file."""
        if self._new is not None:
            self._new.abandon()

    def _as_archived(self, record: Record) -> Record:
        """Return the record without deleted content, and without an entry's seq: its line has it."""
        if self._tainted:
            self._tainted = tainted_by([record], self._tainted)
            record = tombstone(record, self._tainted)
        if isinstance(record, Added):
            self._entries += 1
            if record.entry.seq:
                entry = msgspec.structs.replace(record.entry, seq=0)
                return msgspec.structs.replace(record, entry=entry)
        return trusting(record)

    def _put(self, data: bytes) -> None:
        self._packed.write(data)
        self._digest.update(data)
        self._bytes += len(data)
