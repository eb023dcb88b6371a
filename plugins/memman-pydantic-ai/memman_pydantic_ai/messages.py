"""pydantic-ai's messages as `ModelMessagesTypeAdapter` dumps them, without importing pydantic-ai.

A `ModelRequest` has one entry for each part: tool results first, as pydantic-ai itself sends them, then
prompts and feedback. A `ModelResponse` has one entry for its texts, thoughts and other parts, and one for
each tool call. Parts that only pydantic-ai or a provider reads are opaque. Framing is that of OpenAI chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from memman.entries import (
    JSON,
    Content,
    Entry,
    FilePart,
    ImagePart,
    JSONObject,
    NewEntry,
    OpaquePart,
    Part,
    Role,
    TextPart,
    text_of,
)
from memman.errors import FormatError
from memman.formats.parts import (
    NOT_CARRIED,
    data_of,
    interleaved,
    is_unsaid,
    keep_spelled,
    opaque,
    opaque_dict,
    other_keys,
    parts_framing,
    spelled_of,
)
from memman.formats.plain import parse_each
from memman.formats.turns import BEGINS, NO_RESULT, delimited
from memman.protocols import Call, Rendered, Turn

NAME = "pydantic-ai"
MESSAGE_FRAMING = 4
_CALL_FRAMING = 10
# What pydantic-ai writes around feedback that answers no call.
_FEEDBACK = (
    "Your previous response failed the application's validation (this is automated feedback, not a "
    "message from the user):\n<pyai:validation_errors>\n\n</pyai:validation_errors>"
)
_ERROR = '{"error":}'  # around a failed result, for providers without a mark of their own

# The keys that rendering produces; every other key is kept and restored.
_OF_MESSAGE = frozenset(("kind", "parts"))
_OF_CALL = frozenset(("tool_name", "args", "tool_call_id", "part_kind"))
_OF_RESULT = frozenset(("tool_name", "content", "tool_call_id", "part_kind"))
# The kinds of parts by the role of their entries, with the key of their text. An imported entry cannot
# take a kind of another role, nor an opaque part any of these kinds.
_SAID: Mapping[Role, Mapping[str, str]] = {
    "system": {"system-prompt": "content", "instruction-delta": "content"},
    "user": {
        "user-prompt": "content",
        "retry-prompt": "content",
        "retry-feedback": "content",
        "speech": "transcript",
        "compaction": "content",
    },
    "assistant": {"text": "content", "speech": "transcript"},
    "tool": {"tool-return": "content", "retry-prompt": "content"},
}
_PLAIN: Mapping[Role, str] = {
    "system": "system-prompt", "user": "user-prompt", "assistant": "text", "tool": "tool-return",
}  # fmt: skip
_STRUCTURAL = frozenset(
    ("system-prompt", "user-prompt", "text", "tool-call", "tool-return", "retry-prompt")
)
# Parts that the application writes, not the user; no model answers them.
_STATE = ("-delta", "-baseline")
_FAILED = ("failed", "retried")
_TEXT_ITEMS = ("text-content", "structured-content")
_LINKS = ("document-url", "audio-url", "video-url")
_NO_REST: JSONObject = {}


class PydanticAIFormat:
    """`{"kind": "request" | "response", "parts": [{"part_kind": ...}]}`, and back."""

    name = NAME
    request_framing = 3
    message_framing = MESSAGE_FRAMING
    joins = True
    edges: tuple[str, ...] = (BEGINS,)
    inline_system = True
    takes_cache_key = True  # OpenAI's models do

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for messages whose parts have kinds; no other format has them."""
        return 6 if messages and all(map(_is_message, messages)) else 0

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return the entries of the messages, at least one for each; nothing in a message is lost."""
        names: dict[str, str] = {}
        return parse_each(messages, lambda message, label: _parse_message(message, label, names))

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn; the results of calls directly follow their response."""
        if turn.kind == "assistant":
            return _render_response(turn)
        if turn.kind in ("user", "system"):
            return _render_said(turn.entries[0])
        text, extras = delimited(turn)
        return Rendered((_prompt(text),), MESSAGE_FRAMING, extras)

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Join a request with further parts of the same one, which have no keys of a message."""
        if left["kind"] != "request" or right["kind"] != "request" or len(right) > len(_OF_MESSAGE):
            return None
        return {**left, "parts": [*left["parts"], *right["parts"]]}

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin the conversation with a request: some providers refuse a response there.

        A history may end with a response: the next prompt of a run follows it.
        """
        head = next((n for n, each in enumerate(messages) if not _is_system(each)), len(messages))
        if messages[head:] and messages[head]["kind"] == "response":
            return [*messages[:head], _prompt(BEGINS), *messages[head:]]
        return messages


