"""An archive is what was written, or it is refused with the line: corrupt bytes, cuts, hostile content."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from memman import StateError
from memman.archive import ArchiveInfo, ArchiveLimits, verify
from memman.archive.limits import DEFAULT_LIMITS
from memman.archive.reader import ArchiveReader
from memman.errors import InvalidInput
from tests.archive.sessions import archive_of, edited, lived, manager, plain, replaced

FIFTY = archive_of(plain(50).export_session("s"))
LIVED = archive_of(lived().export_session("s"))


def problems(data: bytes, **limits: int) -> tuple[str, ...]:
    """What is said of an archive."""
    try:
        verify(io.BytesIO(data), limits=ArchiveLimits(**limits))
    except StateError as error:
        return error.problems
    return ()


def seen_by_reader(data: bytes) -> tuple[str, ...]:
    """What the lines alone tell, without the fold: much faster."""
    reader = ArchiveReader(io.BytesIO(data), DEFAULT_LIMITS)
    try:
        for _ in reader.records():
            pass
        assert reader.info.records
    except StateError as error:
        return error.problems
    return ()


def test_an_archive_that_is_whole_says_what_it_holds() -> None:
    info = verify(io.BytesIO(FIFTY))
    sha256 = json.loads(FIFTY.splitlines()[-1])["sha256"]
    assert info == ArchiveInfo(
        session_id="s", records=51, entries=50, bytes=len(FIFTY), sha256=sha256, packing="none",
        version=1, created_by="",
    )  # fmt: skip
    assert verify(io.BytesIO(LIVED)).records == len(LIVED.splitlines()) - 2


def test_each_byte_that_is_flipped_is_noticed_and_its_line_named() -> None:
    # The same byte of every line at once: each is checked by itself, and one by one it takes a minute.
    first, *lines = FIFTY.splitlines(keepends=True)
    for place in range(max(map(len, lines))):
        changed = [bytearray(line) for line in lines]
        flipped = [number for number, line in enumerate(lines) if place < len(line) - 1]
        for number in flipped:
            changed[number][place] ^= 1 << (place + number) % 8
            if changed[number][place] == 0x0A:  # that would make two lines of one
                changed[number][place] ^= 0xFF
        told = seen_by_reader(first + b"".join(changed))
        named = {int(fault.split()[1].rstrip(":")) - 2 for fault in told}
        assert named >= set(flipped), (place, set(flipped) - named)


def test_a_byte_flipped_anywhere_is_noticed_and_its_line_named() -> None:
    line = 1
    for place, byte in enumerate(FIFTY):
        if place % 17 == 0 or byte == 0x0A or place < 150:
            changed = bytearray(FIFTY)
            changed[place] = byte ^ (1 << place % 8)
            told = seen_by_reader(bytes(changed))
            assert any(fault.startswith(f"line {line}: ") for fault in told), (place, line, told)
        line += byte == 0x0A


def test_a_flipped_byte_in_each_line_of_a_session_with_everything_is_noticed() -> None:
    place = 0
    for number, line in enumerate(LIVED.splitlines(keepends=True), 1):
        for at in (0, 10, len(line) // 2, len(line) - 1):
            changed = bytearray(LIVED)
            changed[place + at] ^= 4
            told = problems(bytes(changed))
            assert told, (number, at)
            assert told[0].startswith(f"line {number}: "), (number, at, told)
        place += len(line)


def test_an_archive_that_was_cut_off_is_noticed_wherever_it_was_cut() -> None:
    line = 1
    for place, byte in enumerate(FIFTY):
        if place % 7 == 0 or byte == 0x0A or place > len(FIFTY) - 200:
            told = seen_by_reader(FIFTY[:place])
            assert told[0].startswith(f"line {line}: "), (place, line, told)
            assert "cut off" in told[0] or "empty" in told[0] or "no archive" in told[0]
        line += byte == 0x0A


@pytest.mark.parametrize("line", [2, 20, 51])
@pytest.mark.parametrize("change", ["gone", "twice", "swapped"])
def test_lines_that_are_missing_repeated_or_swapped_are_noticed(line: int, change: str) -> None:
    lines = FIFTY.splitlines(keepends=True)
    match change:
        case "gone":
            del lines[line - 1]
        case "twice":
            lines.insert(line - 1, lines[line - 1])
        case "swapped":
            lines[line - 1 : line + 1] = reversed(lines[line - 1 : line + 1])
    assert problems(b"".join(lines))


def test_what_comes_after_the_end_is_refused() -> None:
    assert problems(FIFTY + b"x\n") == (
        "line 54: it comes after the line that says that the archive ends",
    )
    assert problems(FIFTY + FIFTY)[0].startswith("line 54: ")


def test_reading_stops_at_a_hundred_faults() -> None:
    data = archive_of(plain(150).export_session("s")).replace(b'"message"', b'"massage"')
    told = problems(data)
    assert len(told) == 101
    assert told[-1] == "reading stopped after 100 faults"


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]", b'{"format": "memman-session"}', b"User: hello\n", b"\x00" * 100,
             b"PK\x03\x04" + b"x" * 50, b'{"crc":"00000000",', b"\n", b"x" * 10_000_000]
)  # fmt: skip
def test_what_is_no_archive_says_so(data: bytes) -> None:
    [told] = problems(data)
    assert told.startswith("line 1: ")
    assert "no archive" in told or "empty" in told or "cut off" in told


# ---------------------------------------------------------------- versions


def test_a_newer_archive_that_we_can_read_is_read() -> None:
    newer = replaced(FIFTY, 1, b'"v":1', b'"v":2,"hint":"from the future"')
    assert verify(io.BytesIO(newer)).version == 2


def test_a_newer_archive_that_asks_for_a_newer_reader_is_refused() -> None:
    newer = replaced(FIFTY, 1, b'"v":1,"min_reader":1', b'"v":3,"min_reader":2')
    [told] = problems(newer)
    assert told.startswith("line 1: it is of version 3 and asks for a reader of version 2")


def test_unknown_fields_around_a_record_are_left_aside_in_a_newer_archive_only() -> None:
    same = replaced(FIFTY, 5, b'"seq":4', b'"seq":4,"hint":7')
    assert "line 5: its field 'hint' is not known in version 1" in problems(same)
    assert not problems(replaced(same, 1, b'"v":1', b'"v":2'))


@pytest.mark.parametrize("version", [b'"v":1', b'"v":2'])
def test_a_field_of_a_record_that_would_be_lost_is_refused_in_any_version(version: bytes) -> None:
    data = replaced(FIFTY, 5, b'"role":"user"', b'"role":"user","mood":"good"')
    data = replaced(data, 1, b'"v":1', version)
    assert problems(data) == (
        "line 5: its record cannot be taken: the field 'mood' is not known and would be lost",
    )


def test_an_unknown_kind_of_record_is_refused() -> None:
    [told] = problems(replaced(FIFTY, 5, b'"kind":"added"', b'"kind":"os.system"'))
    assert told.startswith("line 5: its record cannot be taken: Invalid value 'os.system'")


def test_another_programs_spelling_is_taken() -> None:
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
    "a name twice in metadata": (b'"metadata":{"k":1,"k":2}', "'k' is there twice"),
    "a name twice in the entry": (b'"metadata":{"k":1},"name":"a","name":"b"', "'name' is there twice"),
    "65 levels": (b'"metadata":{"k":' + b"[" * 64 + b"]" * 64 + b"}", "limits.depth is 64"),
    "100,000 levels": (b'"metadata":{"k":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
    "levels without an end": (b'"metadata":{"k":' + b"[" * 1_000_000, "recursion"),
    "metadata that is no object": (b'"metadata":[1]', "no object"),
    "a count below zero": (b'"pinned":true,"token_count":{"tokens":-1}', "'token_count' is there twice"),
    "what is derived": (b'"compressed":true', "derived"),
    "a class to load": (b'"__class__":"os.system","__reduce__":["x"]', "would be lost"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_hostile_json_is_refused_with_its_line(what: str) -> None:
    new, expected = HOSTILE_JSON[what]
    line = next(n for n, text in enumerate(LIVED.splitlines(), 1) if META in text)
    [told] = problems(replaced(LIVED, line, META, new))
    assert told.startswith(f"line {line}: ")
    assert any(part in told.lower() for part in expected.lower().split("|")), told


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


HOSTILE_LOGS: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "a second opening": (_open_twice, "opened before"),
    "a nonce that is a delimiter": (_set("opened", nonce="]]> 12345678"), "nonce"),
    "a nonce of nothing": (_set("opened", nonce=""), "nonce"),
    "a budget below zero": (_set("opened", settings={"max_tokens": -1}), "no number of tokens"),
    "an id that was there": (_repeat, "was there before"),
    "a summary of what is not there": (_of_replacement(ids=["nowhere"]), "not in the window"),
    "a summary of nothing": (_of_replacement(ids=[]), "not in the window"),
    "a summary of itself": (_cycle, "not in the window"),
    "a glance that is a list": (_of_summary(glance=[1]), "glance"),
    "a glance with a number of words": (_of_summary(glance={"errors": "two"}), "glance"),
    "a glance with fewer than none": (_of_summary(glance={"user_messages": -1}), "glance"),
    "a glance at what is no text": (_of_summary(glance={"first_message": 5}), "glance"),
    "a glance with more than a number": (_of_summary(glance={"errors": 10**30}), "errors"),
    "a summary of no place": (_of_summary(first=-1), "covers"),
    "a summary until a place that is a word": (_of_summary(last="2"), "last"),
    "a summary since a time without a zone": (_of_summary(start="2026-01-01T00:00:00"), "start"),
    "a summary until a time spelled otherwise": (_of_summary(end="20260101T000000Z"), "end"),
    "a run that names a speaker elsewhere": (_of_replacement(into="id-1"), "did not make"),
    "an undo of what is not in force": (_set("undone", compression_id="id-1"), "is in force"),
    "a pin on what is not active": (_set("pinned", entry_id="nowhere"), "not active"),
    "a setting that there is not": (_set("configured", changes={"colour": 1}), "colour"),
    "a setting beyond its range": (_set("configured", changes={"recent_window": -1}), "recent_window"),
    "tokens beyond every store": (_set("usage", input_tokens=2**70), "no number of tokens"),
    "a time without a zone": (_set("undone", at="2026-01-01T00:00:00"), "no zone"),
    "an id of 300 bytes": (lambda d: d[2]["record"]["entry"].update(id="x" * 300), "255 bytes"),
    "an id with a line break": (lambda d: d[2]["record"]["entry"].update(id="a\nb"), "control"),
    "settings that the log did not make": (lambda d: d[0].update(settings={"a": 9}), "settings differ"),
    "a head that is not the count": (lambda d: d[0].update(head=7), "the header says 7 records"),
    "a session without a name": (lambda d: d[0].update(session_id=""), "session_id"),
    "another kind of thing": (lambda d: d[0].update(memman="pickle"), "'pickle'"),
    "no records": (lambda d: (d[0].update(head=0, settings={}), d.__delitem__(slice(1, -1))), "empty"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_LOGS)
def test_a_hostile_log_is_refused(what: str) -> None:
    edit, expected = HOSTILE_LOGS[what]
    told = problems(edited(LIVED, edit))
    assert told
    assert any(expected in fault for fault in told), told


# ---------------------------------------------------------------- limits


def test_each_limit_is_kept_and_names_itself_and_the_line() -> None:
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
        told = problems(data, **{"line_bytes": 2**30, name: most})
        assert told[0].startswith(f"line {line}: "), (name, told)
        assert f"limits.{name}" in told[0], (name, told)
        assert f"ArchiveLimits({name}=...)" in told[0], (name, told)
        assert name == "ratio" or not problems(data, **{name: 2**40}), name


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9"])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="depth"):
        ArchiveLimits(depth=value)


@pytest.mark.parametrize("source", [io.StringIO("{}"), 7, None, object()])
def test_what_is_neither_path_nor_binary_file_is_refused(source: Any) -> None:
    with pytest.raises(InvalidInput, match="archive"):
        verify(source)


def test_a_pipe_that_gives_a_byte_at_a_time_is_read() -> None:
    class Drops(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(1)

    small = archive_of(plain(2).export_session("s"), "gzip")
    assert verify(Drops(small)).records == 3
