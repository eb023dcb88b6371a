"""Corrupt, truncated and hostile archives are refused with the line of the fault."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from memman import StateError
from memman.archive.importer import verify
from memman.archive.info import ArchiveInfo
from memman.archive.limits import DEFAULT_LIMITS, ArchiveLimits
from memman.archive.reader import ArchiveReader
from memman.errors import InvalidInput
from tests.archive.sessions import archive_of, edited, lived, manager, plain, replaced

FIFTY = archive_of(plain(50).export_session("s"))
LIVED = archive_of(lived().export_session("s"))


def problems(data: bytes, **limits: int) -> tuple[str, ...]:
    """Return the faults of an archive."""
    try:
        verify(io.BytesIO(data), limits=ArchiveLimits(**limits))
    except StateError as error:
        return error.problems
    return ()


def seen_by_reader(data: bytes) -> tuple[str, ...]:
    """Return the faults of the lines alone, which is much faster than with the fold."""
    reader = ArchiveReader(io.BytesIO(data), DEFAULT_LIMITS)
    try:
        for _ in reader.records():
            pass
        assert reader.info.records
    except StateError as error:
        return error.problems
    return ()


def test_verify_returns_summary_of_archive() -> None:
    info = verify(io.BytesIO(FIFTY))
    sha256 = json.loads(FIFTY.splitlines()[-1])["sha256"]
    assert info == ArchiveInfo(
        session_id="s", records=51, entries=50, bytes=len(FIFTY), sha256=sha256, packing="none",
        version=1, created_by="",
    )  # fmt: skip
    assert verify(io.BytesIO(LIVED)).records == len(LIVED.splitlines()) - 2


def test_flipped_byte_of_any_line_is_reported_with_its_line() -> None:
    # The same byte of every line at once: each is checked by itself, and one by one it takes a minute.
    first, *lines = FIFTY.splitlines(keepends=True)
    for place in range(max(map(len, lines))):
        changed = [bytearray(line) for line in lines]
        flipped = [number for number, line in enumerate(lines) if place < len(line) - 1]
        for number in flipped:
            changed[number][place] ^= 1 << (place + number) % 8
            if changed[number][place] == 0x0A:  # that would make two lines of one
                changed[number][place] ^= 0xFF
        faults = seen_by_reader(first + b"".join(changed))
        named = {int(fault.split()[1].rstrip(":")) - 2 for fault in faults}
        assert named >= set(flipped), (place, set(flipped) - named)


def test_single_flipped_byte_is_reported_with_its_line() -> None:
    line = 1
    for place, byte in enumerate(FIFTY):
        if place % 17 == 0 or byte == 0x0A or place < 150:
            changed = bytearray(FIFTY)
            changed[place] = byte ^ (1 << place % 8)
            faults = seen_by_reader(bytes(changed))
            assert any(fault.startswith(f"line {line}: ") for fault in faults), (
                place,
                line,
                faults,
            )
        line += byte == 0x0A


def test_flipped_byte_in_any_kind_of_record_is_reported() -> None:
    place = 0
    for number, line in enumerate(LIVED.splitlines(keepends=True), 1):
        for at in (0, 10, len(line) // 2, len(line) - 1):
            changed = bytearray(LIVED)
            changed[place + at] ^= 4
            faults = problems(bytes(changed))
            assert faults, (number, at)
            assert faults[0].startswith(f"line {number}: "), (number, at, faults)
        place += len(line)


def test_truncated_archive_is_refused_at_any_length() -> None:
    line = 1
    for place, byte in enumerate(FIFTY):
        if place % 7 == 0 or byte == 0x0A or place > len(FIFTY) - 200:
            faults = seen_by_reader(FIFTY[:place])
            assert faults[0].startswith(f"line {line}: "), (place, line, faults)
            assert (
                "cut off" in faults[0]
                or "empty" in faults[0]
                or "not a memman archive" in faults[0]
            )
        line += byte == 0x0A


@pytest.mark.parametrize("line", [2, 20, 51])
@pytest.mark.parametrize("change", ["gone", "twice", "swapped"])
def test_missing_repeated_or_swapped_lines_are_refused(line: int, change: str) -> None:
    lines = FIFTY.splitlines(keepends=True)
    match change:
        case "gone":
            del lines[line - 1]
        case "twice":
            lines.insert(line - 1, lines[line - 1])
        case "swapped":
            lines[line - 1 : line + 1] = reversed(lines[line - 1 : line + 1])
    assert problems(b"".join(lines))


def test_lines_after_the_last_one_are_refused() -> None:
    assert problems(FIFTY + b"x\n") == ("line 54: it follows the last line of the archive",)
    assert problems(FIFTY + FIFTY)[0].startswith("line 54: ")


def test_reading_stops_after_100_faults() -> None:
    data = archive_of(plain(150).export_session("s")).replace(b'"message"', b'"massage"')
    faults = problems(data)
    assert len(faults) == 101
    assert faults[-1] == "reading stopped after 100 faults"


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]", b'{"format": "memman-session"}', b"User: hello\n", b"\x00" * 100,
             b"PK\x03\x04" + b"x" * 50, b'{"crc":"00000000",', b"\n", b"x" * 10_000_000]
)  # fmt: skip
def test_other_file_is_refused_as_not_an_archive(data: bytes) -> None:
    [faults] = problems(data)
    assert faults.startswith("line 1: ")
    assert "not a memman archive" in faults or "empty" in faults or "cut off" in faults


# ---------------------------------------------------------------- versions


def test_newer_compatible_archive_is_read() -> None:
    newer = replaced(FIFTY, 1, b'"v":1', b'"v":2,"hint":"from the future"')
    assert verify(io.BytesIO(newer)).version == 2


def test_archive_that_needs_a_newer_reader_is_refused() -> None:
    newer = replaced(FIFTY, 1, b'"v":1,"min_reader":1', b'"v":3,"min_reader":2')
    [faults] = problems(newer)
    assert faults.startswith("line 1: it has version 3 and needs a reader of version 2")


def test_unknown_line_fields_are_ignored_only_in_newer_archives() -> None:
    same = replaced(FIFTY, 5, b'"seq":4', b'"seq":4,"hint":7')
    assert "line 5: its field 'hint' is unknown in version 1" in problems(same)
    assert not problems(replaced(same, 1, b'"v":1', b'"v":2'))


@pytest.mark.parametrize("version", [b'"v":1', b'"v":2'])
def test_unknown_record_field_is_refused_in_any_version(version: bytes) -> None:
    data = replaced(FIFTY, 5, b'"role":"user"', b'"role":"user","mood":"good"')
    data = replaced(data, 1, b'"v":1', version)
    assert problems(data) == (
        "line 5: its record is not valid: the field 'mood' is unknown and would be lost",
    )


def test_unknown_kind_of_record_is_refused() -> None:
    [faults] = problems(replaced(FIFTY, 5, b'"kind":"added"', b'"kind":"os.system"'))
    assert faults.startswith("line 5: its record is not valid: Invalid value 'os.system'")


def test_other_spelling_of_the_same_json_is_accepted() -> None:
    spelled = edited(LIVED, lambda documents: None)
    assert spelled != LIVED
    assert verify(io.BytesIO(spelled)).records == verify(io.BytesIO(LIVED)).records


# ---------------------------------------------------------------- hostile content

META = b'"metadata":{"k":[1,null,"\xc3\xa9"]}'
HOSTILE_JSON = {
    "not a number": (b'"metadata":{"k":NaN}', "malformed"),
    "infinity": (b'"metadata":{"k":1e999}', "out of range"),
    "an int of 50,000 digits": (b'"metadata":{"k":' + b"9" * 50_000 + b"}", "out of range"),
    "a lone surrogate": (b'"metadata":{"k":"\\ud800"}', "malformed|truncated|surrogate|escape"),
    "a bad escape": (b'"metadata":{"k":"\\x"}', "malformed|escape"),
    "bytes that are no UTF-8": (b'"metadata":{"k":"\xff"}', "utf-8"),
    "a name twice in metadata": (b'"metadata":{"k":1,"k":2}', "'k' appears twice"),
    "a name twice in the entry": (b'"metadata":{"k":1},"name":"a","name":"b"', "'name' appears twice"),
    "65 levels": (b'"metadata":{"k":' + b"[" * 64 + b"]" * 64 + b"}", "limits.depth is 64"),
    "100,000 levels": (b'"metadata":{"k":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
    "levels without an end": (b'"metadata":{"k":' + b"[" * 1_000_000, "recursion"),
    "metadata that is no object": (b'"metadata":[1]', "not an object"),
    "a count below zero": (b'"pinned":true,"token_count":{"tokens":-1}', "'token_count' appears twice"),
    "what is derived": (b'"compressed":true', "derived"),
    "a class to load": (b'"__class__":"os.system","__reduce__":["x"]', "would be lost"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_hostile_json_is_refused_with_its_line(what: str) -> None:
    new, expected = HOSTILE_JSON[what]
    line = next(n for n, text in enumerate(LIVED.splitlines(), 1) if META in text)
    [faults] = problems(replaced(LIVED, line, META, new))
    assert faults.startswith(f"line {line}: ")
    assert any(part in faults.lower() for part in expected.lower().split("|")), faults


def _line_of(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(d["record"] for d in documents if d.get("record", {}).get("kind") == kind)


def _set(kind: str, **fields: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda documents: _line_of(documents, kind).update(fields)


def _of_replacement(**fields: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda documents: _line_of(documents, "compressed")["replacements"][0].update(fields)


def _open_twice(documents: list[dict[str, Any]]) -> None:
    opened = documents[1]["record"]
    documents[2]["record"] = {**opened, "id": "again"}


def _repeat(documents: list[dict[str, Any]]) -> None:
    first, second = documents[2]["record"]["entry"], documents[3]["record"]["entry"]
    second["id"] = first["id"]


def _cycle(documents: list[dict[str, Any]]) -> None:
    item = _line_of(documents, "compressed")["replacements"][0]
    item["ids"] = [item["entry"]["id"]]


def _of_summary(**covers: object) -> Callable[[list[dict[str, Any]]], object]:
    def edit(documents: list[dict[str, Any]]) -> None:
        summary = _line_of(documents, "compressed")["replacements"][0]["entry"]
        moment = "2026-01-01T00:00:00Z"
        summary["metadata"] = {"first": 1, "last": 2, "start": moment, "end": moment, **covers}

    return edit


_DEEP: dict[str, Any] = {}
for _ in range(80):
    _DEEP = {"in": _DEEP}
HOSTILE_LOGS: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "a second opening": (_open_twice, "opened before"),
    "a nonce that is a delimiter": (_set("opened", nonce="]]> 12345678"), "nonce"),
    "a fork of no session": (_set("opened", forked_from={"session_id": "", "seq": 1}), "forked"),
    "metadata that is too deep": (_set("opened", metadata=_DEEP), "nested deeper"),
    "a nonce of nothing": (_set("opened", nonce=""), "nonce"),
    "a budget below zero": (_set("opened", settings={"max_tokens": -1}), "not a number of tokens"),
    "an id that was there": (_repeat, "was there before"),
    "a summary of what is not there": (_of_replacement(ids=["nowhere"]), "not in the window"),
    "a summary of nothing": (_of_replacement(ids=[]), "not in the window"),
    "a summary of itself": (_cycle, "not in the window"),
    "a summary of no place": (_of_summary(first=-1), "covers"),
    "a summary until a place that is a word": (_of_summary(last="2"), "last"),
    "a summary since a time without a zone": (_of_summary(start="2026-01-01T00:00:00"), "start"),
    "a summary until a time spelled otherwise": (_of_summary(end="20260101T000000Z"), "end"),
    "a run that names a speaker elsewhere": (_of_replacement(into="id-1"), "did not make"),
    "an undo of what is not in force": (_set("undone", compression_id="id-1"), "is in force"),
    "a pin on what is not active": (_set("pinned", entry_id="nowhere"), "not active"),
    "a setting that there is not": (_set("configured", changes={"colour": 1}), "colour"),
    "a setting beyond its range": (_set("configured", changes={"recent_window": -1}), "recent_window"),
    "tokens beyond every store": (_set("usage", input_tokens=2**70), "not a number of tokens"),
    "a time without a zone": (_set("undone", at="2026-01-01T00:00:00"), "no time zone"),
    "an id of 300 bytes": (lambda d: d[2]["record"]["entry"].update(id="x" * 300), "255 bytes"),
    "an id with a line break": (lambda d: d[2]["record"]["entry"].update(id="a\nb"), "control"),
    "settings that the log did not make": (lambda d: d[0].update(settings={"a": 9}), "settings differ"),
    "a head that is not the count": (lambda d: d[0].update(head=7), "the header has the head 7"),
    "a session without a name": (lambda d: d[0].update(session_id=""), "session_id"),
    "another kind of thing": (lambda d: d[0].update(memman="pickle"), "'pickle'"),
    "no records": (lambda d: (d[0].update(head=0, settings={}), d.__delitem__(slice(1, -1))), "empty"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_LOGS)
def test_hostile_log_is_refused(what: str) -> None:
    edit, expected = HOSTILE_LOGS[what]
    faults = problems(edited(LIVED, edit))
    assert faults
    assert any(expected in fault for fault in faults), faults


# ---------------------------------------------------------------- limits


def test_exceeded_limit_is_reported_with_its_name_and_line() -> None:
    long = archive_of(plain(3, text="x" * 5_000).export_session("s"))
    deep = manager()
    deep.add_user_message("s", "x", metadata={"a": {"b": {"c": 1}}})
    cases = [
        (long, "file_bytes", 9_000, 1), (long, "line_bytes", 5_000, 3), (long, "entries", 2, 5),
        (long, "string_bytes", 4_000, 3), (archive_of(deep.export_session("s")), "depth", 2, 3),
        (gzip.compress(long), "unpacked_bytes", 9_000, 1),
        (gzip.compress(LIVED[:20] + b" " * 20_000_000), "ratio", 3, 1),
    ]  # fmt: skip
    for data, name, most, line in cases:
        faults = problems(data, **{"line_bytes": 2**30, name: most})
        assert faults[0].startswith(f"line {line}: "), (name, faults)
        assert f"limits.{name}" in faults[0], (name, faults)
        assert f"ArchiveLimits({name}=...)" in faults[0], (name, faults)
        assert name == "ratio" or not problems(data, **{name: 2**40}), name


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9"])
def test_invalid_limit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="depth"):
        ArchiveLimits(depth=value)


@pytest.mark.parametrize("source", [io.StringIO("{}"), 7, None, object()])
def test_source_must_be_path_or_binary_file(source: Any) -> None:
    with pytest.raises(InvalidInput, match="archive"):
        verify(source)


def test_pipe_of_single_bytes_is_read() -> None:
    class Drops(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(1)

    small = archive_of(plain(2).export_session("s"), "gzip")
    assert verify(Drops(small)).records == 3
