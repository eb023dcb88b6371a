"""An archive as it is read: its lines within the limits, each checked, every fault with its line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

import msgspec

from memman.archive import lines
from memman.archive.encoding import Packing, Unpacked
from memman.archive.limits import MOST_FAULTS, ArchiveLimits, too_much
from memman.archive.lines import Header, Read, ReadHeader, fault_of_seal
from memman.archive.validation import check_record, entries_of
from memman.display import safe_repr
from memman.entries import Entry, FilePart, ImagePart, OpaquePart, check_id, depth_of
from memman.errors import InvalidInput, StateError
from memman.records import Added, Record, decode, encode

_BAD_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)
_NOT_ONE = "it is no archive of memman: its first line is not a header"

_read_line = msgspec.json.Decoder(Read)
_read_header = msgspec.json.Decoder(ReadHeader)


class ArchiveInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds: `records` of which `entries` were added, in so many `bytes` unpacked.

    `sha256` is that of all bytes before the last line, which says it too.
    """

    session_id: str
    records: int
    entries: int
    bytes: int
    sha256: str
    packing: Packing
    version: int
    created_by: str


class Faults:
    """Faults in the order of the lines, up to the number at which reading stops."""

    def __init__(self) -> None:
        self._told: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._told)

    def add(self, line: int, fault: str) -> None:
        """Notes a fault of a line."""
        self._told.append(f"line {line}: {fault}")

    @property
    def are_enough(self) -> bool:
        """Whether there are so many that reading stops."""
        return len(self._told) >= MOST_FAULTS

    def refuse(self) -> None:
        """Raises `StateError` if there are any."""
        if self._told:
            stopped = [f"reading stopped after {MOST_FAULTS} faults"] if self.are_enough else []
            raise StateError([*self._told, *stopped])