def _is_message(message: JSON) -> bool:
    if not isinstance(message, dict) or message.get("kind") not in ("request", "response"):
        return False
    parts = message.get("parts")
    return isinstance(parts, list) and all(
        isinstance(part, dict) and isinstance(part.get("part_kind"), str) for part in parts
    )


def _is_system(message: JSONObject) -> bool:
    return {"system-prompt"} == {part["part_kind"] for part in message["parts"]}


def _prompt(text: str) -> JSONObject:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


# ---------------------------------------------------------------- kept keys


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of a message that its entries do not have.

    Args:
        message: those of the message, on its first entry.
        part: those of the entry's own part.
        items: those of a content's items by their index.
        style: another spelling of the content: "json" (a value), "object", "null", "one" (an item without a
            list), or "none" for a request without parts.
        order: how texts ("t") and calls ("u") alternated in a response.
    """

    message: JSONObject = {}
    part: JSONObject = {}
    items: dict[str, JSONObject] = {}
    style: str = ""
    order: str = ""


_NOTHING = _Kept()


def _kept_of(entry: Entry) -> _Kept:
    return spelled_of(entry, NAME, _NOTHING)


def _part_of(role: Role, kept: _Kept) -> tuple[str, str]:
    """Return the kind of an entry's part and the key of its text."""
    kind = kept.part.get("part_kind")
    kinds = _SAID[role]
    if not isinstance(kind, str) or kind not in kinds:
        kind = _PLAIN[role]
    return kind, kinds[kind]


# ---------------------------------------------------------------- rendering


def _render_said(entry: Entry) -> Rendered:
    """Return the request of a user's or system entry."""
    kept = _kept_of(entry)
    extras: list[str] = []
    content = entry.content
    parts: list[JSONObject] = []
    if kept.style != "none" or content:
        block = _opaque_part(content)
        parts = [block] if block else [_wire_part(entry, kept, extras)]
    if parts and parts[0]["part_kind"] in ("retry-feedback", "retry-prompt"):
        extras.append(_FEEDBACK)
    request = {"kind": "request", "parts": parts, **other_keys(kept.message, _OF_MESSAGE)}
    return Rendered((request,), MESSAGE_FRAMING + parts_framing(content), tuple(extras))


def _opaque_part(content: Content) -> JSONObject | None:
    """Return the part of a request that only pydantic-ai reads."""
    if isinstance(content, str) or len(content) != 1 or not isinstance(content[0], OpaquePart):
        return None
    return _wire_block(content[0], "part_kind")


def _wire_block(part: OpaquePart, key: str) -> JSONObject | None:
    """Return an opaque part with its kind under `key`, or None if it is not one of this format."""
    block = opaque_dict(part) if part.format == NAME else {}
    kind = block.pop("type", None)
    if not isinstance(kind, str) or kind in _STRUCTURAL:
        return None
    if kind == "thinking":
        block["content"] = block.pop("thinking", "")
    return {**block, key: kind}


def _wire_part(entry: Entry, kept: _Kept, extras: list[str]) -> JSONObject:
    """Return the part of a user's, system or tool entry."""
    role: Role = entry.role
    kind, key = _part_of(role, kept)
    content: JSON = entry.content
    if isinstance(content, str):
        content = _respelled(content, kept.style)
    elif kind in ("user-prompt", "tool-return"):
        content = _wire_items(content, kept, extras)
    else:
        content = text_of(content)
    return {**kept.part, "part_kind": kind, key: content}


def _respelled(text: str, style: str) -> JSON:
    """Return a text as the value that it was."""
    if style == "null" and not text:
        return None
    if style not in ("json", "object"):
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return value if style == "json" or isinstance(value, dict) else text


def _render_response(turn: Turn) -> Rendered:
    calls = turn.calls
    first = turn.entries[0] if turn.entries else calls[0].entry
    kept = _kept_of(first)
    extras: list[str] = []
    said: list[JSONObject | None] = []
    for entry in turn.entries:
        said += _said_parts(entry, kept if entry is first else _kept_of(entry), extras)
    parts = interleaved(kept.order, said, [_wire_call(call) for call in calls])
    if not parts and not kept.message:
        return Rendered((), 0)
    response = {"kind": "response", "parts": parts, **other_keys(kept.message, _OF_MESSAGE)}
    results = [_wire_result(call, extras) for call in turn.answers]
    framing = MESSAGE_FRAMING + sum(1 + parts_framing(entry.content) for entry in turn.entries)
    framing += (MESSAGE_FRAMING + _CALL_FRAMING) * len(calls)
    return Rendered((response, *results), framing, tuple(extras))


