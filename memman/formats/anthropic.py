"""Anthropic messages: content blocks, results in user turns, strictly alternating roles.

Framing is our own upper bound (a message costs 3-7 tokens by the counts published for single messages; a
tool call or result wraps its parts in tags); calibration by reported usage refines it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from memman.display import shape_of
from memman.entries import (
    JSON,
    Entry,
    FilePart,
    ImagePart,
    JSONObject,
    NewEntry,
    OpaquePart,
    Part,
    TextPart,
)
from memman.errors import FormatError
from memman.formats import calls
from memman.formats.block_format import BlockFormat, listed
from memman.formats.parts import (
    Kept,
    compaction_entry,
    data_of,
    is_half,
    kept_of,
    objects_in,
    opaque_block,
    other_keys,
    read_content,
    read_parts,
    with_kept,
    with_newest_marks,
)
from memman.formats.turns import NO_OUTPUT
from memman.formats.wire.reading import is_compaction, kind_of
from memman.formats.wire.tables import kinds_of
from memman.protocols import CachePlace, CacheRequest, Call

_NAME = "anthropic"
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")

# The keys that rendering produces; every other key is kept and restored.
_OF_MESSAGE = frozenset(("role", "content"))
_OF_USE = frozenset(("type", "id", "name", "input"))
_OF_RESULT = frozenset(("type", "tool_use_id", "content"))
_MARKABLE = frozenset(("text", "image", "document", "search_result", "tool_use", "tool_result"))
_HOUR = 3_600.0  # seconds; the provider has caches of five minutes and of an hour


class AnthropicFormat(BlockFormat):
    """`{"role": "user" | "assistant", "content": ...}` with a separate system prompt, and back."""

    name = _NAME
    message_framing = 6
    pauses = True
    _call_framing = 12
    _plain = True
    _good_id = re.compile(r"[a-zA-Z0-9_-]+\Z")

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for blocks that only Anthropic has."""
        if not messages or not all(
            isinstance(item, dict)
            and item.get("role") in ("user", "assistant")
            and "content" in item
            for item in messages
        ):
            return 0
        blocks = list(objects_in(messages, "content"))
        kinds = {str(block.get("type")) for block in blocks}
        if any("tool_calls" in item for item in messages) or "image_url" in kinds:
            return 0
        rows = [row for block in blocks if (row := kind_of(_NAME, block)) is not None]
        if any(row.half or row.type in kinds_of(_NAME).keys() - {"text"} for row in rows):
            return 4  # a half may be newer than the table
        return 2 if any(item.get("type") == "message" for item in messages) else 1

    def _parse(self, message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
        role: JSON = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            raise FormatError(
                f"this is not an Anthropic message ({shape_of(message)}): "
                "it needs a 'role' of user or assistant"
            )
        content = message.get("content")
        # A response's message also has its id, model and usage, which a request must not have.
        envelope = {} if message.get("type") == "message" else other_keys(message, _OF_MESSAGE)
        if isinstance(content, list):
            return _parse_blocks(role, content, envelope, label, names)
        if not isinstance(content, str):
            kind = type(content).__name__
            raise FormatError(f"'content' must be text or a list of blocks, not {kind}")
        return calls.message_entries(_NAME, role, content, Kept(), [], label, message=envelope)

    # ------------------------------------------------------------ out

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin and end with the user, since the newest models reject a prefilled end; limit stored marks.

        A compaction comes first, and a paused turn, which waits for the provider's own tool, is sent back
        as it is.
        """
        messages = with_newest_marks(messages, "cache_control")
        blank = [self._of_user("")]
        before = blank if messages and _is_compacted(messages[0]) else []
        after = blank if messages and _waits(messages[-1]) else []
        framed = super().frame([*before, *messages, *after])
        return framed[len(before) : len(framed) - len(after)]

    # ------------------------------------------------------------ blocks

    def _wire_part(self, part: Part) -> JSONObject | None:
        return _wire_part(part)

    def _wire_call(self, call: Call, extras: list[str]) -> JSONObject:
        entry = call.entry
        base = {
            "type": "tool_use",
            "id": self._wire_id(call),
            "name": _BAD_NAME.sub("_", entry.name or "")[:128] or "tool",
            "input": calls.arguments_object(entry, extras),
        }
        return with_kept(base, kept_of(entry, _NAME).block)

    def _wire_result(self, call: Call, result: Entry, extras: list[str]) -> JSONObject:
        base: JSONObject = {"type": "tool_result", "tool_use_id": self._wire_id(call)}
        kept = kept_of(result, _NAME)
        sent = self._content(result, kept, extras)
        if result.is_error and not sent:
            extras.append(NO_OUTPUT)
            sent = NO_OUTPUT
        if sent or kept.blank != "absent":
            base["content"] = None if not sent and kept.blank == "null" else sent
        if result.is_error:
            base["is_error"] = True
        return with_kept(base, _other_keys(kept.block))

    # ------------------------------------------------------------ cache marks

    def mark_messages(
        self, messages: list[JSONObject], places: Sequence[CachePlace], request: CacheRequest
    ) -> None:
        """Mark blocks in place; where one cannot be marked, such as `thinking`, mark the one before it."""
        for message in messages:
            if isinstance(message["content"], list):
                _unmark(message["content"])
        for place in places:
            message = messages[place.message]
            blocks = message["content"] = listed(message["content"])
            for block in reversed(blocks[: place.blocks]):
                kind = block["type"]
                if kind in _MARKABLE and (kind != "text" or block["text"].strip()):
                    block["cache_control"] = _mark(request)
                    break

    def mark_head(
        self, system: str | None, tools: list[JSONObject] | None, request: CacheRequest
    ) -> tuple[JSON, list[JSONObject] | None]:
        """Mark the system prompt, before which the provider puts the tools; without one, the last tool."""
        for tool in tools or ():
            tool.pop("cache_control", None)
        if system:
            return [{"type": "text", "text": system, "cache_control": _mark(request)}], tools
        # A tool that is loaded later is in no prefix.
        last = next((tool for tool in reversed(tools or ()) if not tool.get("defer_loading")), None)
        if last is not None:
            last["cache_control"] = _mark(request)
        return system, tools


def _is_compacted(message: JSONObject) -> bool:
    """Return whether a message begins with a compaction."""
    blocks = message["content"]
    return isinstance(blocks, list) and bool(blocks) and is_compaction(_NAME, blocks[0])


def _waits(message: JSONObject) -> bool:
    """Return whether a message of the assistant has a call of the provider's own tool without result."""
    blocks = message["content"] if message["role"] == "assistant" else ""
    if isinstance(blocks, str):
        return False
    answered = {block.get("tool_use_id") for block in blocks}
    rows = ((block, row) for block in blocks if is_half(_NAME, block, row := kind_of(_NAME, block)))
    return any(
        row and row.beside and row.half == "call" and block[row.id] not in answered
        for block, row in rows
    )


def _mark(request: CacheRequest) -> JSONObject:
    return {"type": "ephemeral", "ttl": "1h"} if request.ttl >= _HOUR else {"type": "ephemeral"}


def _unmark(blocks: Sequence[JSON]) -> None:
    """Remove the marks of blocks, also of those in tool results."""
    for block in blocks:
        if isinstance(block, dict):
            block.pop("cache_control", None)
            if isinstance(block.get("content"), list):
                _unmark(block["content"])


# ---------------------------------------------------------------- rendering


def _other_keys(result: Mapping[str, JSON]) -> JSONObject:
    """Return a result's other keys; `is_error` only if it is explicitly false."""
    kept = other_keys(result, _OF_RESULT)
    if kept.get("is_error"):
        del kept["is_error"]
    return kept


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in this provider's form, or None if it has none."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text} if text.strip() else None
        case ImagePart():
            source = _source(part, "image/png")
            return {"type": "image", "source": source} if source else None
        case FilePart():
            source = _source(part, "application/pdf")
            if source is None or source.get("media_type", "application/pdf") != "application/pdf":
                return None
            title = {"title": part.name} if part.name else {}
            return {"type": "document", "source": source, **title}
        case OpaquePart(form) if form == _NAME:
            block = opaque_block(part)
            row = kind_of(_NAME, block) if block else None
            return block if row is not None and not row.plain else None
    return None


def _source(part: ImagePart | FilePart, default: str) -> JSONObject | None:
    """Return the source of an image or document; None if only its provider knows it."""
    if part.url and not part.url.startswith("data:"):
        return {"type": "url", "url": part.url}
    inline = data_of(part, default)
    return inline and {"type": "base64", "media_type": inline[0], "data": inline[1]}


# ---------------------------------------------------------------- parsing


def _parse_blocks(
    role: JSON, blocks: list[JSON], envelope: JSONObject, label: str, names: dict[str, str]
) -> list[NewEntry]:
    readers = {"tool_use": _parse_use, "tool_result": _parse_result}
    spoken = [each for each in blocks if isinstance(each, dict)] if role == "assistant" else []
    compactions = [each for each in spoken if is_compaction(_NAME, each)]
    if compactions:
        others = [each for each in blocks if each not in compactions]
        found = _parse_blocks(role, others, envelope, label, names) if others else []
        made = [compaction_entry(_NAME, each, label) for each in compactions]
        return [*made, *(msgspec.structs.replace(each, message_id=label) for each in found)]
    tools, rest, order = calls.read_tools(_NAME, role, blocks, label, names, readers)
    parts, more = read_parts(rest, _NAME, _known_part, _wire_part)
    if tools and all(part == TextPart("") for part in parts):
        parts = ()
    kept = Kept(parts=more)
    return calls.message_entries(_NAME, role, parts, kept, tools, label, order, message=envelope)


def _parse_use(block: JSONObject, label: str, names: dict[str, str]) -> calls.Tool:
    call = calls.use_entry(block, "id", "tool_use", label, names)
    return call, Kept(block=other_keys(block, _OF_USE))


def _parse_result(block: JSONObject, label: str, names: dict[str, str]) -> calls.Tool:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call_id, str):
        raise FormatError(f"a tool_result needs a tool_use_id: {shape_of(block)}")
    said, more = read_content(content, _NAME, _known_part, _wire_part, "a tool_result's content")
    blank = "" if content is not None else "null" if "content" in block else "absent"
    is_error = bool(block.get("is_error"))
    new_entry = calls.result_entry(said, call_id, names.get(call_id), label, is_error=is_error)
    return new_entry, Kept(block=_other_keys(block), parts=more, blank=blank)


def _known_part(block: JSONObject) -> Part | None:
    source = block.get("source")
    if block["type"] not in ("image", "document") or not isinstance(source, dict):
        return None
    where = {key: source.get(key) for key in ("url", "data", "media_type")}
    if block["type"] == "image":
        return ImagePart(**where)
    return FilePart(name=block.get("title"), **where)
