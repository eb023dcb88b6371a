"""A file of messages, in whichever of the usual shapes it comes; recognised by its content.

JSON: a list of messages, an object with `messages` (a request's body; its `system` comes along), or
one message. JSON lines: one message a line. Anything else is text in the format `text`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from memman.archive import FORMAT as SESSION_FORMAT
from memman.cli.display import first_line
from memman.cli.logs import add_draft
from memman.cli.problems import UnreadableError
from memman.entries import Draft
from memman.errors import FormatError
from memman.formats import BUILTIN_FORMATS, detect_format, format_named, plain_messages
from memman.formats.logs import IMPORT_FORMATS, detect_log
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.ports import Compaction, Format, ImportFormat, ReadEntry

STDIN = "-"
_HEAD = 50  # items of a log by which it is recognised


class Log(msgspec.Struct, frozen=True):
    """A conversation that was read: its messages, their format, and the entries they make.

    `system` is the system prompt of a request's body, which stands beside its messages. `read` is there
    for logs that are only read: their entries with times, and the places where they were compacted.
    """

    name: str
    messages: list[Any]
    format: str
    drafts: list[Draft]
    system: str | None = None
    read: list[ReadEntry | Compaction] | None = None

    def __len__(self) -> int:
        return len(self.messages) + bool(self.system)

    def play(self, memory: MemoryManager, session_id: str) -> Iterator[list[str]]:
        """Adds the log message by message; yields the ids of the entries that each one made.

        Of a log that is only read, the entries; where it was compacted itself is left out.
        """
        if self.system:
            yield [memory.add_system_message(session_id, self.system).id]
        if self.read is not None:
            for draft in self.drafts:
                yield [add_draft(memory, session_id, draft).id]
            return
        for message in self.messages:
            yield [entry.id for entry in memory.add_messages(session_id, [message], self.format)]

    @property
    def facts(self) -> list[tuple[str, str, Any]]:
        """What must be found in a session that took this log: type, role and content, in order."""
        head = [("message", "system", self.system)] if self.system else []
        return [*head, *((draft.type, draft.role, draft.content) for draft in self.drafts)]


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or of stdin for "-". Raises `UnreadableError`."""
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None


def read_log(path: str, wanted: str = "auto", chosen: str | None = None) -> Log:
    """The log in a file, or on stdin for "-"; `chosen` is one of several conversations.

    Raises `UnreadableError`.
    """
    name = "stdin" if path == STDIN else path
    return log_of(read_bytes(path), name, wanted, chosen)


def bundled_log() -> Log:
    """The conversation that comes with memman: a coding agent's working day."""
    data = files("memman.cli").joinpath("demo.jsonl").read_bytes()
    return log_of(data, "a coding agent's working day")


def log_of(data: bytes, name: str, wanted: str = "auto", chosen: str | None = None) -> Log:
    """The log in some bytes; `name` says in errors where they came from."""
    messages, system = _messages(text_of(data, name), name)
    if not messages:
        raise UnreadableError(f"{name} has no messages")
    try:
        reader = _reader(messages, wanted)
        if reader is not None:
            return _read_by(reader, messages, name, chosen)
        if chosen is not None:
            raise UnreadableError(f"{name} has one conversation: leave --conversation out")
        plain = plain_messages(messages)
        form = _form(plain, wanted, name)
        return Log(name, plain, form.name, form.parse(plain), system)
    except FormatError as error:
        raise UnreadableError(f"{name}: {error}") from None


def _reader(items: list[Any], wanted: str) -> ImportFormat | None:
    """Who reads these items, if they are of a log that is only read."""
    if wanted == "auto":
        return detect_log(items[:_HEAD])
    return next((reader for reader in IMPORT_FORMATS if reader.name == wanted), None)


def _read_by(reader: ImportFormat, items: list[Any], name: str, chosen: str | None) -> Log:
    """The chosen conversation of a log that is only read."""
    found = reader.conversations(items)
    read = reader.parse(_chosen(found, name, chosen))
    drafts = [item.draft for item in read if isinstance(item, ReadEntry)]
    if not drafts:
        raise UnreadableError(f"{name}: {reader.name}, but no message is in it")
    return Log(name, items, reader.name, drafts, read=read)


def _chosen(found: list[tuple[str, list[Any]]], name: str, chosen: str | None) -> list[Any]:
    """The items of the conversation with this number (from 1) or title; of the only one if none."""
    if chosen is None:
        if len(found) == 1:
            return found[0][1]
        shown = "; ".join(f"{n} {title!r}" for n, (title, _) in enumerate(found[:5], 1))
        raise UnreadableError(
            f"{name} has {len(found)} conversations ({shown}{' ...' if len(found) > 5 else ''}); "
            "choose one with --conversation NUMBER"
        )
    for number, (title, items) in enumerate(found, 1):
        if chosen in (str(number), title):
            return items
    raise UnreadableError(f"{name} has no conversation {chosen!r}, but 1 to {len(found)}")


