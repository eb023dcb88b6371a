"""The lines of an archive: a header, the records and a trailer, each with a checksum.

A line is a JSON object that begins with `{"crc":"`, eight lower-case hexadecimal digits and `",`. The
digits are the CRC-32 of the rest of the line. `docs/reference/archive.md` documents the format.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from memman.entries import NO_JSON
from memman.records import Record, encode

KIND = "session"
VERSION = 1  # the version that is written, and the newest that can be read
_PREFIX = b'{"crc":"'
_CHECKED = len(_PREFIX) + 8
_REST = _CHECKED + 2


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the session, and the number of records."""

    memman: str = KIND
    v: int = VERSION
    min_reader: int = 1  # the oldest version that can read it
    session_id: str
    head: int
    settings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    created_by: str = ""


class RecordLine(msgspec.Struct, frozen=True, gc=False):
    """A line between the first and the last: a record and its place in the log."""

    seq: int
    record: msgspec.Raw


class Trailer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The last line: the number of records, and the SHA-256 of all bytes before this line."""

    end: bool = True
    count: int
    sha256: str


class ParsedLine(msgspec.Struct, frozen=True, gc=False):
    """Any line after the first, as parsed."""

    crc: str
    seq: int = 0
    record: msgspec.Raw = NO_JSON
    end: bool = False
    count: int = -1
    sha256: str = ""


class ParsedHeader(Header, frozen=True, kw_only=True):
    """The first line, as parsed."""

    crc: str


def with_checksum(body: bytes) -> bytes:
    """Return the line of an encoded JSON object."""
    rest = body[1:]
    return b'{"crc":"%08x",%s\n' % (crc32(rest), rest)


def record_line(seq: int, record: Record) -> bytes:
    """Return the line of a record."""
    return with_checksum(b'{"seq":%d,"record":%s}' % (seq, encode(record)))


def has_checksum(line: bytes) -> bool:
    """Return whether a line begins with a checksum."""
    return line.startswith(_PREFIX) and line[_CHECKED:_REST] == b'",'


def checksum_fault(line: bytes) -> str:
    """Return why a line's bytes are not those that were written; "" if they are."""
    if not has_checksum(line):
        return (
            'it does not begin with {"crc":" and eight digits: it was changed, or is not a line of '
            "an archive"
        )
    stated, found = line[len(_PREFIX) : _CHECKED], b"%08x" % crc32(line[_REST:])
    if stated != found:
        shown = stated.decode("ascii", "backslashreplace")
        return f"its bytes were changed: their CRC-32 is {found.decode()}, not {shown}"
    return ""


def is_plain(line: bytes, read: ParsedLine) -> bool:
    """Return whether a record's line has no other fields than memman writes."""
    return line[_REST:] == b'"seq":%d,"record":%s}' % (read.seq, bytes(read.record))
