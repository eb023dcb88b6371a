"""Files that a command reads: their kind, their JSON or text, and the place of a fault in them."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from stat import S_ISFIFO
from typing import Any, BinaryIO

import click
import msgspec

from memman.entries import fault_in_json, file_mode
from memman.stores import is_url, without_password
from memman_cli.errors import UnreadableError

STDIN = "-"
Watch = Callable[[BinaryIO], BinaryIO]
"""Wraps a file whose reading is shown."""
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors of `msgspec.json.decode`."""
_HEAD = 50  # items by which a file is recognised
_HEAD_BYTES = 2**20  # or fewer, if this many bytes hold them
_START_BYTES = 64
_SQLITE = b"SQLite format 3\x00"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BINARY = {
    b"\x1f\x8b": "packed with gzip; unpack it first",
    b"PK\x03\x04": "packed with zip; unpack it first",
    b"(\xb5/\xfd": "packed with zstd; unpack it first",
    b"BZh": "packed with bzip2; unpack it first",
    b"\xfd7zXZ\x00": "packed with xz; unpack it first",
    b"7z\xbc\xaf": "packed with 7-Zip; unpack it first",
    _SQLITE: "a SQLite database: name its file, a pipe cannot be used",
    b"\x89PNG": "a PNG image, not a log",
    b"\xff\xd8\xff": "a JPEG image, not a log",
    b"GIF8": "a GIF image, not a log",
    b"%PDF-": "a PDF document, not a log",
    b"PAR1": "a Parquet file: make JSON lines of its messages first",
    b"ARROW1": "an Arrow file: make JSON lines of its messages first",
}


def cannot_read(name: str, error: OSError) -> UnreadableError:
    """Return the error for a file that the system does not let us read."""
    return UnreadableError(f"cannot read {name}: {error.strerror or error}")


class File:
    """A file that can be read any number of times: a path, or `data` from a pipe."""

    def __init__(
        self, name: str, path: Path | None = None, data: bytes = b"", watch: Watch | None = None
    ) -> None:
        self.name = name
        self._path = path
        self._data = data
        self._watch = watch  # wraps the file of each reading

    def open(self) -> BinaryIO:
        """Open the file at its beginning. Raises `UnreadableError`."""
        if self._path is None:
            return BytesIO(self._in_utf_8(self._data))
        try:
            file = self._path.open("rb")
            start = file.peek(2)[:2]
        except OSError as error:
            raise cannot_read(self.name, error) from None
        if start in _UTF_16:
            with file:
                return BytesIO(self._in_utf_8(file.read()))
        return file if self._watch is None else self._watch(file)

    def _in_utf_8(self, data: bytes) -> bytes:
        """Convert UTF-16 with a byte-order mark, as PowerShell's `>` writes it, to UTF-8."""
        if not data.startswith(_UTF_16):
            return data
        try:
            return data.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise UnreadableError(
                f"{self.name} begins as UTF-16 text, but is not valid from byte {error.start} on; get a "
                "whole copy of the file, in UTF-8 if you can"
            ) from None

    def read(self) -> bytes:
        """Return the whole content."""
        with self.open() as file:
            return file.read()

    def may_be_document(self) -> bool:
        """Return whether the file begins like one JSON object."""
        with self.open() as file:
            start = file.read(_START_BYTES).removeprefix(_BOM).lstrip()
        return start[:1] in (b"{", b"") and not self.has_lines()

    def has_lines(self) -> bool:
        """Return whether the first line is a whole JSON object and others follow."""
        with self.open() as file:
            lines = (line for line in file if line.strip().removeprefix(_BOM))
            first = next(lines, b"").strip().removeprefix(_BOM)
            if not first.startswith(b"{") or next(lines, None) is None:
                return False
        try:
            return isinstance(msgspec.json.decode(first), dict)
        except NOT_JSON:
            return False

    def check_head(self) -> bytes:
        """Return the first character of a file of text. Raises `UnreadableError` as `text_of` does."""
        with self.open() as file:
            start = file.read(_HEAD_BYTES)
            while start.isspace() and (more := file.read(_HEAD_BYTES)):
                start = more
        if start.startswith(tuple(_BINARY)) or b"\0" in start or not start.strip():
            text_of(start if b"\0" not in start else self.read(), self.name)
        return start.removeprefix(_BOM).lstrip()[:1]


class Items(list[Any]):
    """The items of one JSON document, or a text."""

    def where(self, index: int) -> str:
        """Return the place of an item, for error messages."""
        return f"message {index}"

    @property
    def head(self) -> list[Any]:
        """The first items, by which the file is recognised."""
        return self[:_HEAD]


