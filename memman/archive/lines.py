"""The lines of an archive: a header, a record each, a trailer, and the check that each carries.

A line is a JSON object that begins with `{"crc":"` and eight lower-case hexadecimal digits: the CRC-32 of
what follows the `",` after them, up to the line's end. `docs/reference/archive.md` has the format.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from memman.entries import NO_JSON
from memman.records import Record, encode

KIND = "session"
VERSION = 1  # of what is written here, and the newest that is understood
LEAST_READER = 1  # the oldest version that reads what is written here rightly
_SEAL = b'{"crc":"'
_SEALED = len(_SEAL) + 8
_REST = _SEALED + 2
MAGIC = _SEAL


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: whose session it is, and how many records follow."""

    memman: str = KIND
    v: int = VERSION
    min_reader: int = LEAST_READER
    session_id: str
    head: int
    settings: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    created_by: str = ""


class RecordLine(msgspec.Struct, frozen=True, gc=False):
    """A line between the first and the last: a record of the log and its place."""

    seq: int
    record: msgspec.Raw


class Trailer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The last line: how many records there are, and the SHA-256 of all bytes before this line."""

    end: bool = True
    count: int
    sha256: str


class Read(msgspec.Struct, frozen=True, gc=False):
    """Any line after the first, as it was read."""

    crc: str
    seq: int = 0
    record: msgspec.Raw = NO_JSON
    end: bool = False
    count: int = -1
    sha256: str = ""


class ReadHeader(Header, frozen=True, kw_only=True):
    """The first line as it was read."""

    crc: str


FIELDS = frozenset(Read.__struct_fields__)
HEADER_FIELDS = frozenset(ReadHeader.__struct_fields__)


def sealed(body: bytes) -> bytes:
    """The line of a JSON object's bytes."""
    rest = body[1:]
    return b'{"crc":"%08x",%s\n' % (crc32(rest), rest)


def record_line(seq: int, record: Record) -> bytes:
    """The line of a record."""
    rest = b'"seq":%d,"record":%s}' % (seq, encode(record))
    return b'{"crc":"%08x",%s\n' % (crc32(rest), rest)


def is_sealed(line: bytes) -> bool:
    """Whether a line begins as lines of an archive do."""
    return line.startswith(_SEAL) and line[_SEALED:_REST] == b'",'


def fault_of_seal(line: bytes) -> str:
    """What is wrong with a line's bytes; "" when they are those that were written."""
    if not is_sealed(line):
        return (
            'it does not begin with {"crc":" and eight digits: it was changed, or is no archive\'s'
        )
    said, found = line[len(_SEAL) : _SEALED], b"%08x" % crc32(line[_REST:])
    if said != found:
        shown = said.decode("ascii", "backslashreplace")
        return f"its bytes were changed: their CRC-32 is {found.decode()}, it says {shown}"
    return ""


def is_plain(line: bytes, read: Read) -> bool:
    """Whether the line of a record has nothing around the record but what we write there."""
    return line[_REST:] == b'"seq":%d,"record":%s}' % (read.seq, bytes(read.record))
