"""OpenTelemetry GenAI messages: a role and typed parts, bare or in the attributes of spans.

Each span repeats the history before it, so the last one with messages is the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from memman.display import shape_of
from memman.entries import JSON, ImagePart, JSONObject, NewEntry, Part, TextPart
from memman.errors import FormatError
from memman.formats.parts import opaque
from memman_cli.log_formats.common import text_at
from memman_cli.log_formats.protocol import Compaction, ReadEntry, ReadItem

_NAME = "otel"
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_SYSTEM = "gen_ai.system_instructions"
_ROLES = ("system", "user", "assistant", "tool")


class OTelMessages:
    """`{"role": ..., "parts": [{"type": "text", "content": ...}, ...]}`, or spans with such attributes."""

    name = _NAME

    def detect(self, items: Sequence[JSON]) -> int:
        """Return the highest certainty for the attributes' names, and for parts with a type."""
        if any(_attributes(item) for item in items):
            return 9
        return 8 if items and all(map(_is_message, items)) else 0

    def conversations(self, items: Iterable[JSON]) -> Iterable[tuple[str, Iterable[JSON]]]:
        """Return the file as one conversation."""
        return [("", items)]

    def parse(self, items: Iterable[JSON]) -> Iterator[ReadItem]:
        """Yield the messages in order."""
        last: JSONObject = {}
        for item in items:
            last = _attributes(item) or last
        for number, message in enumerate(_of_span(last) if last else items):
            yield from _entries(number, message)


def _attributes(item: JSON) -> JSONObject:
    """Return the attributes of a span with messages; empty for anything else."""
    if not isinstance(item, dict):
        return {}
    given = item.get("attributes", item)
    return given if isinstance(given, dict) and (_INPUT in given or _OUTPUT in given) else {}


def _is_message(item: JSON) -> bool:
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        return False
    parts = item.get("parts")
    return (
        isinstance(parts, list)
        and bool(parts)
        and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    )


def _of_span(attributes: JSONObject) -> list[JSON]:
    system = _listed(attributes.get(_SYSTEM), _SYSTEM)
    head = [{"role": "system", "parts": system}] if system else []
    return (
        head + _listed(attributes.get(_INPUT), _INPUT) + _listed(attributes.get(_OUTPUT), _OUTPUT)
    )


def _listed(value: JSON, name: str) -> list[JSON]:
    """Return a list, which an exporter may have written as JSON text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise FormatError(f"{name} is text that is not JSON: {shape_of(value)}") from None
        except RecursionError:
            raise FormatError(f"{name} is nested too deeply: {shape_of(value)}") from None
    return value if isinstance(value, list) else []


def _entries(number: int, message: JSON) -> list[ReadItem]:
    if not _is_message(message):
        raise FormatError(
            f"message {number} is not one of OTel's: it needs a role and typed parts: {shape_of(message)}",
            number,
        )
    tools: list[NewEntry] = []
    parts: list[Part] = []
    found: list[ReadItem] = []
    for part in message["parts"]:
        match part["type"]:
            case "tool_call" | "tool_call_response":
                tools.append(_tool(number, part))
            case "compaction":
                summary = text_at("a compaction", part.get("content"))
                found.append(Compaction(summary, "compacted, by the trace"))
            case _:
                parts.append(_part(part))
    if parts:
        found.append(ReadEntry(_message(number, message["role"], parts, bool(tools))))
    return found + [ReadEntry(new_entry) for new_entry in tools]


def _message(number: int, role: JSON, parts: list[Part], calls: bool) -> NewEntry:
    content: JSON = tuple(parts)
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        content = parts[0].text
    if role == "tool":
        return NewEntry(type="tool_result", role="tool", content=content)
    label = str(number) if calls else None
    return NewEntry(type="message", role=role, content=content, message_id=label)


def _tool(number: int, part: JSONObject) -> NewEntry:
    call_id, name = part.get("id"), part.get("name")
    call_id = call_id if isinstance(call_id, str) and call_id else None
    name = name if isinstance(name, str) else None
    if part["type"] == "tool_call":
        text = text_at("the arguments of a call", part.get("arguments"))
        return NewEntry(type="tool_call", role="assistant", content=text, name=name or "tool",
                     call_id=call_id, message_id=str(number))  # fmt: skip
    answer = part.get("response", part.get("result"))
    return NewEntry(type="tool_result", role="tool", content=text_at("a response", answer),
                 name=name, call_id=call_id)  # fmt: skip


def _part(part: JSONObject) -> Part:
    if part["type"] == "text" and isinstance(part.get("content"), str):
        return TextPart(part["content"])
    if part.get("modality") == "image":
        kind = part.get("mime_type")
        media_type = kind if isinstance(kind, str) else None
        if isinstance(part.get("uri"), str):
            return ImagePart(url=part["uri"], media_type=media_type)
        if isinstance(part.get("content"), str):
            return ImagePart(data=part["content"], media_type=media_type)
    return opaque(_NAME, part, "a part of a message")
