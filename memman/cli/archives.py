"""Archives on the command line: told by their content, read like documents, written whole or not at all."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from memman.archive import ArchiveInfo, Packing, session_of
from memman.cli.problems import UnreadableError, UnusableError
from memman.cli.reading import STDIN
from memman.manager import MemoryManager, OnConflict

FORMAT = "memman-jsonl"
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def archived_session(path: str) -> str | None:
    """The id of the session in an archive; None for a file of any other kind, or none at all.

    An archive whose first line is broken is one all the same, of the session "".
    """
    try:
        with Path(path).open("rb") as file:
            return session_of(file)
    except OSError:
        return None


def is_archive_name(path: str) -> bool:
    """Whether a file of this name is to be an archive."""
    return path.endswith(_SUFFIXES)


def write_archive(
    memory: MemoryManager, session_id: str, path: str, packing: Packing | None = None
) -> ArchiveInfo:
    """Writes a session's archive to a file, or to stdout for "-". Raises `UnusableError`."""
    to = sys.stdout.buffer if path == STDIN else path
    try:
        return memory.export_archive(session_id, to, packing=packing)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnusableError(f"cannot write {path}: {error.strerror or error}") from None


def read_archive(memory: MemoryManager, path: str, on_conflict: OnConflict = "fail") -> str:
    """Takes an archive in and returns its session's id. Raises `UnreadableError` or `StateError`."""
    try:
        return memory.import_archive(path, on_conflict)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None


def spooled(path: str) -> str:
    """A file of what is on stdin, for "-"; else the path. It goes when the command ends."""
    if path != STDIN:
        return path
    folder = tempfile.TemporaryDirectory(prefix="memman-")
    click.get_current_context().call_on_close(folder.cleanup)
    file = Path(folder.name) / "stdin"
    with file.open("wb") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
    return str(file)
