"""An archive on its way in: read to its end and checked before anything is stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from memman.archive.limits import DEFAULT_LIMITS, ArchiveLimits
from memman.archive.reader import ArchiveInfo, ArchiveReader
from memman.archive.temp_file import Spool
from memman.archive.validation import LogChecker, Recount, entries_of, verified, with_entry
from memman.display import safe_repr
from memman.entries import Entry, is_path
from memman.errors import EntryNotFound, InvalidInput, Refused, StateError
from memman.protocols import StoredItem
from memman.records import Record, blank, trusting

Source = str | os.PathLike[str] | BinaryIO
"""Where an archive is read from: a path, or a file open for bytes."""


class Intake:
    """An archive's log in temporary files: `check` reads it in, then `records` and the rest are there.

    Args:
        source: a path, or a binary file, which is read from where it is and not closed.
        limits: what it may take at most.
        meter: whose counts are worked out anew; None takes all counts as they are.
        redacted: what an entry becomes before it is stored.
        trusted: whether the settings in it may take effect.
    """

    blocking = True

    def __init__(
        self,
        source: Source,
        limits: ArchiveLimits | None = None,
        counter: Recount | None = None,
        redacted: Callable[[Entry], Entry] | None = None,
        *,
        trusted: bool = True,
    ) -> None:
        self._source = source
        self._limits = DEFAULT_LIMITS if limits is None else limits
        if not isinstance(self._limits, ArchiveLimits):
            raise InvalidInput(f"limits must be ArchiveLimits, not {type(limits).__name__}")
        self._meter = counter
        self._redacted = redacted
        self._trusted = trusted
        # What the log configured, its window up to `floor` for a commit of the whole log, and the place
        # after which every added entry is in the window.
        self.settings: dict[str, Any] = {}
        self.window: list[StoredItem] = []
        self.floor = 0
        # The place, by id, of what has no content and costs something.
        self._blank: dict[str, int] = {}
        self.records = Spool()

    def check(self) -> ArchiveInfo:
        """Reads the archive to its end.

        Raises:
            StateError: it is not sound, or beyond a limit; every fault with its line.
            OSError: the file cannot be read.
        """
        with _opened(self._source) as source:
            reader, checker = ArchiveReader(source, self._limits), LogChecker()
            sound = True
            for seq, record in reader.records():
                # From the first record that cannot follow on, only the lines are looked at.
                sound = sound and self._taken(reader, checker, seq, record)
        self.settings = checker.history.totals.settings
        self.window, self.floor = checker.window(), checker.floor
        if not reader.faults:
            self._check_whole(reader)
        return reader.info

    def close(self) -> None:
        """Lets the temporary files go."""
        self.records.close()

    def _taken(self, reader: ArchiveReader, checker: LogChecker, seq: int, record: Record) -> bool:
        """Whether a record could follow those before it."""
        if reader.faults:
            return False
        try:
            record = checker.with_losses(self._counted(seq, record))
            checker.take(seq, with_entry(record, blank))  # texts would fill the memory
        except (Refused, EntryNotFound, InvalidInput) as error:
            reader.faults.add(seq + 1, f"{type(record).__name__}: {error}")
        else:
            redacted = self._redacted
            record = trusting(record, self._trusted)
            self.records.append(record if redacted is None else with_entry(record, redacted))
            return True
        return False

    def _counted(self, seq: int, record: Record) -> Record:
        """The record with true counts, as far as they can be known here."""
        counter = self._meter
        if counter is None or not entries_of(record):
            return record

        def counted(entry: Entry) -> Entry:
            true = verified(entry, counter)
            if true is entry or not _is_blank(entry):
                return true
            # What was deleted keeps its count; whether it was is known at the end.
            self._blank[entry.id] = seq
            return entry

        return with_entry(record, counted)

    def _check_whole(self, reader: ArchiveReader) -> None:
        """What only the whole log can tell."""
        header = reader.header
        told = msgspec.UNSET if header is None else header.settings
        if told is not msgspec.UNSET and told != self.settings:
            reader.faults.add(1, "its settings differ from what the log configured")
        if not len(self.records):
            reader.faults.add(1, "its log is empty")
        if claimed := self._blank.keys() - self.records.tainted:
            seq, name = min((self._blank[name], name) for name in claimed)
            fault = f"entry {name!r} has no content, was not deleted, and claims to have tokens"
            reader.faults.add(seq + 1, fault)


def verify(source: Source, *, limits: ArchiveLimits | None = None) -> ArchiveInfo:
    """Reads an archive to its end and says what it holds; needs no store and changes nothing.

    Token counts are taken as they are: whether they are true only a counter knows, at the import.

    Args:
        source: a path, or a binary file, which is read from where it is and not closed.
        limits: what it may take at most; `ArchiveLimits()` if none.

    Raises:
        StateError: it is not sound, or beyond a limit; `problems` has every fault with its line.
        OSError: the file cannot be read.
    """
    intake = Intake(source, limits)
    try:
        return intake.check()
    finally:
        intake.close()


def _is_blank(entry: Entry) -> bool:
    """Whether an entry looks as a deletion leaves it."""
    raw = len(memoryview(entry.raw_json)) + len(memoryview(entry.metadata_json))
    return entry.content == "" and entry.name is None and entry.call_id is None and not raw


@contextmanager
def _opened(source: Source) -> Iterator[BinaryIO]:
    if isinstance(source, str | os.PathLike):
        if not is_path(os.fspath(source)):
            raise InvalidInput(
                f"an archive cannot be read from {safe_repr(source)}: it is no path of a file"
            )
        with Path(source).open("rb") as file:
            yield file
    elif callable(getattr(source, "read", None)):
        yield source
    else:
        raise InvalidInput(
            f"an archive comes from a path or a binary file, not {type(source).__name__}"
        )


def session_of(source: BinaryIO) -> str | None:
    """The id of the session that an archive is of, by its first line; None where it is no archive.

    "" where it begins as one and its first line cannot be read, or where it cannot be unpacked.
    """
    reader = ArchiveReader(source, DEFAULT_LIMITS)
    with suppress(StateError):
        next(reader.records(), None)
    if reader.header is not None:
        return reader.header.session_id
    return "" if reader.begins_as_archive or reader.is_packed_and_broken else None
