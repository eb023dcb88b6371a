"""Files of sessions: those under a folder, their versions, and the part of a file that is written whole."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Final, cast

import msgspec

from memman_cli.files import NOT_JSON, File

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""Names of files that are read if only their folder is given: logs and archives."""
_BLOCK: Final = 2**16


class Version(msgspec.Struct, frozen=True):
    """A file as it was at one time; another version has another size, time or inode."""

    inode: int
    size: int
    changed: int


def version_of(path: Path) -> Version | None:
    """Return the version of a regular file, None for anything else."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not S_ISREG(found.st_mode):
        return None
    return Version(found.st_ino, found.st_size, found.st_mtime_ns)


def files_under(folder: Path) -> Iterator[Path]:
    """Yield the logs and archives under a folder, in order; links are not followed.

    A link could lead out of the folder that the user named.
    """
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if name.endswith(SUFFIXES) and not path.is_symlink():
                yield path


def stem(name: str) -> str:
    """Return a file's name without the suffix of a log, an archive or a document."""
    for suffix in (*reversed(SUFFIXES), ".json"):
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return name


def whole_lines(path: Path, size: int) -> File:
    """Return the first `size` bytes of a file without a last line that is not complete yet.

    Another program may append to the file while it is read.
    """
    end = _end_of_lines(path, size)
    return File(str(path), path, watch=lambda file: _beginning(file, end))


def _end_of_lines(path: Path, size: int) -> int:
    """Return the end of the last complete line; an unfinished JSON document counts as one line."""
    with path.open("rb") as file:
        tail, start = b"", size
        while start and b"\n" not in tail:
            step = min(_BLOCK, start)
            start -= step
            file.seek(start)
            tail = file.read(step) + tail
    rest = tail[tail.rfind(b"\n") + 1 :]
    if not rest.strip() or b"\n" not in tail or _is_json(rest):
        return size
    return size - len(rest)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except NOT_JSON:
        return False
    return True


def _beginning(file: BinaryIO, size: int) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Beginning(file, size)))


class _Beginning(io.RawIOBase):
    """The first bytes of an open file, which it closes."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