def decode(text: str | bytes, name: str) -> Any:
    """The value of a JSON text. Raises `UnreadableError` that says where it stops being JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableError(f"{name} is not JSON: {_where(text, error)}") from None


def _where(text: str | bytes, error: Exception) -> str:
    """The place of the fault; the standard decoder tells line and column."""
    try:
        json.loads(text)
    except json.JSONDecodeError as found:
        ended = found.pos >= len(found.doc.rstrip()) or found.msg.startswith("Unterminated string")
        what = "it ends too early, the file is truncated" if ended else found.msg
        return f"{what} (line {found.lineno}, column {found.colno})"
    except (ValueError, RecursionError) as found:
        return str(found)
    return str(error)


_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2"}


def text_of(data: bytes, name: str) -> str:
    """The text of a file. Raises `UnreadableError` when it is packed, empty or no text."""
    for start, packer in _PACKED.items():
        if data.startswith(start):
            raise UnreadableError(f"{name} is packed with {packer}; unpack it first")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{name} is not UTF-8 text (byte {error.start}); convert it, or unpack it first"
        ) from None
    if not text.strip():
        raise UnreadableError(f"{name} is empty, it has no messages")
    return text


def _messages(text: str, name: str) -> tuple[list[Any], str | None]:
    """The messages of a text, and the system prompt beside them."""
    stripped = text.strip()
    if stripped[0] not in "[{":
        return [text], None
    if _is_lines(stripped):
        lines = [
            decode(line, f"line {number} of {name}")
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip()
        ]
        return _lines_messages(lines, name), None
    return _document_messages(decode(stripped, name), name)


_RESPONSES = frozenset(("role", "choices", "candidates", "output"))
_OF_LOGS = _RESPONSES | {"messages", "contents", "input"}


def is_log(text: str) -> bool:
    """Whether a text looks like messages, and not like a session that is broken."""
    stripped = text.strip()
    if stripped[0] not in "[{" or _is_lines(stripped):
        return True
    try:
        document = msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(document, list) or bool(_OF_LOGS & document.keys())


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole object of its own and others follow."""
    first, _, rest = text.partition("\n")
    if not rest.strip() or not first.startswith("{"):
        return False
    try:
        return isinstance(msgspec.json.decode(first), dict)
    except msgspec.DecodeError:
        return False


def _lines_messages(lines: list[Any], name: str) -> list[Any]:
    if any(isinstance(line, dict) and "messages" in line for line in lines):
        raise UnreadableError(
            f"{name} has {len(lines)} conversations, one a line; give a file with one of them"
        )
    return lines


def _document_messages(document: Any, name: str) -> tuple[list[Any], str | None]:
    if isinstance(document, list):
        return document, None
    if document.get("format") == SESSION_FORMAT:
        raise UnreadableError(
            f"{name} is a memman session, not a log; see it with `memman show {name}`"
        )
    if isinstance(document.get("messages"), list):
        return document["messages"], _system(document.get("system"), name)
    if isinstance(document.get("contents"), list):
        instruction = document.get("systemInstruction", document.get("system_instruction"))
        parts = instruction.get("parts") if isinstance(instruction, dict) else instruction
        return document["contents"], _system(parts, name)
    if isinstance(document.get("input"), list):
        return document["input"], _system(document.get("instructions"), name)
    if _RESPONSES & document.keys():
        return [document], None
    if detect_log([document]) is not None:
        return [document], None
    found = ", ".join(list(document)[:6]) or "nothing"
    raise UnreadableError(f"{name} is an object without a list of `messages` (it has {found})")


def _system(system: Any, name: str) -> str | None:
    """The system prompt of a request: text, or blocks of text."""
    if system is None or isinstance(system, str):
        return system
    try:
        return "\n".join(block["text"] for block in system) or None
    except (TypeError, KeyError):
        raise UnreadableError(f"`system` of {name} is neither text nor blocks of text") from None


def known_formats() -> dict[str, Format]:
    """The formats that are parsed and rendered, by name: memman's own, then those of plugins."""
    known = {form.name: form for form in BUILTIN_FORMATS}
    for _, form in shared_plugins().listed("memman_formats"):
        known.setdefault(form.name, form)
    return known


def _form(messages: list[Any], wanted: str, name: str) -> Format:
    known = known_formats()
    if wanted != "auto":
        return format_named(wanted, known.values())
    try:
        return detect_format(messages, known.values())
    except FormatError:
        raise UnreadableError(f"{name}: {_unknown(messages, list(known.values()))}") from None


def _unknown(messages: list[Any], known: list[Format]) -> str:
    """What to say of messages in no known format: the first at fault, or how text looks."""
    read_only = [form.name for form in IMPORT_FORMATS]
    names = ", ".join([form.name for form in known] + read_only)
    if isinstance(messages[0], str):
        return (
            f"this text is in no known format ({names}); a conversation as text has lines that "
            "begin with who speaks, such as `User: ...` and `Assistant: ...`"
        )
    for number, message in enumerate(messages):
        try:
            detect_format([message], known)
        except FormatError:
            shown = first_line(repr(message), 80)
            return f"message {number} is in no known format ({names}): {shown}"
    return f"the messages are not all in one known format ({names}); name it with -f"
