"""The message format `claude-transcript`: the lines of Claude Code's transcripts, and back.

A line is what `SessionStore.append` gets. The text, tool calls and results of its message are ordinary
entries, as if they had been added in the format `anthropic`; the first entry keeps the rest of the line. A
line without a message is an entry without content, which no provider's context has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from memman import FormatError, hookimpl
from memman.entries import NOT_COUNTED, Entry, NewEntry, encode_json, entry_of
from memman.formats.anthropic import AnthropicFormat
from memman.formats.originals import original_messages
from memman.protocols import Format, Turn

FORMAT: Final = "claude-transcript"
_SPOKEN: Final = ("user", "assistant")
_TEXT: Final = ("role", "content")  # the keys of a message that entries have
_PART: Final[dict[str, Any]] = {}  # kept by the further entries of a line that is kept whole
_ANTHROPIC: Final = AnthropicFormat()
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)

Line = dict[str, Any]


@hookimpl
def memman_formats() -> Sequence[Format]:
    """Return the format of transcripts."""
    return (TranscriptFormat(),)


class TranscriptFormat(AnthropicFormat):
    """`{"type": "user" | "assistant" | ..., "uuid": ..., "message": {...}, ...}`, and back.

    `get_messages` returns the lines; entries that were added in another format are messages of `anthropic`.
    A context is one of `anthropic`.
    """

    name = FORMAT

    def detect(self, messages: Sequence[Any]) -> int:
        """Return 0: lines are read only if the format is named."""
        return 0

    def parse(self, messages: Sequence[Any]) -> list[NewEntry]:
        """Return the entries of lines, at least one for each."""
        found: list[NewEntry] = []
        names: dict[str | None, str | None] = {}
        for index, line in enumerate(messages):
            for new_entry in _parsed(index, line):
                name = new_entry.name
                if new_entry.type == "tool_call":
                    names[new_entry.call_id] = name
                elif new_entry.type == "tool_result":
                    name = names.get(new_entry.call_id)
                found.append(msgspec.structs.replace(new_entry, message_index=index, name=name))
        return found

    def restore(self, turn: Turn) -> Sequence[Line]:
        """Return the lines of a turn, as they were added."""
        calls = [call.entry for call in turn.calls] if turn.kind == "assistant" else []
        entries = sorted((*turn.entries, *calls), key=lambda entry: entry.seq)
        return [_line_of(group) for group in _by_line(entries) if _kept(group[0]) != _PART]

    def rejoin(self, left: Line, right: Line) -> Line | None:
        """Return a line with the texts that follow its tool results; None for two lines."""
        if is_line(right) or not is_line(left):
            return None
        message, rest = left["message"], right["content"]
        return {**left, "message": {**message, "content": [*message["content"], *rest]}}


def is_line(message: Line) -> bool:
    """Return whether a message that `get_messages` returned is a line, not one of `anthropic`."""
    return "type" in message or "role" not in message


def _parsed(index: int, line: Any) -> list[NewEntry]:
    if not isinstance(line, dict):
        raise FormatError(f"a line of a transcript is a dict, not {type(line).__name__}", index)
    found = _spoken(index, line)
    if found:
        kept = [
            entry_of(each, f"{number}", _NEVER, NOT_COUNTED) for number, each in enumerate(found)
        ]
        if original_messages(TranscriptFormat(), kept) == [[line]]:
            return found
    # An assistant's message without parts is in no context.
    empty = NewEntry(type="message", role="assistant", content=())
    first, *others = found or [empty]
    return [_keeping(first, {"line": line}), *(_keeping(each, _PART) for each in others)]


def _spoken(index: int, line: Line) -> list[NewEntry]:
    """Return the entries of a line's message, with the rest of the line; none if it has no message."""
    message = line.get("message")
    if line.get("type") not in _SPOKEN or not isinstance(message, dict):
        return []
    try:
        found = _ANTHROPIC.parse([{key: message.get(key) for key in _TEXT}])
    except FormatError:
        return []
    rest = {key: value for key, value in line.items() if key != "message"}
    envelope = {key: value for key, value in message.items() if key not in _TEXT}
    # The lines of one answer are one message: one line has its text, others one call each.
    label = message.get("id") if message.get("role") == "assistant" else None
    label = label if isinstance(label, str) else str(index) if found[0].message_id else None
    found = [msgspec.structs.replace(each, message_id=label) for each in found]
    found[0] = _keeping(found[0], {"rest": rest, "message": envelope})
    return found


def _keeping(new_entry: NewEntry, kept: Line) -> NewEntry:
    """Return the new entry with a line, or the rest of it: in its metadata, which costs no tokens."""
    encoded = encode_json({FORMAT: kept}, "a line of a transcript")
    return msgspec.structs.replace(new_entry, metadata_json=encoded)


def _kept(entry: Entry) -> Line | None:
    return entry.metadata.get(FORMAT)


def _by_line(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries of each line."""
    group: list[Entry] = []
    for entry in entries:
        if group and _kept(entry) is not None:
            yield group
            group = []
        group.append(entry)
    yield group


def _line_of(entries: Sequence[Entry]) -> Line:
    """Return the line of entries; a message of `anthropic` if they have none."""
    kept = _kept(entries[0])
    if kept is not None and "line" in kept:
        line: Line = kept["line"]
        return line
    [[message]] = original_messages(_ANTHROPIC, entries)
    if kept is None:
        return message
    return {**kept["rest"], "message": {**kept["message"], **message}}
