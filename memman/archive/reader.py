"""Reading of archives: each line is checked, and every fault is reported with its line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

import msgspec

from memman.archive import lines
from memman.archive.encoding import Unpacked
from memman.archive.info import ArchiveInfo
from memman.archive.limits import MOST_FAULTS, ArchiveLimits, too_much
from memman.archive.lines import Header, ParsedHeader, ParsedLine, checksum_fault
from memman.archive.validation import check_record, entries_of
from memman.display import safe_repr
from memman.entries import Entry, FilePart, ImagePart, OpaquePart, check_id, depth_of
from memman.errors import InvalidInput, StateError
from memman.records import Added, Record, decode, encode

_BAD_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)
_NO_HEADER = "it is not a memman archive: its first line is not a header"

_read_line = msgspec.json.Decoder(ParsedLine)
_read_header = msgspec.json.Decoder(ParsedHeader)


class ArchiveReader:
    """Reads an archive once, from its beginning to its end.

    `records` returns the valid records line by line and adds the others to `faults`. The archive is valid
    if reading came to the end without faults.
    """

    def __init__(self, source: BinaryIO, limits: ArchiveLimits) -> None:
        self.faults: list[str] = []  # in the order of the lines
        self.header: Header | None = None
        self.line = 0  # the number of the last line read
        self.begins_as_archive = False
        self._limits = limits
        self.source = Unpacked(source, limits)
        self._digest = hashlib.sha256()
        self._entries = self._records = 0
        self._sha256 = ""
        self._bytes = 0

    def records(self) -> Iterator[tuple[int, Record]]:
        """Return (seq, record) of each valid line. Raises `StateError` if reading cannot continue."""
        try:
            yield from self._sound()
        except StateError as error:  # in the line after the last one read
            for problem in error.problems:
                self.add_fault(self.line + 1, problem)
            self._refuse()
        except _StoppedError:
            self._refuse()

    def add_fault(self, line: int, fault: str) -> None:
        """Add a fault of a line."""
        self.faults.append(f"line {line}: {fault}")

    @property
    def info(self) -> ArchiveInfo:
        """The summary of the archive. Raises `StateError` if the archive is not valid."""
        self._refuse()
        header = self.header
        if header is None:
            raise StateError([_NO_HEADER])
        return ArchiveInfo(
            session_id=header.session_id,
            records=self._records,
            entries=self._entries,
            bytes=self._bytes,
            sha256=self._sha256,
            packing=self.source.packing,
            version=header.v,
            created_by=header.created_by,
        )

    def _refuse(self) -> None:
        """Raise `StateError` if there are faults."""
        if self.faults:
            enough = len(self.faults) >= MOST_FAULTS
            stopped = [f"reading stopped after {MOST_FAULTS} faults"] if enough else []
            raise StateError([*self.faults, *stopped])

    def _sound(self) -> Iterator[tuple[int, Record]]:
        ended = False
        for line in self._lines():
            self._check_start(line)
            self.begins_as_archive = True
            self.line += 1
            self._bytes += len(line) + 1
            if ended:
                self._stop("it follows the last line of the archive")
            try:
                if fault := checksum_fault(line):
                    self._report(fault)
                elif self.line == 1:
                    self._take_header(line)
                elif (read := self._parsed(line)).end:
                    self._take_trailer(read)
                    ended = True
                    continue
                else:
                    yield self.line - 1, self._record(read)
            except _FaultError as error:
                self._report(str(error))
            self._digest.update(line)
            self._digest.update(b"\n")
        if not ended:
            missing = "the last line of the archive is missing: the file was cut off"
            raise StateError([missing if self.line else "the file is empty"])

    def _lines(self) -> Iterator[bytes]:
        """Return each line without its line break."""
        limits = self._limits
        rest = b""
        while chunk := self.source.read():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if len(line) > limits.line_bytes:
                    what = f"it has {len(line):,} bytes"
                    raise StateError([too_much(what, "line_bytes", limits)])
                yield line
            if len(rest) > limits.line_bytes:
                self._check_start(rest)
                raise StateError([too_much("it is longer", "line_bytes", limits)])
        if rest:
            self._check_start(rest)
            raise StateError(["it has no line break: the file was cut off"])

    def _check_start(self, line: bytes) -> None:
        """Raise `StateError` for a first line, or its beginning, that cannot be that of an archive."""
        if not self.line and not lines.has_checksum(line):
            raise StateError([_NO_HEADER])

    # ------------------------------------------------------------ a line

    def _take_header(self, line: bytes) -> None:
        try:
            header = _read_header.decode(line)
            check_id(header.session_id, "session_id")
        except (*_BAD_JSON, InvalidInput) as error:
            raise _FaultError(f"the header cannot be decoded: {error}") from None
        if header.memman != lines.KIND:
            self._stop(f"it contains a {safe_repr(header.memman, 40)}, not a {lines.KIND!r}")
        if header.min_reader > lines.VERSION:
            self._stop(
                f"it has version {header.v} and needs a reader of version {header.min_reader}; "
                f"this memman reads up to {lines.VERSION}: install a newer memman-core"
            )
        self.header = header
        self._check_fields(line, ParsedHeader)

    def _parsed(self, line: bytes) -> ParsedLine:
        """Return a line after the first."""
        try:
            read = _read_line.decode(line)
        except _BAD_JSON as error:
            raise _FaultError(f"it cannot be decoded: {error}") from None
        if read.end or not lines.is_plain(line, read):
            self._check_fields(line, ParsedLine)
        return read

    def _check_fields(self, line: bytes, known: type[msgspec.Struct]) -> None:
        """Add a fault if the line has an unknown field, or a field twice."""
        try:
            found = _loaded(line)
        except (ValueError, RecursionError) as error:
            self._report(str(error))
            return
        newer = self.header is not None and self.header.v > lines.VERSION
        if (unknown := found.keys() - set(known.__struct_fields__)) and not newer:
            self._report(
                f"its field {min(map(safe_repr, unknown))[:40]} is unknown in version {lines.VERSION}"
            )

    def _record(self, read: ParsedLine) -> Record:
        """Return the record of a line."""
        if read.seq != self.line - 1:
            raise _FaultError(
                f"its seq is {read.seq}, not {self.line - 1}: lines are missing or out of order"
            )
        self._records += 1
        if self._records > self._limits.records:
            self._stop(too_much("there are more records", "records", self._limits))
        try:
            payload = bytes(read.record)
            record = decode(payload)
            if encode(record) != payload:  # another program wrote it
                _check_unknown(record, payload)
            check_record(record)
            for entry in entries_of(record):
                self._check_entry(entry)
        except (*_BAD_JSON, InvalidInput) as error:
            raise _FaultError(f"its record is not valid: {error}") from None
        if type(record) is Added:
            self._entries += 1
            if self._entries > self._limits.entries:
                self._stop(too_much("there are more entries", "entries", self._limits))
        return record

    def _check_entry(self, entry: Entry) -> None:
        """Raise `InvalidInput` for an entry that is too large or has derived fields."""
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
            raise InvalidInput(too_much(what, "string_bytes", self._limits))

    def _check_json(self, raw: msgspec.Raw) -> None:
        """Raise an error for JSON that is too deep, or that parsers read differently."""
        if not len(memoryview(raw)):
            return
        data = bytes(raw)
        value = msgspec.json.decode(data)
        most = self._limits.depth
        if data.count(b"[") + data.count(b"{") > most and depth_of(value, most) > most:
            raise InvalidInput(too_much("its JSON is nested deeper", "depth", self._limits))
        if msgspec.json.encode(value) != data:
            _loaded(data)

    # ------------------------------------------------------------ the end

    def _take_trailer(self, read: ParsedLine) -> None:
        if read.count != self.line - 2:
            self._report(f"it has the count {read.count} and there are {self.line - 2} records")
        elif self.header is not None and self.header.head != read.count:
            self._report(
                f"the header has the head {self.header.head} and there are {read.count} records"
            )
        self._sha256 = self._digest.hexdigest()
        if read.sha256 != self._sha256:
            self._report(
                f"the SHA-256 of the lines before it is {self._sha256}, not {safe_repr(read.sha256, 80)}"
            )

    def _report(self, fault: str) -> None:
        """Add a fault of this line. Reading stops after too many."""
        self.add_fault(self.line, fault)
        if len(self.faults) >= MOST_FAULTS:
            raise _StoppedError

    def _stop(self, fault: str) -> NoReturn:
        self.add_fault(self.line, fault)
        raise _StoppedError


def _longest(part: Any) -> str:
    """Return the longest text in a part of a message."""
    if isinstance(part, ImagePart | FilePart):
        return max(part.data or "", part.alt or "", part.url or "", key=len)
    return getattr(part, "text", "")


def _loaded(data: bytes) -> Any:
    """Return the value of JSON. Raises `ValueError` if an object has a name twice."""
    import json

    return json.loads(data, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Parsers differ in which of two values of one name they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {safe_repr(twice, 40)} appears twice in one object")
    return found


def _check_unknown(record: Record, data: bytes) -> None:
    """Raise an error for a record with a name twice, or with a field that would be lost."""
    found = _loaded(data)
    if unknown := next(_unknown(record, found), None):
        raise InvalidInput(f"the field {safe_repr(unknown, 60)} is unknown and would be lost")


def _unknown(known: Any, found: Any) -> Iterator[str]:
    """Return the names in JSON that its typed form lacks."""
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


class _FaultError(Exception):
    """The fault of a line; the next line is read."""


class _StoppedError(Exception):
    """Reading cannot continue; the fault was added."""
