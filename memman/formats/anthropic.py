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
    encode_json,
)
from memman.errors import FormatError
from memman.formats.parts import (
    Kept,
    arguments_of,
    is_typed,
    keeping,
    kept_of,
    opaque_block,
    other_keys,
    parts_framing,
    present,
    read_parts,
    wire_parts,
    with_kept,
)
from memman.formats.plain import parse_each
from memman.formats.turns import (
    BEGINS,
    GOES_ON,
    NO_OUTPUT,
    NO_RESULT,
    NOTHING,
    delimited,
    framed,
    system_note,
)
from memman.protocols import CachePlace, CacheRequest, Call, Rendered, Turn

_NAME = "anthropic"
_MESSAGE_FRAMING = 6
_BLOCK_FRAMING = 12
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_GOOD_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_ODD_ARGUMENTS = "memman_arguments"

# The keys that rendering produces; every other key is kept and restored.
_OF_MESSAGE = frozenset(("role", "content"))
_OF_USE = frozenset(("type", "id", "name", "input"))
_OF_RESULT = frozenset(("type", "tool_use_id", "content"))
_OURS = ("text", "tool_use", "tool_result")
_MARKABLE = frozenset(("text", "image", "document", "search_result", "tool_use", "tool_result"))
_HOUR = 3_600.0  # seconds; the provider has caches of five minutes and of an hour


