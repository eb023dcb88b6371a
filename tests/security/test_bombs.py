"""A small foreign file cannot keep memman busy: it is refused within about a second."""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memman import ArchiveLimits, MemoryManager, SessionState, StateError
from memman.archive.importer import verify

_LONGEST = 3.0  # seconds of this thread; the tested inputs once took a minute


@contextmanager
def _quickly() -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < _LONGEST


def _archive() -> list[bytes]:
    memory = MemoryManager()
    for number in range(5):
        memory.add_user_message("s", f"message {number}")
    stream = io.BytesIO()
    memory.export_archive("s", stream)
    return stream.getvalue().splitlines(keepends=True)


_HEAD = _archive()[0]
_BOMBS = {
    "empty lines": _HEAD + b"\n" * 2**24,
    "lines of one character": _HEAD + b"x\n" * 2**22,
    "blanks": _HEAD + b" " * 2**26,
    "one record again and again": _HEAD + _archive()[1] * 100_000,
    "brackets": _HEAD + b'{"crc":"00000000","seq":1,"record":' + b"[" * 2**20,
    "no newline": b'{"memman":"session"' + b" " * 2**26,
}


@pytest.mark.parametrize("name", _BOMBS)
def test_packed_bomb_is_refused_quickly(tmp_path: Path, name: str) -> None:
    """A packed archive of very many faults is refused, by `verify` and by an import"""
    packed = gzip.compress(_BOMBS[name], 6)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(packed)
    with _quickly(), pytest.raises(StateError) as raised:
        verify(path)
    assert len(raised.value.problems) <= 101
    with _quickly(), pytest.raises(StateError):
        MemoryManager().import_archive(path)


def test_archive_of_too_many_records_is_refused() -> None:
    """An archive with more records than its limit names the limit"""
    data = io.BytesIO(b"".join(_archive()))
    with pytest.raises(StateError, match=r"limits\.records is 3"):
        verify(data, limits=ArchiveLimits(records=3))


@pytest.mark.parametrize("name", ["document_bytes", "records", "entries"])
def test_document_beyond_a_limit_is_refused(name: str) -> None:
    """A document beyond a limit names the limit and how to raise it"""
    memory = MemoryManager()
    for number in range(5):
        memory.add_user_message("s", f"message {number}")
    text = memory.export_session("s").to_json()
    with pytest.raises(StateError, match=rf"limits.{name} is 3 .*ArchiveLimits\({name}="):
        SessionState.from_json(text, limits=ArchiveLimits(**{name: 3}))
    assert SessionState.from_json(text).to_json() == text


def test_document_of_very_many_faults_reports_a_hundred() -> None:
    """A document of 100,000 faults is refused with the first hundred"""
    memory = MemoryManager()
    memory.add_user_message("s", "hello")
    document = json.loads(memory.export_session("s").to_json())
    document["log"] = [{"kind": "shown", "id": f"e{number}"} for number in range(100_000)]
    with _quickly(), pytest.raises(StateError) as raised:
        memory.import_session(document)
    assert len(raised.value.problems) == 101
    assert raised.value.problems[-1].endswith("more")
