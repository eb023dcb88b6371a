"""Sessions to archive, and archives that were tampered with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from zlib import crc32

from memman import MemoryConfig, MemoryManager
from memman.archive.document import SessionState, records_of
from memman.archive.lines import Header, with_checksum
from memman.archive.writer import ArchiveWriter

AT = datetime(2026, 1, 1, tzinfo=UTC)


def manager(**given: Any) -> MemoryManager:
    """Return a manager without automatic compression, with predictable ids and times."""
    ids, seconds = count(1), count()
    settings: dict[str, Any] = {
        "config": MemoryConfig(auto_compress=False),
        "new_id": lambda: f"id-{next(ids)}",
        "clock": lambda: AT + timedelta(seconds=next(seconds)),
    }
    return MemoryManager(**{"counter": "chars4", **settings, **given})


def lived(memory: MemoryManager | None = None, entries: int = 30) -> MemoryManager:
    """Return a session with records of every kind."""
    memory = memory or manager()
    memory.add_system_message("s", "be brief")
    ids = [memory.add_user_message("s", f"{n} " + "abc " * 80).id for n in range(entries)]
    memory.pin("s", ids[2])
    memory.set_summarize_callback(lambda prompt: "They counted.")
    memory.compress("s", target_tokens=1_000, summarize=True)
    memory.set_summarize_callback(None)
    memory.add_tool_call("s", "shell", {"a": 1}, call_id="c", metadata={"k": [1, None, "é"]})
    memory.add_tool_result("s", "shell", "bad", call_id="c", is_error=True)
    memory.undo_compression("s")
    memory.compress("s", target_tokens=900)
    memory.update_config("s", recent_window=4)
    memory.record_usage("s", {"input_tokens": 5, "output_tokens": 2}, model="m")
    memory.delete_entries("s", [ids[1]])
    memory.compress("s", target_tokens=900)
    memory.add_messages(
        "s", [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    )
    return memory


def plain(entries: int, memory: MemoryManager | None = None, text: str = "m") -> MemoryManager:
    """Return a session of short messages."""
    memory = memory or manager()
    for number in range(entries):
        memory.add_user_message("s", f"{text}{number}")
    return memory


def archive_of(state: SessionState, packing: str | None = None, **header: Any) -> bytes:
    """Return a session's archive."""
    log = list(enumerate(records_of(state), 1))
    out = io.BytesIO()
    writer = ArchiveWriter(out, packing)
    fields: dict[str, Any] = {
        "session_id": state.session_id, "head": len(log), "settings": state.settings, **header
    }  # fmt: skip
    writer.begin(Header(**fields))
    writer.write(log)
    writer.finish()
    return out.getvalue()


def with_checksums(lines: list[bytes]) -> bytes:
    """Return an archive of these lines with a correct trailer, as an attacker would send it."""
    import hashlib

    *body, _ = lines
    done = b"".join(line.rstrip(b"\n") + b"\n" for line in body)
    trailer = {"end": True, "count": len(body) - 1, "sha256": hashlib.sha256(done).hexdigest()}
    return done + with_checksum(json.dumps(trailer).encode())


def reseal(line: bytes) -> bytes:
    """Return a line with the correct checksum."""
    rest = line.rstrip(b"\n")[18:]
    return b'{"crc":"%08x",%s\n' % (crc32(rest), rest)


def edited(data: bytes, edit: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """Return an archive with decoded and edited lines, as another program would write it."""
    documents = [json.loads(line) for line in data.splitlines()]
    edit(documents)
    lines = []
    for document in documents:
        document.pop("crc")
        lines.append(with_checksum(json.dumps(document).encode()))
    return with_checksums(lines)


def replaced(data: bytes, line: int, old: bytes, new: bytes) -> bytes:
    """Return an archive with some bytes of a line replaced, and correct checksums."""
    lines = data.splitlines()
    assert old in lines[line - 1], lines[line - 1]
    lines[line - 1] = reseal(lines[line - 1].replace(old, new))
    return with_checksums(lines)
