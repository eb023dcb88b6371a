"""Archives on the command line: told by their content, read like documents, written whole or not at all."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from stat import S_ISFIFO
from typing import BinaryIO

import click

from memman.about import CREATED_BY
from memman.archive import (
    ArchiveInfo,
    ArchiveLimits,
    ArchiveWriter,
    Header,
    Packing,
    Spool,
    session_of,
)
from memman.cli.databases import check_file
from memman.cli.lines import STDIN
from memman.cli.output import json_output
from memman.cli.problems import UnreadableError, UnusableError
from memman.cli.progress import Watch
from memman.entries import file_mode
from memman.manager import MemoryManager
from memman.records import Record
from memman.session import OnConflict

FORMAT = "memman-jsonl"
_ALL = 2**60
_OURS = ArchiveLimits(
    file_bytes=_ALL,
    unpacked_bytes=_ALL,
    line_bytes=_ALL,
    records=_ALL,
    entries=_ALL,
    string_bytes=_ALL,
)  # nobody else wrote it
_LIMITS = "memman.cli.limits"
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def limit(context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> None:
    """Notes what `--limit` says, for whoever reads an archive in this run of a command."""
    known = ArchiveLimits.__struct_fields__
    wanted: dict[str, int] = {}
    for each in given:
        name, _, number = each.partition("=")
        if name not in known or not number.replace("_", "").isdecimal():
            raise click.BadParameter(
                f"{each!r} is no NAME=NUMBER; NAME is one of {', '.join(known)}."
            )
        wanted[name] = int(number)
    context.meta[_LIMITS] = ArchiveLimits(**wanted)


def limits() -> ArchiveLimits:
    """What an archive may ask of this run of a command."""
    noted: ArchiveLimits = click.get_current_context().meta.get(_LIMITS, ArchiveLimits())
    return noted


def archived_session(path: str) -> str | None:
    """The id of the session in an archive; None for a file of any other kind, or none at all.

    An archive whose first line is broken is one all the same, of the session "".
    """
    try:
        if not Path(path).is_file():  # to look into a pipe is to wait for it, and to take from it
            return None
        with Path(path).open("rb") as file:
            # A list of messages, whose one line is as long as the log, need not be read for that.
            return None if file.peek(1)[:1] == b"[" else session_of(file)
    except OSError:
        return None


def is_archive_name(path: str) -> bool:
    """Whether a file of this name is to be an archive."""
    return path.endswith(_SUFFIXES)


def write_archive(
    memory: MemoryManager, session_id: str, path: str, packing: Packing | None = None
) -> ArchiveInfo:
    """Writes a session's archive to a file, or to stdout for "-". Raises `UnusableError`."""
    to = _stdout(packing) if path == STDIN else path
    try:
        return memory.export_archive(session_id, to, packing=packing)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnusableError(f"cannot write {path}: {error.strerror or error}") from None


def _stdout(packing: Packing | None) -> BinaryIO:
    if packing not in (None, "none") and sys.stdout.isatty():
        raise UnusableError("a packed archive is no text for a terminal; name a file with -o")
    return json_output()


@contextmanager
def archived_records(session_id: str, records: Iterable[Record]) -> Iterator[tuple[str, int]]:
    """An archive of records that come one after the other, and how many entries it has.

    They go to the disk as they come, so that there may be more of them than memory holds.
    """
    spool = Spool()
    try:
        for record in records:
            spool.append(record)
        with tempfile.TemporaryDirectory(prefix="memman-") as folder:
            file = Path(folder) / "session"
            writer = ArchiveWriter(file, "none")
            writer.begin(Header(session_id=session_id, head=len(spool), created_by=CREATED_BY))
            for numbered in enumerate(spool, 1):
                writer.write([numbered])
            entries = writer.finish().entries
            spool.close()  # the disk holds it once at a time
            yield str(file), entries
    except OSError as error:
        what = f"cannot copy the log to a temporary file: {error.strerror or error}"
        raise UnusableError(what) from None
    finally:
        spool.close()


def read_own_archive(memory: MemoryManager, path: str, on_conflict: OnConflict) -> str:
    """Takes an archive in that was made just now, however large it is; returns its session's id."""
    return memory.import_archive(path, on_conflict, limits=_OURS, trust_settings=True)


def read_archive(
    memory: MemoryManager, path: str, on_conflict: OnConflict = "fail", watch: Watch | None = None
) -> str:
    """Takes an archive in and returns its session's id. Raises `UnreadableError` or `StateError`."""
    try:
        with Path(path).open("rb") as file:
            source = file if watch is None else watch(file)
            return memory.import_archive(source, on_conflict, limits=limits())
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None


def _piped(path: str) -> AbstractContextManager[BinaryIO]:
    """What is on stdin, which stays open, or in a pipe."""
    if path == STDIN:
        return nullcontext(sys.stdin.buffer)
    return Path(path).open("rb")


def spooled(path: str) -> str:
    """A file of what is on stdin, for "-", or in a pipe, which goes when the command ends; else the path.

    Raises `UnreadableError` for a database.
    """
    if path != STDIN and not S_ISFIFO(file_mode(path)):
        check_file(path)
        return path
    folder = tempfile.TemporaryDirectory(prefix="memman-")
    click.get_current_context().call_on_close(folder.cleanup)
    file = Path(folder.name) / "stdin"
    with file.open("wb") as kept, _piped(path) as given:
        shutil.copyfileobj(given, kept)
    return str(file)