def _said_parts(entry: Entry, kept: _Kept, extras: list[str]) -> list[JSONObject | None]:
    """Return the texts and other parts of a response without its calls."""
    content = entry.content
    if isinstance(content, str):
        return [{"part_kind": "text", "content": content}] if content else []
    found: list[JSONObject | None] = []
    for index, part in enumerate(content):
        rest = kept.items.get(str(index), _NO_REST)
        wired = _said_part(part, rest)
        if wired is None and is_unsaid(part) and NOT_CARRIED not in extras:
            extras.append(NOT_CARRIED)
            wired = {"part_kind": "text", "content": NOT_CARRIED}
        found.append(wired)
    return found


def _said_part(part: Part, rest: JSONObject) -> JSONObject | None:
    """Return a part of a response, or None if a response cannot have it."""
    if isinstance(part, OpaquePart):
        return _wire_block(part, "part_kind")
    if isinstance(part, TextPart):
        kind, key = _part_of("assistant", _Kept(part=rest))
        return {**rest, "part_kind": kind, key: part.text}
    inside = rest.get("content")
    item = _wire_item(part, inside if isinstance(inside, dict) else _NO_REST)
    if not isinstance(item, dict) or item["kind"] != "binary":
        return None
    return {**rest, "part_kind": "file", "content": item}


def _wire_call(call: Call) -> JSONObject:
    entry = call.entry
    kept = _kept_of(entry)
    args = _respelled(entry.text, kept.style)
    ours = {"tool_name": entry.name or "tool", "args": args, "tool_call_id": call.unique_id}
    return {**other_keys(kept.part, _OF_CALL), **ours, "part_kind": "tool-call"}


def _wire_result(call: Call, extras: list[str]) -> JSONObject:
    result = call.result
    ours = {"tool_name": call.entry.name or "tool", "tool_call_id": call.unique_id}
    if result is None:
        extras += [NO_RESULT, ours["tool_name"]]
        part = {**ours, "part_kind": "tool-return", "content": NO_RESULT, "outcome": "interrupted"}
        return {"kind": "request", "parts": [part]}
    kept = _kept_of(result)
    part = {**_wire_part(result, kept, extras), **ours}
    if (part.get("outcome") in _FAILED) != result.is_error and part["part_kind"] == "tool-return":
        part["outcome"] = "failed" if result.is_error else "success"
    extras += [_ERROR] if result.is_error else []
    return {"kind": "request", "parts": [part], **other_keys(kept.message, _OF_MESSAGE)}


def _wire_items(content: tuple[Part, ...], kept: _Kept, extras: list[str]) -> JSON:
    """Return the items of a prompt's or a result's content."""
    found: list[JSON] = []
    for index, part in enumerate(content):
        item = _wire_item(part, kept.items.get(str(index), _NO_REST))
        if item is None and is_unsaid(part) and NOT_CARRIED not in extras:
            extras.append(NOT_CARRIED)
            item = NOT_CARRIED
        if item is not None:
            found.append(item)
    return found[0] if kept.style == "one" and len(found) == 1 else found


def _wire_item(part: Part, rest: JSONObject) -> JSON:
    """Return an item of a content, or None if pydantic-ai has none of its kind."""
    match part:
        case TextPart(text):
            kind = rest.get("kind")
            if kind in _TEXT_ITEMS:
                return {**rest, "content": text}
            if kind == "cache-point" and not text:
                return dict(rest)
            return _respelled(text, "json" if kind == "json" else "")
        case ImagePart() | FilePart():
            default = "image/png" if isinstance(part, ImagePart) else "application/pdf"
            inline = data_of(part, default)
            if inline is not None:
                return {**rest, "kind": "binary", "media_type": inline[0], "data": inline[1]}
            if isinstance(part, ImagePart):
                return {**rest, "kind": "image-url", "url": part.url} if part.url else None
            if part.url:
                kind = rest["kind"] if rest.get("kind") in _LINKS else "document-url"
                return {**rest, "kind": kind, "url": part.url}
            known = part.file_id and rest.get("kind") == "uploaded-file"
            return {**rest, "file_id": part.file_id} if known else None
        case OpaquePart():
            return _wire_block(part, "kind")


# ---------------------------------------------------------------- parsing


