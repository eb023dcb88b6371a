"""A file's format is detected by its first items, for every format and without guesses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from memman_cli.files import File, Lines
from memman_cli.logs import log_in

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(SAMPLES.glob("*.json*"))


def items_of(path: Path) -> list[Any]:
    """Return the items of a sample."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    document = json.loads(path.read_text())
    if isinstance(document, dict):
        found = document.get("messages") or document.get("contents") or document.get("input")
        return found or [document]
    return document


def as_lines(items: list[Any]) -> File:
    return File("log", data="\n".join(map(json.dumps, items)).encode())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_lines_and_document_are_recognised_alike(path: Path) -> None:
    items = items_of(path)
    if len(items) == 1:  # a single line is a document
        items *= 2
    assert log_in(as_lines(items)).format == path.stem


MESSAGES = [path for path in FILES if path.stem not in ("claude-code", "chatgpt-export", "otel")]


@pytest.mark.parametrize("path", MESSAGES, ids=lambda path: path.name)
def test_part_of_a_log_keeps_its_format(path: Path) -> None:
    """Plain roles and texts are detected as the first of the formats that read them alike."""
    items = items_of(path)
    for start in range(len(items)):
        log = log_in(File("log", data=json.dumps(items[start:]).encode()))
        if log.format != path.stem:
            assert log.format == "openai-chat"
            assert all(isinstance(new_entry.content, str) for new_entry in log.new_entries)


def test_detection_reads_only_the_head() -> None:
    class Watched(File):
        taken = 0

        def open(self) -> Any:
            opened = super().open()
            read, readline = opened.read, opened.__next__
            watched = self

            class Reader:
                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *_: object) -> None:
                    opened.close()

                def read(self, size: int = -1) -> bytes:
                    found = read(size)
                    watched.taken += len(found)
                    return found

                def __iter__(self) -> Any:
                    return self

                def __next__(self) -> bytes:
                    line = readline()
                    watched.taken += len(line)
                    return line

            return Reader()

    line = json.dumps({"role": "user", "content": "x" * 1_000}).encode() + b"\n"
    file = Watched("log", data=line * 20_000)
    assert log_in(file).format == "openai-chat"
    assert file.taken < 2_500_000  # of 20 MB: a piece to check that it is text, and the first lines


def test_line_numbers_include_blank_lines() -> None:
    lines = Lines(File("log", data=b'\xef\xbb\xbf{"a": 1}\n\n \n{"a": 2}\r\n{"a": 3}'))
    assert list(lines) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert len(lines) == 3
    assert [lines.where(index) for index in range(3)] == ["line 1", "line 4", "line 5"]
