"""LlamaIndex's `ChatMessage` as pydantic dumps it, without importing LlamaIndex.

A message has one entry for its texts and other blocks, and one for each tool call. Calls are blocks, or
are in `additional_kwargs["tool_calls"]` alone, or in both, as OpenAI's models of LlamaIndex have them.
Framing is that of OpenAI chat.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from memman.display import safe_repr, shape_of
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
)
from memman.errors import FormatError
from memman.formats.parts import (
    NOT_CARRIED,
    arguments_of,
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
from memman.formats.turns import BEGINS, NO_RESULT, NOTHING, delimited
from memman.protocols import CachePlace, CacheRequest, Call, Rendered, Turn

NAME: Final = "llama-index"
_MESSAGE_FRAMING: Final = 4
_CALL_FRAMING: Final = 10
_HOUR: Final = 3_600  # seconds
_ROLES: Final[Mapping[str, Role]] = {
    "user": "user", "system": "system", "developer": "system", "assistant": "assistant",
    "chatbot": "assistant", "model": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
# The names of keys in opaque blocks, as memman knows them in other formats.
_RENAMED: Final = {"thinking": ("content", "thinking"), "cache": ("cache_control", "cachePoint")}
_MARKABLE: Final = ("text", "image", "document", "tool_call")
# The spellings of a call in `additional_kwargs`: the keys of its id, its name and its arguments.
_SPELLINGS: Final = {
    "function": ("id", "name", "arguments"),  # OpenAI's: name and arguments are one level down
    "selection": ("tool_id", "tool_name", "tool_kwargs"),
    "block": ("tool_call_id", "tool_name", "tool_kwargs"),
    "responses": ("call_id", "name", "arguments"),
    "converse": ("toolUseId", "name", "input"),
    "anthropic": ("id", "name", "input"),
    "gemini": ("id", "name", "args"),
}
# The keys that rendering produces; every other key is kept and restored.
_OF_MESSAGE: Final = frozenset(("role", "blocks", "additional_kwargs"))
_OF_CALL: Final = frozenset(("block_type", "tool_call_id", "tool_name", "tool_kwargs"))
_CALLS: Final = frozenset(("tool_calls",))
_NO_KEYS: Final[JSONObject] = {}


class LlamaIndexFormat:
    """`{"role": ..., "blocks": [{"block_type": ...}], "additional_kwargs": {...}}`, and back."""

    name = NAME
    request_framing = 3
    message_framing = _MESSAGE_FRAMING
    joins = False
    edges: tuple[str, ...] = (BEGINS,)
    inline_system = True

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for messages with blocks that have types."""
        return 6 if messages and all(map(is_message, messages)) else 0

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for a message's blocks and one for each call; nothing in a message is lost."""
        names: dict[str, str] = {}
        return parse_each(messages, lambda message, label: _parse_message(message, label, names))

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn; results directly follow the message with their calls."""
        if turn.kind == "assistant":
            message = _assistant_message(turn, extras := list[str]())
            if not message["blocks"] and not turn.calls:
                return NOTHING  # some providers refuse it
            results = [_result_message(call, extras) for call in turn.answers]
            framing = _MESSAGE_FRAMING + sum(parts_framing(each.content) for each in turn.entries)
            framing += (_MESSAGE_FRAMING + _CALL_FRAMING) * len(turn.calls)
            return Rendered((message, *results), framing, tuple(extras))
        if turn.kind in ("user", "system"):
            message = _said_message(turn.kind, turn.entries[0], extras := [])
            framing = _MESSAGE_FRAMING + parts_framing(turn.entries[0].content)
            return Rendered((message,), framing, tuple(extras))
        text, marks = delimited(turn)
        return Rendered((_message("user", [_text_block(text)]),), _MESSAGE_FRAMING, marks)

    def restore(self, turn: Turn) -> list[JSONObject] | None:
        """Return an assistant's message as it was added, also without a block."""
        return [_assistant_message(turn, [])] if turn.kind == "assistant" else None

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Return None: adjacent messages of one role are valid."""
        return None

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Begin the conversation with the user: some providers refuse an assistant there."""
        head = next((n for n, each in enumerate(messages) if _role_of(each) != "system"), None)
        if head is None or _role_of(messages[head]) != "assistant":
            return messages
        return [*messages[:head], _message("user", [_text_block(BEGINS)]), *messages[head:]]

    # ------------------------------------------------------------ cache points

    def mark_messages(
        self, messages: list[JSONObject], places: Sequence[CachePlace], request: CacheRequest
    ) -> None:
        """Put a `CachePoint` behind the last block of each place that a provider can cache."""
        for message in messages:
            blocks = message["blocks"]
            message["blocks"] = [block for block in blocks if block["block_type"] != "cache"]
        control = {"type": "ephemeral", "ttl": "1h" if request.ttl >= _HOUR else "5m"}
        for place in places:
            blocks = messages[place.message]["blocks"]
            ends = [n for n, block in enumerate(blocks, 1) if block["block_type"] in _MARKABLE]
            if ends:
                blocks.insert(ends[-1], {"block_type": "cache", "cache_control": control})

    def mark_head(
        self, system: str | None, tools: list[JSONObject] | None, request: CacheRequest
    ) -> tuple[JSON, list[JSONObject] | None]:
        """Return both without a mark: LlamaIndex has none for them, and one in a message keeps them."""
        return system, tools