class ArchiveReader:
    """Reads an archive once, from its beginning to its end.

    `records` gives what is sound line by line; what is not is noted in `faults`. Only when it has come to
    its end and there are no faults is the archive what was written.
    """

    def __init__(self, source: BinaryIO, limits: ArchiveLimits) -> None:
        self.faults = Faults()
        self.header: Header | None = None
        self.line = 0  # the one that was read last
        self.begins_as_archive = False
        self._limits = limits
        self._source = Unpacked(source, limits)
        self._digest = hashlib.sha256()
        self._entries = self._records = 0
        self._sha256 = ""
        self._bytes = 0

    def records(self) -> Iterator[tuple[int, Record]]:
        """(seq, record) of each sound line. Raises `StateError` where reading cannot go on."""
        try:
            yield from self._sound()
        except StateError as error:  # of the line that was being read
            for problem in error.problems:
                self.faults.add(self.line + 1, problem)
            self.faults.refuse()
        except _StoppedError:
            self.faults.refuse()

    @property
    def is_packed_and_broken(self) -> bool:
        """Whether nobody can say what is in it."""
        return self._source.broken

    @property
    def info(self) -> ArchiveInfo:
        """What the archive holds. Raises `StateError` where it is not sound."""
        self.faults.refuse()
        header = self.header
        if header is None:
            raise StateError([_NOT_ONE])
        return ArchiveInfo(
            session_id=header.session_id,
            records=self._records,
            entries=self._entries,
            bytes=self._bytes,
            sha256=self._sha256,
            packing=self._source.packing,
            version=header.v,
            created_by=header.created_by,
        )

    def _sound(self) -> Iterator[tuple[int, Record]]:
        ended = False
        for line in self._lines():
            self.line += 1
            self._bytes += len(line) + 1
            if ended:
                self._stop("it comes after the line that says that the archive ends")
            if self.line == 1:
                self._take_header(line)
            else:
                read = self._parsed(line)
                if read is not None and read.end:
                    self._take_trailer(read)
                    ended = True
                    continue
                record = self._record(read) if read is not None else None
                if record is not None:
                    yield self.line - 1, record
            self._digest.update(line)
            self._digest.update(b"\n")
        if not ended:
            missing = "the last line, which says that it ends, is missing: the file was cut off"
            raise StateError([missing if self.line else "the file is empty"])

    def _lines(self) -> Iterator[bytes]:
        """Each line without its end."""
        most = self._limits.line_bytes
        rest = b""
        while chunk := self._source.read():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if len(line) > most:
                    raise StateError([too_much(f"it has {len(line):,} bytes", "line_bytes", most)])
                yield line
            if len(rest) > most:
                self._look_at(rest)
                raise StateError([too_much("it is longer", "line_bytes", most)])
        if rest:
            self._look_at(rest)
            raise StateError(["it has no end: the file was cut off"])

    def _look_at(self, line: bytes) -> None:
        """Says of a first line that is not whole that it is no archive's, if it is none."""
        if not self.line and not lines.is_sealed(line):
            raise StateError([_NOT_ONE])

    # ------------------------------------------------------------ a line

    def _take_header(self, line: bytes) -> None:
        if not lines.is_sealed(line):
            self._stop(_NOT_ONE)
        self.begins_as_archive = True
        if fault := fault_of_seal(line):
            self._note(fault)
            return
        try:
            header = _read_header.decode(line)
            check_id(header.session_id, "session_id")
        except (*_BAD_JSON, InvalidInput) as error:
            self._note(f"the header cannot be read: {error}")
            return
        if header.memman != lines.KIND:
            self._stop(f"it holds a {safe_repr(header.memman, 40)}, not a {lines.KIND!r}")
        if header.min_reader > lines.VERSION:
            self._stop(
                f"it is of version {header.v} and asks for a reader of version {header.min_reader}; "
                f"this memman reads up to {lines.VERSION}: install a newer memman-core"
            )
        self.header = header
        self._note_unknown(line, lines.HEADER_FIELDS)

    def _parsed(self, line: bytes) -> Read | None:
        """A line after the first; None where it is not sound."""
        if fault := fault_of_seal(line):
            self._note(fault)
            return None
        try:
            read = _read_line.decode(line)
        except _BAD_JSON as error:
            self._note(f"it cannot be read: {error}")
            return None
        if read.end or not lines.is_plain(line, read):
            self._note_unknown(line, lines.FIELDS)
        return read

    def _note_unknown(self, line: bytes, known: frozenset[str]) -> None:
        """Notes fields of a line's own that are not known or there twice."""
        try:
            found = _loaded(line)
        except (ValueError, RecursionError) as error:
            self._note(str(error))
            return
        newer = self.header is not None and self.header.v > lines.VERSION
        if (unknown := found.keys() - known) and not newer:
            self._note(
                f"its field {min(map(safe_repr, unknown))[:40]} is not known in version {lines.VERSION}"
            )

    def _record(self, read: Read) -> Record | None:
        """The record of a line; None where it is not sound."""
        if read.seq != self.line - 1:
            self._note(
                f"its seq is {read.seq}, not {self.line - 1}: lines are missing or out of order"
            )
            return None
        self._records += 1
        if self._records > self._limits.records:
            self._stop(too_much("there are more records", "records", self._limits.records))
        try:
            payload = bytes(read.record)
            record = decode(payload)
            if encode(record) != payload:  # not as we would write it
                _look_closely(record, payload)
            check_record(record)
            for entry in entries_of(record):
                self._check_entry(entry)
        except (*_BAD_JSON, InvalidInput) as error:
            self._note(f"its record cannot be taken: {error}")
            return None
        if type(record) is Added:
            self._entries += 1
            if self._entries > self._limits.entries:
                self._stop(too_much("there are more entries", "entries", self._limits.entries))
        return record

    def _check_entry(self, entry: Entry) -> None:
        """Raises `InvalidInput` for what is too large, or is derived and not a fact."""
        if entry.seq or entry.replacement or entry.compressed or entry.summary_id is not None:
            raise InvalidInput(
                "seq, replacement, compressed and summary_id of an entry are derived, not stored"
            )
        content = entry.content
        if type(content) is str:
            self._check_text(entry, content)
        else:
            for part in content:
                self._check_text(entry, _longest(part))
                if isinstance(part, OpaquePart):
                    self._check_json(part.block)
        self._check_json(entry.metadata_json)
        self._check_json(entry.raw_json)

    def _check_text(self, entry: Entry, text: str) -> None:
        most = self._limits.string_bytes
        if 4 * len(text) > most and (size := len(text.encode())) > most:
            what = f"a text of entry {entry.id!r} has {size:,} bytes"
            raise InvalidInput(too_much(what, "string_bytes", most))

    def _check_json(self, raw: msgspec.Raw) -> None:
        """Refuses JSON that is too deep, or whose reading would depend on the reader."""
        if not len(memoryview(raw)):
            return
        data = bytes(raw)
        value = msgspec.json.decode(data)
        most = self._limits.depth
        if data.count(b"[") + data.count(b"{") > most and depth_of(value, most) > most:
            raise InvalidInput(too_much("its JSON is nested deeper", "depth", most))
        if msgspec.json.encode(value) != data:
            _loaded(data)

    # ------------------------------------------------------------ the end

    def _take_trailer(self, read: Read) -> None:
        if read.count != self.line - 2:
            self._note(f"it says {read.count} records and there are {self.line - 2}")
        elif self.header is not None and self.header.head != read.count:
            self._note(f"the header says {self.header.head} records and there are {read.count}")
        self._sha256 = self._digest.hexdigest()
        if read.sha256 != self._sha256:
            self._note(
                f"the SHA-256 of the lines before is {self._sha256}, it says {safe_repr(read.sha256, 80)}"
            )

    def _note(self, fault: str) -> None:
        self.faults.add(self.line, fault)
        if self.faults.are_enough:
            raise _StoppedError

    def _stop(self, fault: str) -> NoReturn:
        self.faults.add(self.line, fault)
        raise _StoppedError


def _longest(part: Any) -> str:
    """The longest text in a part of a message."""
    if isinstance(part, ImagePart | FilePart):
        return max(part.data or "", part.alt or "", part.url or "", key=len)
    return getattr(part, "text", "")


def _loaded(data: bytes) -> Any:
    """The value of JSON in which no object has a name twice."""
    import json

    return json.loads(data, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; two values of one name are refused, as each reader takes another of them."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {safe_repr(twice, 40)} is there twice in one object")
    return found


def _look_closely(record: Record, data: bytes) -> None:
    """Refuses a record that others wrote with names that are there twice, or that we would lose."""
    found = _loaded(data)
    if unknown := next(_unknown(record, found), None):
        raise InvalidInput(f"the field {safe_repr(unknown, 60)} is not known and would be lost")


def _unknown(known: Any, found: Any) -> Iterator[str]:
    """Names in JSON that its typed form does not have."""
    if isinstance(known, msgspec.Struct) and isinstance(found, dict):
        tag = known.__struct_config__.tag_field
        names = dict(zip(known.__struct_encode_fields__, known.__struct_fields__, strict=True))
        yield from sorted(found.keys() - names.keys() - {tag})
        for name, field in names.items():
            if name in found:
                yield from _unknown(getattr(known, field), found[name])
    elif isinstance(known, tuple) and isinstance(found, list):
        for one, other in zip(known, found, strict=False):
            yield from _unknown(one, other)


class _StoppedError(Exception):
    """Reading cannot go on; why was noted."""
