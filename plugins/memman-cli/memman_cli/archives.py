"""Archives on the command line: recognised by their content, and written whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from memman.archive.importer import session_of
from memman.archive.info import ArchiveInfo, OnConflict, Packing
from memman.archive.limits import ArchiveLimits
from memman.archive.lines import Header
from memman.archive.temp_file import RecordFile
from memman.archive.writer import ArchiveWriter
from memman.manager import MemoryManager
from memman.plugins import CREATED_BY
from memman.records import Record
from memman_cli.display import progress
from memman_cli.errors import UnusableError
from memman_cli.files import STDIN, cannot_read
from memman_cli.options import archive_limits
from memman_cli.output import json_output

FORMAT = "memman-jsonl"
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_SIZES = ("file_bytes", "unpacked_bytes", "line_bytes", "records", "entries", "string_bytes")
_UNLIMITED = ArchiveLimits(**dict.fromkeys(_SIZES, 2**60))


def archived_session(path: str) -> str | None:
    """Return the id of the session in an archive, None for any other file.

    An archive with a broken first line counts as an archive of the session "".
    """
    try:
        if not Path(path).is_file():  # opening a pipe would block, and take bytes from it
            return None
        with Path(path).open("rb") as file:
            # A log on one long line need not be read for this.
            return None if file.peek(1)[:1] == b"[" else session_of(file)
    except OSError:
        return None


def is_archive_name(path: str) -> bool:
    """Return whether a new file of this name becomes an archive."""
    return path.endswith(_SUFFIXES)


def cannot_write(path: str, error: OSError) -> UnusableError:
    """Return the error for a file that the system does not let us write."""
    return UnusableError(f"cannot write {path}: {error.strerror or error}")


def write_archive(
    memory: MemoryManager, session_id: str, path: str, packing: Packing | None = None
) -> ArchiveInfo:
    """Write a session's archive to a file, or to stdout for "-". Raises `UnusableError`."""
    to: str | BinaryIO = path
    if path == STDIN:
        if packing not in (None, "none") and sys.stdout.isatty():
            raise UnusableError(
                "a packed archive is binary, not for a terminal; name a file with -o"
            )
        to = json_output()
    try:
        return memory.export_archive(session_id, to, packing=packing)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(path, error) from None


@contextmanager
def archived_records(
    session_id: str, records: Iterable[Record], folder: Path
) -> Iterator[tuple[str, int]]:
    """Write records to a temporary archive in a folder, one by one; yield its path and its entries."""
    record_file = RecordFile()
    try:
        for record in records:
            record_file.append(record)
        file = folder / "session"
        writer = ArchiveWriter(file, "none")
        writer.begin(Header(session_id=session_id, head=len(record_file), created_by=CREATED_BY))
        for numbered in enumerate(record_file, 1):
            writer.write([numbered])
        entries = writer.finish().entries
        record_file.close()  # only one copy stays on the disk
        yield str(file), entries
        file.unlink()
    except OSError as error:
        what = f"cannot copy the log to a temporary file: {error.strerror or error}"
        raise UnusableError(what) from None
    finally:
        record_file.close()


def import_own_archive(memory: MemoryManager, path: str, on_conflict: OnConflict) -> str:
    """Import an archive of any size that this command wrote; return its session's id."""
    return memory.import_archive(path, on_conflict, limits=_UNLIMITED, trust_settings=True)


def import_archive(memory: MemoryManager, path: str, on_conflict: OnConflict = "fail") -> str:
    """Import an archive and return its session's id. Raises `UnreadableError` or `StateError`."""
    try:
        with progress("importing") as watch, Path(path).open("rb") as file:
            return memory.import_archive(watch(file), on_conflict, limits=archive_limits())
    except OSError as error:
        raise cannot_read(path, error) from None