class Lines:
    """The values of JSON lines, each decoded in its turn; blank lines are skipped."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __iter__(self) -> Iterator[Any]:
        for number, line in self._lines():
            yield _decode_line(line, number, self._file.name)

    def __len__(self) -> int:
        return sum(1 for _ in self._lines())

    def where(self, index: int) -> str:
        """Return the place of an item: its line from 1, blank ones counted."""
        numbers = (number for place, (number, _) in enumerate(self._lines()) if place == index)
        return f"line {next(numbers, index + 1)}"

    @property
    def head(self) -> list[Any]:
        """The first items, by which the file is recognised."""
        found: list[Any] = []
        size = 0
        for number, line in self._lines():
            found.append(_decode_line(line, number, self._file.name))
            size += len(line)
            if len(found) == _HEAD or size > _HEAD_BYTES:
                break
        return found

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self._file.open() as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(_BOM) if number == 1 else line
                if not line.isspace():
                    yield number, line


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file, or of stdin for "-". Raises `UnreadableError`."""
    return sys.stdin.buffer.read() if path == STDIN else File(path, Path(path)).read()


def display_name(path: str) -> str:
    """Return the name of a path in messages."""
    return "stdin" if path == STDIN else path


def is_database(path: str) -> bool:
    """Return whether a path is the URL of a store, or a SQLite database of any program."""
    return is_url(path) or start_of(path, len(_SQLITE)) == _SQLITE


def start_of(path: str, size: int) -> bytes:
    """Return the first bytes of a regular file, none of anything else or of a file that cannot be read."""
    try:
        if not Path(path).is_file():  # opening a pipe would block, and take bytes from it
            return b""
        with Path(path).open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def on_disk(path: str) -> str:
    """Return a file with the content of stdin, for "-", or of a pipe; otherwise the path itself.

    The file is deleted when the command ends. Raises `UnreadableError` for a database.
    """
    if path == STDIN or S_ISFIFO(file_mode(path)):
        copy = temporary_folder() / "stdin"
        with copy.open("wb") as file:
            if path == STDIN:
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with Path(path).open("rb") as pipe:
                    shutil.copyfileobj(pipe, file)
        return str(copy)
    if is_database(path):
        raise UnreadableError(
            f"{without_password(path)} is a database, and a file is needed: `memman export DB --session "
            "ID -t memman-jsonl -o FILE` writes a session to one"
        )
    return path


def temporary_folder() -> Path:
    """Create a folder that is deleted when the command ends."""
    folder = tempfile.TemporaryDirectory(prefix="memman-")
    click.get_current_context().call_on_close(folder.cleanup)
    return Path(folder.name)


def text_of(data: bytes, name: str) -> str:
    """Return the text of a file. Raises `UnreadableError` if it is packed, empty or not text."""
    for start, kind in _BINARY.items():
        if data.startswith(start):
            raise UnreadableError(f"{name} is {kind}")
    if (place := data.find(b"\0", 0, _HEAD_BYTES)) >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise UnreadableError(
            f"{name} is binary, not text (a null byte in line {line}, byte {place} of the file); a log is "
            "JSON, JSON lines or text in UTF-8: convert it, or mend that line"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            f"{name} is not UTF-8 text (line {line}, byte {error.start} of the file); a log is JSON, JSON "
            "lines or text in UTF-8: convert it first"
        ) from None
    if not text.strip():
        raise UnreadableError(f"{name} is empty, without messages; give a file that has some")
    return text


def decode(text: str | bytes, name: str) -> Any:
    """Return the value of a JSON text. Raises `UnreadableError` with the place of the fault."""
    try:
        return msgspec.json.decode(text)
    except NOT_JSON as error:
        raise UnreadableError(
            f"{name} is not JSON: {_fault(text, error)}; mend it there, or get a whole copy of the file"
        ) from None


def _decode_line(line: bytes, number: int, name: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except NOT_JSON as error:
        try:
            text = line.decode()
        except UnicodeDecodeError as fault:
            raise UnreadableError(
                f"line {number} of {name} is not UTF-8 text (byte {fault.start} of the line); convert the "
                "file, or mend that line"
            ) from None
        raise UnreadableError(
            f"line {number} of {name} is not JSON: {_fault(text, error)}; each line must be one JSON "
            "object: mend that line, or take it out"
        ) from None


def _fault(text: str | bytes, error: Exception) -> str:
    """Return the fault of a JSON text with its line and column, found by the standard decoder."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as found:
        ended = found.pos >= len(found.doc.rstrip()) or found.msg.startswith("Unterminated string")
        what = "it ends too early, the file is truncated" if ended else found.msg
        return f"{what} (line {found.lineno}, column {found.colno})"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as found:
        return str(found)
    return fault_in_json(value) or str(error)