class AnthropicFormat:
    """`{"role": "user" | "assistant", "content": ...}` with a separate system prompt, and back."""

    name = _NAME
    request_framing = 4
    message_framing = _MESSAGE_FRAMING
    joins = True
    edges: tuple[str, ...] = (BEGINS, GOES_ON)
    inline_system = False

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
        kinds = {
            str(block.get("type"))
            for item in messages
            if isinstance(item.get("content"), list)
            for block in item["content"]
            if isinstance(block, dict)
        }
        if any("tool_calls" in item for item in messages) or "image_url" in kinds:
            return 0
        if kinds & {
            "tool_use",
            "tool_result",
            "thinking",
            "redacted_thinking",
            "image",
            "document",
        }:
            return 4
        return 2 if any(item.get("type") == "message" for item in messages) else 1

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for a message's text and other parts, one for each tool use and result."""
        names: dict[str, str] = {}
        return parse_each(messages, lambda message, label: _parse_message(message, label, names))

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn without blank texts, which the provider rejects."""
        if turn.kind == "assistant":
            return _render_assistant(turn)
        entry = turn.entries[0]
        if turn.kind == "user":
            return _render_user(entry)
        if turn.kind == "system":
            return system_note(entry, _MESSAGE_FRAMING, _of_user)
        text, extras = delimited(turn)
        return Rendered((_of_user(text),), _MESSAGE_FRAMING, extras)

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Join adjacent messages of one role: results first, as the provider requires."""
        if left["role"] != right["role"]:
            return None
        joined = _listed(left["content"]) + _listed(right["content"])
        return {**with_kept(left, right), "content": joined}

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin and end the conversation with the user: the newest models reject a prefilled end."""
        return framed(messages, "assistant", _of_user)

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
            blocks = message["content"] = _listed(message["content"])
            for block in reversed(blocks[: place.blocks]):
                if _is_markable(block):
                    block["cache_control"] = _mark(request)
                    break

    def mark_head(
        self, system: str | None, tools: list[JSONObject] | None, request: CacheRequest
    ) -> tuple[JSON, list[JSONObject] | None]:
        """Mark the system prompt, before which the provider puts the tools; without one, the last tool."""
        for tool in tools or ():
            tool.pop("cache_control", None)
        if system:
            block = {"type": "text", "text": system, "cache_control": _mark(request)}
            return [block], tools
        # A tool that is loaded later is in no prefix.
        last = next((tool for tool in reversed(tools or ()) if not tool.get("defer_loading")), None)
        if last is not None:
            last["cache_control"] = _mark(request)
        return system, tools


def _mark(request: CacheRequest) -> JSONObject:
    return {"type": "ephemeral", "ttl": "1h"} if request.ttl >= _HOUR else {"type": "ephemeral"}


def _unmark(blocks: Sequence[JSON]) -> None:
    """Remove the marks of blocks, also of those in tool results."""
    for block in blocks:
        if isinstance(block, dict):
            block.pop("cache_control", None)
            if isinstance(block.get("content"), list):
                _unmark(block["content"])


def _is_markable(block: JSONObject) -> bool:
    return block["type"] in _MARKABLE and (block["type"] != "text" or bool(block["text"].strip()))


def _of_user(text: str) -> JSONObject:
    return {"role": "user", "content": text}


# ---------------------------------------------------------------- rendering


def _render_user(entry: Entry) -> Rendered:
    kept = kept_of(entry, _NAME)
    extras: list[str] = []
    content = entry.content
    sent = content if isinstance(content, str) else present(_blocks(entry, kept, extras))
    if not sent or (isinstance(sent, str) and not sent.strip()):
        return NOTHING
    message = with_kept({"role": "user", "content": sent}, kept.message)
    return Rendered((message,), _MESSAGE_FRAMING + parts_framing(content), tuple(extras))


def _render_assistant(turn: Turn) -> Rendered:
    extras: list[str] = []
    uses = [_wire_use(call, extras) for call in turn.calls]
    first = turn.entries[0] if turn.entries else turn.calls[0].entry
    kept = kept_of(first, _NAME)
    content = _assistant_content(turn, uses, kept, extras)
    if not content:
        return NOTHING
    message = with_kept({"role": "assistant", "content": content}, kept.message)
    framing = _MESSAGE_FRAMING + sum(1 + parts_framing(entry.content) for entry in turn.entries)
    if not uses:
        return Rendered((message,), framing, tuple(extras))
    framing += _MESSAGE_FRAMING + 2 * _BLOCK_FRAMING * len(uses)
    results = _results_message(turn.answers, extras)
    return Rendered((message, results), framing, tuple(extras))


def _assistant_content(
    turn: Turn, uses: list[JSONObject], kept: Kept, extras: list[str]
) -> str | list[JSONObject]:
    """Return texts before tool uses, or in their original order."""
    if len(turn.entries) == 1:
        [entry] = turn.entries
        if isinstance(entry.content, str) and not uses:
            return entry.content if entry.content.strip() else ""
        blocks = _blocks(entry, kept, extras)
        order = kept.order
        if order.count("t") == len(blocks) and order.count("u") == len(uses):
            texts, calls = iter(blocks), iter(uses)
            return present([next(texts if kind == "t" else calls, None) for kind in order])
        return present(blocks) + uses
    found = [present(_blocks(entry, kept_of(entry, _NAME), extras)) for entry in turn.entries]
    return [block for blocks in found for block in blocks] + uses


def _results_message(calls: Sequence[Call], extras: list[str]) -> JSONObject:
    message: JSONObject = {
        "role": "user",
        "content": [_wire_result(call, extras) for call in calls],
    }
    for call in calls:
        if call.result is not None:
            message = with_kept(message, kept_of(call.result, _NAME).message)
    return message


def _wire_use(call: Call, extras: list[str]) -> JSONObject:
    entry = call.entry
    arguments = arguments_of(entry)
    if not isinstance(arguments, dict):
        extras.append(_ODD_ARGUMENTS)
        arguments = {_ODD_ARGUMENTS: entry.text} if entry.text else {}
    base = {
        "type": "tool_use",
        "id": _wire_id(call),
        "name": _BAD_NAME.sub("_", entry.name or "")[:128] or "tool",
        "input": arguments,
    }
    return with_kept(base, kept_of(entry, _NAME).block)


def _wire_id(call: Call) -> str:
    """Return the call's id in the provider's alphabet, still unique within the request."""
    if _GOOD_ID.match(call.unique_id):
        return call.unique_id
    return f"{_BAD_NAME.sub('_', call.unique_id)[:40]}--{call.entry.seq}"


def _wire_result(call: Call, extras: list[str]) -> JSONObject:
    base: JSONObject = {"type": "tool_result", "tool_use_id": _wire_id(call)}
    result = call.result
    if result is None:
        extras.append(NO_RESULT)
        return {**base, "content": NO_RESULT}
    kept = kept_of(result, _NAME)
    content = result.content
    sent = content if isinstance(content, str) else present(_blocks(result, kept, extras))
    if result.is_error and not sent:
        extras.append(NO_OUTPUT)
        sent = NO_OUTPUT
    if sent or kept.blank != "absent":
        base["content"] = None if not sent and kept.blank == "null" else sent
    if result.is_error:
        base["is_error"] = True
    return with_kept(base, _other_keys(kept.block))


def _other_keys(result: Mapping[str, JSON]) -> JSONObject:
    """Return a result's other keys; `is_error` only if it is explicitly false."""
    kept = other_keys(result, _OF_RESULT)
    if kept.get("is_error"):
        del kept["is_error"]
    return kept


def _blocks(entry: Entry, kept: Kept, extras: list[str]) -> list[JSONObject | None]:
    """Return the blocks of an entry's content, None for parts that are left out."""
    content = entry.content
    if isinstance(content, str):
        return [{"type": "text", "text": content} if content.strip() else None]
    return wire_parts(content, kept, _wire_part, extras)


