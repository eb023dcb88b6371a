"""What a file of messages is made of: lines of JSON, one JSON document, or text; and where a fault is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from stat import S_ISFIFO
from typing import Any, BinaryIO

import msgspec

from memman.cli.problems import UnreadableError
from memman.cli.progress import Watch
from memman.entries import fault_in_json, file_mode

STDIN = "-"
_HEAD = 50  # items by which a file is recognised
_HEAD_BYTES = 2**20  # or as many as are in this, if they are long
_LOOK = 64
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PACKERS = {
    b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz", b"7z\xbc\xaf": "7-Zip",
}  # fmt: skip
_NO_TEXT = {
    b"SQLite format 3\x00": "a SQLite database: name its file, which is not read from a pipe",
    b"\x89PNG": "a PNG image, and no log",
    b"\xff\xd8\xff": "a JPEG image, and no log",
    b"GIF8": "a GIF image, and no log",
    b"%PDF-": "a PDF document, and no log",
    b"PAR1": "a Parquet file: make JSON lines of its messages first",
    b"ARROW1": "an Arrow file: make JSON lines of its messages first",
}
_KNOWN = {start: f"packed with {packer}; unpack it first" for start, packer in _PACKERS.items()}
_KNOWN |= _NO_TEXT


class File:
    """A file that can be read any number of times: one on the disk, or bytes that came from elsewhere."""

    def __init__(self, name: str, path: Path | None = None, data: bytes = b"") -> None:
        self.name = name
        self._path = path
        self._data = data
        self.watch: Watch | None = None  # what each reading of it is shown by

    def open(self) -> BinaryIO:
        """The file at its beginning. Raises `UnreadableError`."""
        if self._path is None:
            return BytesIO(self._in_utf_8(self._data))
        try:
            opened = self._path.open("rb")
            start = opened.peek(2)[:2]
        except OSError as error:
            raise UnreadableError(f"cannot read {self.name}: {error.strerror or error}") from None
        if start in _UTF_16:
            with opened:
                return BytesIO(self._in_utf_8(opened.read()))
        return opened if self.watch is None else self.watch(opened)

    def _in_utf_8(self, data: bytes) -> bytes:
        """Bytes with the mark of UTF-16, as PowerShell's `>` writes it, in UTF-8; others as they are."""
        if not data.startswith(_UTF_16):
            return data
        try:
            return data.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise UnreadableError(
                f"{self.name} begins as UTF-16 text, and is none from byte {error.start} on; get a whole "
                "copy of the file, in UTF-8 if you can"
            ) from None

    def read(self) -> bytes:
        """All of it."""
        with self.open() as file:
            return file.read()

    def may_be_document(self) -> bool:
        """Whether it may be one JSON object, told by its beginning."""
        with self.open() as file:
            start = file.read(_LOOK).removeprefix(_BOM).lstrip()
        return start[:1] in (b"{", b"") and not self.has_lines()

    def has_lines(self) -> bool:
        """Whether its first line is a whole JSON object and others follow."""
        with self.open() as file:
            lines = (line for line in file if line.strip().removeprefix(_BOM))
            first = next(lines, b"").strip().removeprefix(_BOM)
            if not first.startswith(b"{") or next(lines, None) is None:
                return False
        try:
            return isinstance(msgspec.json.decode(first), dict)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False


class Items(list[Any]):
    """The items of one JSON document, or a text."""

    def where(self, index: int) -> str:
        """How a person finds an item."""
        return f"message {index}"

    @property
    def head(self) -> list[Any]:
        """The items by which the file is recognised: the first ones."""
        return self[:_HEAD]


class Lines:
    """The values of JSON lines, each decoded when its turn comes; blank lines are none of them."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __iter__(self) -> Iterator[Any]:
        for number, line in self._lines():
            yield _decoded(line, number, self._file.name)

    def __len__(self) -> int:
        return sum(1 for _ in self._lines())

    def where(self, index: int) -> str:
        """How a person finds an item: its line, from 1, blank ones counted."""
        numbers = (number for place, (number, _) in enumerate(self._lines()) if place == index)
        return f"line {next(numbers, index + 1)}"

    @property
    def head(self) -> list[Any]:
        """The items by which the file is recognised: the first ones."""
        found: list[Any] = []
        size = 0
        for number, line in self._lines():
            found.append(_decoded(line, number, self._file.name))
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


def file_of(path: str) -> File:
    """The file at a path, or what is on stdin for "-" or comes out of a pipe, which is read once only."""
    if path == STDIN:
        return File("stdin", data=sys.stdin.buffer.read())
    file = File(path, Path(path))
    return File(path, data=file.read()) if S_ISFIFO(file_mode(path)) else file


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of stdin for "-". Raises `UnreadableError`."""
    return file_of(path).read()


def text_of(data: bytes, name: str) -> str:
    """The text of a file. Raises `UnreadableError` when it is packed, empty or no text."""
    for start, what in _KNOWN.items():
        if data.startswith(start):
            raise UnreadableError(f"{name} is {what}")
    if (place := data.find(b"\0", 0, _HEAD_BYTES)) >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise UnreadableError(
            f"{name} is binary, no text (a null byte in line {line}, byte {place} of the file); a log is "
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
        raise UnreadableError(f"{name} is empty, it has no messages; give a file that has some")
    return text


def check_head(file: File) -> bytes:
    """The first character of a file that is text. Raises `UnreadableError` as `text_of` does."""
    with file.open() as opened:
        start = opened.read(_HEAD_BYTES)
        while start.isspace() and (more := opened.read(_HEAD_BYTES)):
            start = more
    if start.startswith(tuple(_KNOWN)) or b"\0" in start or not start.strip():
        text_of(start if b"\0" not in start else file.read(), file.name)
    return start.removeprefix(_BOM).lstrip()[:1]


def decode(text: str | bytes, name: str) -> Any:
    """The value of a JSON text. Raises `UnreadableError` that says where it stops being JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableError(
            f"{name} is not JSON: {_where(text, error)}; mend it there, or get a whole copy of the file"
        ) from None


def _decoded(line: bytes, number: int, name: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        try:
            text = line.decode()
        except UnicodeDecodeError as fault:
            raise UnreadableError(
                f"line {number} of {name} is not UTF-8 text (byte {fault.start} of the line); convert the "
                "file, or mend that line"
            ) from None
        raise UnreadableError(
            f"line {number} of {name} is not JSON: {_where(text, error)}; each line must be one JSON "
            "object: mend that line, or take it out"
        ) from None


def _where(text: str | bytes, error: Exception) -> str:
    """The place of the fault; the standard decoder tells line and column."""
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
