"""Import of archives: read to the end and checked before anything is stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from memman.archive.info import ArchiveInfo, Source
from memman.archive.limits import DEFAULT_LIMITS, ArchiveLimits
from memman.archive.reader import ArchiveReader
from memman.archive.redaction import Redactor
from memman.archive.temp_file import RecordFile
from memman.archive.validation import LogChecker, Recount, verified, with_entry, with_sound_state
from memman.display import safe_repr
from memman.entries import Entry, is_path
from memman.errors import EntryNotFound, InvalidInput, Refused, StateError
from memman.protocols import StoredItem
from memman.records import Record, blank, trusting


class ArchiveImport:
    """Reads and checks an archive: `check` sets `records` and the other arguments of a commit.

    Args:
        source: a path, or a binary file, which is read from its position and not closed.
        limits: limits of its size.
        counter: the counter whose counts are recomputed; None accepts all counts.
        redacted: returns an entry as it is to be stored.
        trusted: whether the settings in it may take effect.
    """

    blocking = True

    def __init__(
        self,
        source: Source,
        limits: ArchiveLimits | None = None,
        counter: Recount | None = None,
        redact: Callable[[Entry], Entry] | None = None,
        *,
        trusted: bool = True,
    ) -> None:
        self._source = source
        self._limits = DEFAULT_LIMITS if limits is None else limits
        if not isinstance(self._limits, ArchiveLimits):
            raise InvalidInput(f"limits must be ArchiveLimits, not {type(limits).__name__}")
        self._counter = counter
        self._redactor = None if redact is None else Redactor(redact)
        self._trusted = trusted
        # The log's settings, its window up to `floor` for a commit of the whole log, and the place after
        # which every added entry is in the window.
        self.settings: dict[str, Any] = {}
        self.window: list[StoredItem] = []
        self.floor = 0
        # The seqs, by id, of entries without content that have tokens.
        self._blank: dict[str, int] = {}
        self.records = RecordFile()  # the caller closes it

    def check(self) -> ArchiveInfo:
        """Read the archive to its end.

        Raises:
            StateError: it is not valid, or exceeds a limit; it lists every fault with its line.
            OSError: the file cannot be read.
        """
        with _opened(self._source) as source:
            reader, checker = ArchiveReader(source, self._limits), LogChecker()
            sound = True
            for seq, record in reader.records():
                # After the first record that cannot follow, only the lines are checked.
                sound = sound and self._taken(reader, checker, seq, record)
        self.settings = checker.history.totals.settings
        self.window, self.floor = checker.window(), checker.floor
        if not reader.faults:
            self._check_whole(reader)
        return reader.info

    def _taken(self, reader: ArchiveReader, checker: LogChecker, seq: int, record: Record) -> bool:
        """Take the next record and return whether it can follow those before it."""
        if reader.faults:
            return False
        try:
            record = checker.history.completed(self._counted(seq, record))
            checker.take(seq, with_entry(record, blank))  # texts would fill the memory
        except (Refused, EntryNotFound, InvalidInput) as error:
            reader.add_fault(seq + 1, f"{type(record).__name__}: {error}")
            return False
        self.records.append(self._redacted(trusting(record, self._trusted)))
        return True

    def _redacted(self, record: Record) -> Record:
        """Return the record as it is to be stored."""
        if self._redactor is not None:
            record = self._redactor.record(record)
        return record if self._counter is None else with_sound_state(record, self._counter)

    def _counted(self, seq: int, record: Record) -> Record:
        """Return the record with correct counts, as far as they can be computed."""
        counter = self._counter
        if counter is None:
            return record

        def counted(entry: Entry) -> Entry:
            true = verified(entry, counter)
            if true is entry or not _is_blank(entry):
                return true
            # A deleted entry keeps its count; a later record may delete it.
            self._blank[entry.id] = seq
            return entry

        return with_entry(record, counted)

    def _check_whole(self, reader: ArchiveReader) -> None:
        """Check the settings, the counts and that there are records."""
        header = reader.header
        settings = msgspec.UNSET if header is None else header.settings
        if settings is not msgspec.UNSET and settings != self.settings:
            reader.add_fault(1, "its settings differ from those of its log")
        if not len(self.records):
            reader.add_fault(1, "its log is empty")
        if claimed := self._blank.keys() - self.records.tainted:
            seq, name = min((self._blank[name], name) for name in claimed)
            fault = f"entry {name!r} has no content and was not deleted, but has tokens"
            reader.add_fault(seq + 1, fault)


def verify(source: Source, *, limits: ArchiveLimits | None = None) -> ArchiveInfo:
    """Read an archive to its end and return a summary, without a store.

    Token counts are not checked: that needs a counter, and an import does it.

    Args:
        source: a path, or a binary file, which is read from its position and not closed.
        limits: limits of its size; `ArchiveLimits()` by default.

    Raises:
        StateError: it is not valid, or exceeds a limit; `problems` lists every fault with its line.
        OSError: the file cannot be read.
    """
    importer = ArchiveImport(source, limits)
    with closing(importer.records):
        return importer.check()


def _is_blank(entry: Entry) -> bool:
    """Return whether an entry looks like a deleted one."""
    raw = len(memoryview(entry.raw_json)) + len(memoryview(entry.metadata_json))
    return entry.content == "" and entry.name is None and entry.call_id is None and not raw


def _opened(source: Source) -> AbstractContextManager[BinaryIO]:
    if isinstance(source, str | os.PathLike):
        if not is_path(os.fspath(source)):
            raise InvalidInput(
                f"an archive cannot be read from {safe_repr(source)}: it is not the path of a file"
            )
        return Path(source).open("rb")
    if not callable(getattr(source, "read", None)):
        raise InvalidInput(
            f"an archive is read from a path or a binary file, not from {type(source).__name__}"
        )
    return nullcontext(source)


def session_of(source: BinaryIO) -> str | None:
    """Return the session id in an archive's first line; None if the source is not an archive.

    Returns "" if the source begins like an archive, but its first line cannot be decoded or it cannot be
    unpacked.
    """
    reader = ArchiveReader(source, DEFAULT_LIMITS)
    with suppress(StateError):
        next(reader.records(), None)
    if reader.header is not None:
        return reader.header.session_id
    return "" if reader.begins_as_archive or reader.source.broken else None
