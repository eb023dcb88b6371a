"""Sessions to be archived, and archives that somebody has tampered with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from zlib import crc32

from memman import MemoryConfig, MemoryManager
from memman.archive import ArchiveWriter, Header, SessionState, records_of
from memman.archive.lines import sealed

AT = datetime(2026, 1, 1, tzinfo=UTC)


def manager(**given: Any) -> MemoryManager:
    """A manager that compresses only when asked to, with ids and times of a script."""
    ids, seconds = count(1), count()
    settings: dict[str, Any] = {
        "config": MemoryConfig(auto_compress=False),
        "new_id": lambda: f"id-{next(ids)}",
        "clock": lambda: AT + timedelta(seconds=next(seconds)),
    }
    return MemoryManager(**{"counter": "chars4", **settings, **given})


def lived(memory: MemoryManager | None = None, entries: int = 30) -> MemoryManager:
    """A session in which everything happened that can happen."""
    memory = memory or manager()
    memory.add_system_message("s", "be brief")
    ids = [memory.add_user_message("s", f"{n} " + "abc " * 80).id for n in range(entries)]
    memory.pin("s", ids[2])
    memory.compress("s", target_tokens=1_000)
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
    """A session of so many short messages."""
    memory = memory or manager()
    for number in range(entries):
        memory.add_user_message("s", f"{text}{number}")
    return memory


def archive_of(state: SessionState, packing: str | None = None, **header: Any) -> bytes:
    """A session's archive as bytes."""
    log = list(enumerate(records_of(state), 1))
    out = io.BytesIO()
    writer = ArchiveWriter(out, packing)
    told: dict[str, Any] = {
        "session_id": state.session_id, "head": len(log), "settings": state.settings, **header
    }  # fmt: skip
    writer.begin(Header(**told))
    writer.write(log)
    writer.finish()
    return out.getvalue()


def resealed(lines: list[bytes]) -> bytes:
    """An archive whose checks are right again, whatever its lines say: what an attacker would send."""
    import hashlib

    *body, _ = lines
    done = b"".join(line.rstrip(b"\n") + b"\n" for line in body)
    trailer = {"end": True, "count": len(body) - 1, "sha256": hashlib.sha256(done).hexdigest()}
    return done + sealed(json.dumps(trailer).encode())


def reseal(line: bytes) -> bytes:
    """A line with the check that its bytes have."""
    rest = line.rstrip(b"\n")[18:]
    return b'{"crc":"%08x",%s\n' % (crc32(rest), rest)


def edited(data: bytes, edit: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """An archive whose lines were decoded, edited, and sealed again by another program."""
    documents = [json.loads(line) for line in data.splitlines()]
    edit(documents)
    lines = []
    for document in documents:
        document.pop("crc")
        lines.append(sealed(json.dumps(document).encode()))
    return resealed(lines)


def replaced(data: bytes, line: int, old: bytes, new: bytes) -> bytes:
    """An archive with some bytes of a line exchanged, and its checks made right."""
    lines = data.splitlines()
    assert old in lines[line - 1], lines[line - 1]
    lines[line - 1] = reseal(lines[line - 1].replace(old, new))
    return resealed(lines)