def _listed(content: JSON) -> list[JSONObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in this provider's form, or None if it has none."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text} if text.strip() else None
        case ImagePart():
            source = _source(part.url, part.data, part.media_type or "image/png")
            return {"type": "image", "source": source} if source else None
        case FilePart():
            source = _source(part.url, part.data, part.media_type or "application/pdf")
            if source is None or source.get("media_type", "application/pdf") != "application/pdf":
                return None
            title = {"title": part.name} if part.name else {}
            return {"type": "document", "source": source, **title}
        case OpaquePart(form) if form == _NAME:
            block = opaque_block(part)
            return block if block and block["type"] not in _OURS else None
    return None


def _source(url: str | None, data: str | None, media_type: str) -> JSONObject | None:
    """Return the source of an image or document; None if only its provider knows it."""
    inline = next((given for given in (url, data) if given and given.startswith("data:")), None)
    if inline is not None:
        head, _, data = inline.partition(",")
        url, media_type = None, head.removeprefix("data:").partition(";")[0] or media_type
    if url:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": media_type, "data": data} if data else None


# ---------------------------------------------------------------- parsing


def _parse_message(message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
    """Return the entries of one message; `label` takes the place of a message id until one is made."""
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
    new_entry = NewEntry(type="message", role=role, content=content)
    return [keeping(new_entry, _NAME, Kept(message=envelope))]


def _parse_blocks(
    role: JSON, blocks: list[JSON], envelope: JSONObject, label: str, names: dict[str, str]
) -> list[NewEntry]:
    tools: list[tuple[NewEntry, Kept]] = []
    rest: list[JSON] = []
    order = ""
    for block in blocks:
        kind = block["type"] if is_typed(block) else None
        if kind == "tool_use":
            tools.append(_parse_use(block, label, names))
            order += "u"
        elif kind == "tool_result":
            tools.append(_parse_result(block, label, names))
        else:
            rest.append(block)
            order += "t"
    parts, more = read_parts(rest, _NAME, _known_part, _wire_part)
    own = NewEntry(type="message", role=role, content=parts, message_id=label if tools else None)
    speaks = not tools or any(part != TextPart("") for part in parts)
    texts = [(own, Kept(parts=more))] if speaks else []
    # The order in which such a message is rendered: results first, or text before uses.
    found = texts + tools if role == "assistant" else tools + texts
    mixed = order if role == "assistant" and speaks and "ut" in order else ""
    new_entry, kept = found[0]
    found[0] = new_entry, msgspec.structs.replace(kept, message=envelope, order=mixed)
    return [keeping(new_entry, _NAME, kept) for new_entry, kept in found]


def _parse_use(block: JSONObject, label: str, names: dict[str, str]) -> tuple[NewEntry, Kept]:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise FormatError(f"a tool_use block needs an id and a name: {shape_of(block)}")
    names[call_id] = name
    given = block.get("input")
    new_entry = NewEntry(
        type="tool_call",
        role="assistant",
        content=given if isinstance(given, str) else _encoded(given),
        call_id=call_id or None,
        name=name,
        message_id=label,
    )
    return new_entry, Kept(block=other_keys(block, _OF_USE))


def _encoded(arguments: JSON) -> str:
    return bytes(encode_json(arguments, "the input of a tool_use")).decode() or "{}"


def _parse_result(block: JSONObject, label: str, names: dict[str, str]) -> tuple[NewEntry, Kept]:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call_id, str):
        raise FormatError(f"a tool_result needs a tool_use_id: {shape_of(block)}")
    if not isinstance(content, str | list | None):
        kind = type(content).__name__
        raise FormatError(f"a tool_result's content must be text or blocks, not {kind}")
    more: dict[str, JSONObject] = {}
    blank = "" if content is not None else "null" if "content" in block else "absent"
    if isinstance(content, list):
        parts, more = read_parts(content, _NAME, _known_part, _wire_part)
    new_entry = NewEntry(
        type="tool_result",
        role="tool",
        content=parts if isinstance(content, list) else content or "",
        call_id=call_id or None,
        name=names.get(call_id),
        message_id=label,
        is_error=bool(block.get("is_error")),
    )
    return new_entry, Kept(block=_other_keys(block), parts=more, blank=blank)


def _known_part(block: JSONObject) -> Part | None:
    source = block.get("source")
    if block["type"] not in ("image", "document") or not isinstance(source, dict):
        return None
    where = {key: source.get(key) for key in ("url", "data", "media_type")}
    if block["type"] == "image":
        return ImagePart(**where)
    return FilePart(name=block.get("title"), **where)