def _parse_message(message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
    """Return the entries of one message; `label` takes the place of a message id until one is made."""
    if not _is_message(message):
        raise FormatError(
            f"this is not a message of pydantic-ai ({_shape(message)}): it needs a 'kind' of request or "
            "response, and 'parts' with a 'part_kind' each, as ModelMessagesTypeAdapter dumps them"
        )
    parts = message["parts"]
    if message["kind"] == "response":
        found = _parse_response(parts, names)
    else:
        ordered = sorted(parts, key=lambda part: not _is_result(part))
        found = [_parse_part(part, names) for part in ordered]
        found = found or [(_said("user", ""), _Kept(style="none"))]
    new_entry, kept = found[0]
    envelope = other_keys(message, _OF_MESSAGE)
    found[0] = new_entry, msgspec.structs.replace(kept, message=envelope)
    one = label if len(found) > 1 else None
    return [
        msgspec.structs.replace(keep_spelled(new_entry, NAME, kept), message_id=one)
        for new_entry, kept in found
    ]


def _said(role: Role, content: Content) -> NewEntry:
    return NewEntry(type="message", role=role, content=content)


def _is_result(part: JSONObject) -> bool:
    kind = part["part_kind"]
    return kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name") is not None)


def _parse_part(part: JSONObject, names: Mapping[str, str]) -> tuple[NewEntry, _Kept]:
    """Return the entry of a part of a request."""
    if _is_result(part):
        return _parse_result(part, names)
    kind = part["part_kind"]
    role: Role = "system" if kind in _SAID["system"] or kind.endswith(_STATE) else "user"
    key = _SAID[role].get(kind, "")
    content = part.get(key)
    rest = other_keys(part, frozenset((key,)))
    if rest == {"part_kind": _PLAIN[role]}:
        rest = {}
    if isinstance(content, str):
        return _said(role, content), _Kept(part=rest)
    if isinstance(content, list) and kind == "user-prompt":
        items, kept = _read_items(content)
        return _said(role, items), msgspec.structs.replace(kept, part=rest)
    if isinstance(content, list) and kind.startswith("retry-"):
        return _said(role, _as_json(content)), _Kept(part=rest, style="json")
    if kind in _STRUCTURAL:
        raise FormatError(f"the 'content' of a {kind} must be text, not {_shape(content)}")
    return _said(role, (_opaque(part, "part_kind"),)), _NOTHING


def _parse_result(part: JSONObject, names: Mapping[str, str]) -> tuple[NewEntry, _Kept]:
    call_id, name, content = part.get("tool_call_id"), part.get("tool_name"), part.get("content")
    if not isinstance(call_id, str) or not isinstance(name, str | None):
        raise FormatError(
            f"a {part['part_kind']} needs a tool_call_id and a tool_name: {_shape(part)}"
        )
    items = content if isinstance(content, list) else [content]
    kept = _NOTHING
    found: Content
    if any(map(_is_file, items)):
        found, kept = _read_items(items)
        style = "" if isinstance(content, list) else "one"
    elif isinstance(content, str):
        found, style = content, ""
    else:
        found, style = ("", "null") if content is None else (_as_json(content), "json")
    failed = part["part_kind"] == "retry-prompt" or part.get("outcome") in _FAILED
    new_entry = NewEntry(type="tool_result", role="tool", content=found, call_id=call_id or None,
                         name=name or names.get(call_id), is_error=failed)  # fmt: skip
    rest = {"part_kind": part["part_kind"], **other_keys(part, _OF_RESULT)}
    return new_entry, msgspec.structs.replace(kept, part=rest, style=style)


def _parse_response(
    parts: Sequence[JSONObject], names: dict[str, str]
) -> list[tuple[NewEntry, _Kept]]:
    calls: list[tuple[NewEntry, _Kept]] = []
    said: list[Part] = []
    rests: dict[str, JSONObject] = {}
    order = ""
    for part in parts:
        if part["part_kind"] == "tool-call":
            calls.append(_parse_call(part, names))
            order += "u"
            continue
        found, rest = _read_said(part)
        if rest:
            rests[str(len(said))] = rest
        said.append(found)
        order += "t"
    if calls and not said:
        return calls
    plain = len(said) == 1 and not rests and isinstance(said[0], TextPart) and said[0].text
    content: Content = plain if isinstance(plain, str) else tuple(said) or ""
    mixed = order if "ut" in order else ""
    return [(_said("assistant", content), _Kept(items=rests, order=mixed)), *calls]


def _read_said(part: JSONObject) -> tuple[Part, JSONObject]:
    """Return a part of a response and its other keys."""
    kind = part["part_kind"]
    key = _SAID["assistant"].get(kind, "")
    text = part.get(key)
    if isinstance(text, str):
        rest = other_keys(part, frozenset((key,)))
        return TextPart(text), {} if rest == {"part_kind": "text"} else rest
    if kind == "text":
        raise FormatError(f"the 'content' of a text must be text, not {_shape(text)}")
    if kind == "file" and _is_file(part.get("content")):
        found, inside = _read_item(part["content"])
        if not isinstance(found, OpaquePart):
            return found, {**part, "content": inside}
    return _opaque(part, "part_kind"), {}


def _parse_call(part: JSONObject, names: dict[str, str]) -> tuple[NewEntry, _Kept]:
    call_id, name, args = part.get("tool_call_id"), part.get("tool_name"), part.get("args")
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise FormatError(f"a tool-call needs a tool_call_id and a tool_name: {_shape(part)}")
    if not isinstance(args, str | dict | None):
        raise FormatError(f"the args of a tool-call must be text or a dict, not {_shape(args)}")
    names[call_id] = name
    style = "" if isinstance(args, str) else "null" if args is None else "object"
    new_entry = NewEntry(
        type="tool_call",
        role="assistant",
        content=args if isinstance(args, str) else _as_json(args) if args is not None else "",
        call_id=call_id or None,
        name=name,
    )
    return new_entry, _Kept(part=other_keys(part, _OF_CALL), style=style)


def _read_items(items: Iterable[JSON]) -> tuple[Content, _Kept]:
    """Return the parts of a content and the other keys of its items."""
    parts: list[Part] = []
    rests: dict[str, JSONObject] = {}
    for item in items:
        part, rest = _read_item(item)
        if rest:
            rests[str(len(parts))] = rest
        parts.append(part)
    return tuple(parts), _Kept(items=rests)


def _is_file(item: JSON) -> bool:
    """Return True for an item that is no text, as pydantic-ai dumps it."""
    kinds = ("binary", "image-url", "uploaded-file", *_LINKS)
    return isinstance(item, dict) and item.get("kind") in kinds


def _read_item(item: JSON) -> tuple[Part, JSONObject]:
    """Return an item of a prompt's or a result's content, and its other keys."""
    if isinstance(item, str):
        return TextPart(item), {}
    kind = item.get("kind") if isinstance(item, dict) else None
    if kind in _TEXT_ITEMS and isinstance(item.get("content"), str):
        return TextPart(item["content"]), other_keys(item, frozenset(("content",)))
    if kind == "cache-point":
        return TextPart(""), item
    part = _file_part(item) if _is_file(item) else None
    if part is not None:
        ours = frozenset(("url", "data", "file_id"))
        rest = other_keys(item, ours)
        if {**rest, **(_wire_item(part, rest) or {})} == item:
            return part, rest
    if isinstance(kind, str) and kind not in _STRUCTURAL:
        return _opaque(item, "kind"), {}
    return TextPart(_as_json(item)), {"kind": "json"}


def _file_part(item: JSONObject) -> Part | None:
    """Return an item of a content as an image or a file, or None if its values are not texts."""
    media_type = item.get("media_type")
    where = {key: item[key] for key in ("url", "data", "file_id") if key in item}
    vendor = item.get("vendor_metadata")
    detail = vendor.get("detail") if isinstance(vendor, dict) else None
    if not all(isinstance(value, str) for value in (*where.values(), media_type or "")):
        return None
    if item["kind"] == "image-url" or (str(media_type).startswith("image/") and "data" in where):
        shown = detail if isinstance(detail, str) else None
        return ImagePart(media_type=media_type, detail=shown, **where)
    return FilePart(media_type=media_type, **where)


def _opaque(part: JSONObject, key: str) -> OpaquePart:
    """Return a part as an opaque block with its kind as its type, thoughts as formats name them."""
    block = {"type": part[key], **other_keys(part, frozenset((key,)))}
    if block["type"] == "thinking" and "content" in block:
        block["thinking"] = block.pop("content")
    return opaque(NAME, block)


def _as_json(value: JSON) -> str:
    """Return a value as JSON, as compact as pydantic-ai sends it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shape(value: JSON) -> str:
    """Return a value's type and keys, for errors, which must not repeat what a user wrote."""
    keys = ", ".join(map(repr, list(value)[:8])) if isinstance(value, dict) else ""
    return f"a {type(value).__name__}" + (f" with {keys}" if keys else "")