def is_message(message: JSON) -> bool:
    """Return whether a value is a message of LlamaIndex."""
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        return False
    blocks, more = message.get("blocks"), message.get("additional_kwargs", {})
    return (
        isinstance(blocks, list)
        and isinstance(more, dict)
        and all(isinstance(block, dict) and _kind(block) for block in blocks)
    )


def _kind(block: JSONObject) -> str:
    kind = block.get("block_type")
    return kind if isinstance(kind, str) else ""


def _role_of(message: JSONObject) -> Role:
    return _ROLES[message["role"]]


def _message(role: str, blocks: list[JSONObject], more: JSONObject = _NO_KEYS) -> JSONObject:
    return {"role": role, "additional_kwargs": {**more}, "blocks": blocks}


def _text_block(text: str) -> JSONObject:
    return {"block_type": "text", "text": text}


# ---------------------------------------------------------------- kept keys


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The keys of a message that its entries do not have.

    Args:
        role: another role than the usual one, on the first entry of the message.
        message: the other keys of the message, likewise.
        more: the additional keyword arguments of the message, likewise.
        order: how texts ("t") and calls ("u") alternated, likewise.
        items: the other keys of a content's blocks by their index.
        block: the other keys of a call's own block; None if the call had none.
        copy: the other keys of a call in the additional keyword arguments.
        spelling: the spelling of that copy; "" for none.
        style: "text" if the arguments in the block were a text.
        copy_style: the same of the copy.
    """

    role: str = ""
    message: JSONObject = {}
    more: JSONObject = {}
    order: str = ""
    items: dict[str, JSONObject] = {}
    block: JSONObject | None = {}
    copy: JSONObject = {}
    spelling: str = ""
    style: str = ""
    copy_style: str = ""


_NOTHING_KEPT: Final = _Kept()


def _kept_of(entry: Entry) -> _Kept:
    return spelled_of(entry, NAME, _NOTHING_KEPT)


# ---------------------------------------------------------------- rendering


def _enveloped(role: Role, kept: _Kept, blocks: list[JSONObject], own: JSONObject) -> JSONObject:
    """Return a message of these blocks with what was kept of it; `own` are keyword arguments."""
    spelled = kept.role if _ROLES.get(kept.role) == role else role
    # Calls among the kept ones would have no result: only an edited document has them there.
    more = kept.more if _copies_in(kept.more) is None else other_keys(kept.more, _CALLS)
    return {**other_keys(kept.message, _OF_MESSAGE), **_message(spelled, blocks, {**more, **own})}


def _said_message(role: Role, entry: Entry, extras: list[str]) -> JSONObject:
    kept = _kept_of(entry)
    return _enveloped(role, kept, _wire_blocks(entry, kept, extras), {})


def _assistant_message(turn: Turn, extras: list[str]) -> JSONObject:
    first = turn.entries[0] if turn.entries else turn.calls[0].entry
    calls = [(call, _kept_of(call.entry)) for call in turn.calls]
    said = [
        block for entry in turn.entries for block in _wire_blocks(entry, _kept_of(entry), extras)
    ]
    uses = [_wire_call(call, kept) for call, kept in calls if kept.block is not None]
    copies = [_wire_copy(call, kept) for call, kept in calls if kept.spelling in _SPELLINGS]
    kept = _kept_of(first)
    blocks = interleaved(kept.order, list[JSONObject | None](said), uses)
    return _enveloped("assistant", kept, blocks, {"tool_calls": copies} if copies else {})


def _result_message(call: Call, extras: list[str]) -> JSONObject:
    result, own = call.result, {"tool_call_id": _id_of(call)}
    if result is None:
        extras.append(NO_RESULT)
        return _message("tool", [_text_block(NO_RESULT)], own)
    kept = _kept_of(result)
    return _enveloped("tool", kept, _wire_blocks(result, kept, extras), own)


def _id_of(call: Call) -> str:
    """Return the id of a call. Some models of LlamaIndex use the name of the tool, which must stay."""
    entry = call.entry
    return entry.name if entry.call_id and entry.call_id == entry.name else call.wire_id


def _wire_call(call: Call, kept: _Kept) -> JSONObject:
    entry = call.entry
    ours = {
        "block_type": "tool_call",
        "tool_call_id": _id_of(call),
        "tool_name": entry.name or "tool",
    }
    return {
        **other_keys(kept.block or {}, _OF_CALL), **ours, "tool_kwargs": _arguments(entry, kept.style)
    }  # fmt: skip


def _arguments(entry: Entry, style: str) -> JSON:
    """Return the arguments of a call, as text if they were text or are no object."""
    given = None if style == "text" else arguments_of(entry)
    return given if isinstance(given, dict) else entry.text


def _wire_copy(call: Call, kept: _Kept) -> JSONObject:
    """Return a call as an additional keyword argument."""
    entry, (id_key, name_key, arguments_key) = call.entry, _SPELLINGS[kept.spelling]
    body: JSONObject = {
        name_key: entry.name or "tool", arguments_key: _arguments(entry, kept.copy_style)
    }  # fmt: skip
    if kept.spelling == "function":
        inside = kept.copy.get("function")
        body = {"function": {**(inside if isinstance(inside, dict) else {}), **body}}
    return {**kept.copy, **body, id_key: _id_of(call)}


def _wire_blocks(entry: Entry, kept: _Kept, extras: list[str]) -> list[JSONObject]:
    """Return the blocks of an entry; one that LlamaIndex has no block for becomes a placeholder."""
    content = entry.content
    if isinstance(content, str):
        return [_text_block(content)]
    found: list[JSONObject] = []
    for index, part in enumerate(content):
        rest = kept.items.get(str(index), _NO_KEYS)
        own = _own_keys(part, rest)
        if own is not None:
            found.append({**rest, **own})
        elif is_unsaid(part) and NOT_CARRIED not in extras:
            extras.append(NOT_CARRIED)
            found.append(_text_block(NOT_CARRIED))
    return found


def _own_keys(part: Part, rest: JSONObject) -> JSONObject | None:
    """Return the keys of a block that its part has; None if LlamaIndex has no block for it."""
    match part:
        case TextPart(text):
            return _text_block(text)
        case ImagePart():
            own = _placed(part, "image", "image_mimetype")
            own |= {"detail": part.detail} if part.detail else {}
        case FilePart():
            own = _placed(part, "data", "document_mimetype")
            own |= {"title": part.name} if part.name else {}
        case OpaquePart():
            return _opaque_block(part)
    if own.keys().isdisjoint(("url", "image", "data")) and "path" not in rest:
        return None
    return {**own, "block_type": "image" if isinstance(part, ImagePart) else "document"}


def _placed(part: ImagePart | FilePart, data_key: str, type_key: str) -> JSONObject:
    """Return where a file is, and its media type."""
    if part.url:
        return {"url": part.url, **({type_key: part.media_type} if part.media_type else {})}
    media_type, data = data_of(part, "") or (part.media_type, None)
    return {
        **({data_key: data} if data else {}), **({type_key: media_type} if media_type else {})
    }  # fmt: skip


def _opaque_block(part: OpaquePart) -> JSONObject | None:
    """Return a block that only LlamaIndex reads; None if it is not one."""
    block = opaque_dict(part) if part.format == NAME else {}
    kind = _kind(block)
    if not kind or kind == "tool_call":
        return None
    if block.get("type") == kind:
        del block["type"]
    if kind in _RENAMED:
        own, ours = _RENAMED[kind]
        if ours in block:
            block[own] = block.pop(ours)
    return block


# ---------------------------------------------------------------- parsing


def _parse_message(message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
    """Return the entries of one message; `label` takes the place of a message id until one is made."""
    if not is_message(message):
        raise FormatError(
            f"this is not a message of LlamaIndex ({shape_of(message)}): it needs a 'role' of "
            f"{', '.join(_ROLES)}, and 'blocks' with a 'block_type' each, as model_dump returns them"
        )
    role, more = _role_of(message), message.get("additional_kwargs", {})
    kept = _Kept(
        role="" if message["role"] == role else message["role"],
        message=other_keys(message, _OF_MESSAGE),
        more=more,
    )
    if role == "assistant":
        return _parse_assistant(message["blocks"], kept, label, names)
    content, kept = _read_blocks(message["blocks"], kept)
    if role != "tool":
        return [keep_spelled(NewEntry(type="message", role=role, content=content), NAME, kept)]
    call_id, name = more.get("tool_call_id"), more.get("name")
    if not isinstance(call_id, str | None):
        raise FormatError(f"a tool_call_id must be a string, not {safe_repr(call_id, 40)}")
    new_entry = NewEntry(
        type="tool_result",
        role="tool",
        content=content,
        call_id=call_id or None,
        name=name if isinstance(name, str) and name else names.get(call_id or ""),
    )
    more = other_keys(more, frozenset(("tool_call_id",)))
    return [keep_spelled(new_entry, NAME, msgspec.structs.replace(kept, more=more))]


def _parse_assistant(
    blocks: Sequence[JSONObject], kept: _Kept, label: str, names: dict[str, str]
) -> list[NewEntry]:
    uses = [block for block in blocks if _kind(block) == "tool_call"]
    content, kept = _read_blocks([block for block in blocks if _kind(block) != "tool_call"], kept)
    order = "".join("u" if _kind(block) == "tool_call" else "t" for block in blocks)
    calls = [_parse_call(block) for block in uses]
    copies = _copies_in(kept.more)
    for copy in copies or ():
        _add_copy(calls, *copy)
    more = kept.more if copies is None else other_keys(kept.more, _CALLS)
    kept = msgspec.structs.replace(kept, more=more, order=order if "ut" in order else "")
    found = [(NewEntry(type="message", role="assistant", content=content), kept), *calls]
    if calls and len(uses) == len(blocks):  # nothing was said
        first, own = calls[0]
        envelope = {name: getattr(kept, name) for name in ("role", "message", "more")}
        found = [(first, msgspec.structs.replace(own, **envelope)), *calls[1:]]
    names |= {call.call_id or "": call.name or "" for call, _ in calls}
    return [
        keep_spelled(msgspec.structs.replace(each, message_id=label if calls else None), NAME, own)
        for each, own in found
    ]


def _parse_call(block: JSONObject) -> tuple[NewEntry, _Kept]:
    id_key, name_key, arguments_key = _SPELLINGS["block"]
    read = _read_call(block.get(id_key), block.get(name_key), block.get(arguments_key, {}))
    if read is None:
        raise FormatError(f"a tool_call needs a tool_name and tool_kwargs: {shape_of(block)}")
    return read[0], _Kept(block=other_keys(block, _OF_CALL), style=read[1])


def _read_call(call_id: JSON, name: JSON, arguments: JSON) -> tuple[NewEntry, str] | None:
    """Return the entry of a call, and the style of its arguments; None for other values."""
    if not isinstance(name, str) or not isinstance(call_id, str | None):
        return None
    if not isinstance(arguments, str | dict):
        return None
    is_text = isinstance(arguments, str)
    text = str(arguments) if is_text else json.dumps(arguments, ensure_ascii=False)
    new_entry = NewEntry(
        type="tool_call", role="assistant", content=text, call_id=call_id or None, name=name
    )
    return new_entry, "text" if is_text else ""


def _copies_in(more: JSONObject) -> list[tuple[NewEntry, _Kept]] | None:
    """Return the calls in the additional keyword arguments; None if they are not all calls."""
    calls = more.get("tool_calls")
    if not isinstance(calls, list):
        return None
    found = [copy for call in calls if (copy := _read_copy(call)) is not None]
    return found if len(found) == len(calls) else None


def _read_copy(given: JSON) -> tuple[NewEntry, _Kept] | None:
    for spelling, keys in _SPELLINGS.items() if isinstance(given, dict) else ():
        id_key, name_key, arguments_key = keys
        nested = spelling == "function"
        body = given.get("function") if nested else given
        if not isinstance(body, dict) or arguments_key not in body:
            continue
        if not nested and id_key not in given:
            continue
        read = _read_call(given.get(id_key), body.get(name_key), body[arguments_key])
        if read is not None:
            rest = other_keys(given, frozenset(keys))
            if nested:
                rest["function"] = other_keys(body, frozenset(keys))
            return read[0], _Kept(block=None, copy=rest, spelling=spelling, copy_style=read[1])
    return None


def _add_copy(calls: list[tuple[NewEntry, _Kept]], entry: NewEntry, copy: _Kept) -> None:
    """Add a call of the additional keyword arguments to those of the blocks, if it is not one of them."""
    for index, (call, kept) in enumerate(calls):
        if (call.call_id, call.name) == (entry.call_id, entry.name) and not kept.spelling:
            block = {"block": kept.block, "style": kept.style}
            calls[index] = call, msgspec.structs.replace(copy, **block)
            return
    calls.append((entry, copy))


def _read_blocks(blocks: Sequence[JSONObject], kept: _Kept) -> tuple[Content, _Kept]:
    """Return the content of blocks that are no calls, and what is kept of the message and of them."""
    parts: list[Part] = []
    items: dict[str, JSONObject] = {}
    for block in blocks:
        part = _read_block(block)
        own = _own_keys(part, block) or {}
        if rest := other_keys(block, frozenset(own)):
            items[str(len(parts))] = rest
        parts.append(part)
    if len(parts) == 1 and isinstance(parts[0], TextPart) and not items:
        return parts[0].text, kept
    return tuple(parts), msgspec.structs.replace(kept, items=items)


def _read_block(block: JSONObject) -> Part:
    """Return a block as a part that becomes the same block again; opaque if no other one does."""
    part: Part | None = None
    given = {key: value for key, value in block.items() if isinstance(value, str)}
    match _kind(block):
        case "text" if "text" in given:
            return TextPart(given["text"])
        case "image":
            part = ImagePart(
                url=given.get("url"),
                data=given.get("image"),
                media_type=given.get("image_mimetype"),
                detail=given.get("detail"),
            )
        case "document":
            part = FilePart(
                url=given.get("url"),
                data=given.get("data"),
                media_type=given.get("document_mimetype"),
                name=given.get("title"),
            )
    own = _own_keys(part, block) if part is not None else None
    if part is not None and own is not None and {**block, **own} == block:
        return part
    kind = _kind(block)
    block = {"type": kind, **block}
    if kind in _RENAMED:
        own_key, ours = _RENAMED[kind]
        if own_key in block:
            block[ours] = block.pop(own_key)
    return opaque(NAME, block)
