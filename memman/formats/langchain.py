"""LangChain messages as it serializes them, `messages_to_dict` and `dumpd`, without importing it.

The output is for `langchain_core.messages.messages_from_dict`: `{"type": ..., "data": ...}`. System
messages come first, since most chat models of LangChain reject others; a later one becomes a marked note
of the user's. Framing is that of OpenAI chat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memman.display import safe_repr, shape_of
from memman.entries import JSON, Content, Entry, FilePart, ImagePart, JSONObject, NewEntry, Part
from memman.errors import FormatError
from memman.formats.calls import (
    Tool,
    arguments_object,
    call_entry,
    encoded,
    message_entries,
    result_entry,
    results_of,
    spoken_of,
)
from memman.formats.openai_chat import CALL_FRAMING, MESSAGE_FRAMING, spoken_part
from memman.formats.parts import (
    Kept,
    arguments_of,
    data_of,
    interleaved,
    is_typed,
    keeping,
    kept_of,
    other_keys,
    parts_framing,
    read_content,
    wire_parts,
    with_kept,
)
from memman.formats.plain import parse_each
from memman.formats.separate import SeparateMessages
from memman.formats.turns import NO_RESULT, SYSTEM_NOTE, delimited
from memman.protocols import Call, Rendered, Turn

_NAME = "langchain"
_REMOVE_ALL = "__remove_all__"

_ROLES = {
    "human": "user", "HumanMessageChunk": "user",
    "ai": "assistant", "AIMessageChunk": "assistant",
    "system": "system", "SystemMessageChunk": "system",
    "tool": "tool", "ToolMessageChunk": "tool", "function": "tool",
}  # fmt: skip
_TYPES = {"user": "human", "assistant": "ai", "system": "system"}
_CHAT_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant",
               "system": "system", "developer": "system"}  # fmt: skip
# The last name in a constructor's id, with which `dumpd` names the class of a message.
_CLASSES = {
    "HumanMessage": "human", "AIMessage": "ai", "SystemMessage": "system", "ToolMessage": "tool",
    "FunctionMessage": "function", "ChatMessage": "chat", "RemoveMessage": "remove",
    "HumanMessageChunk": "HumanMessageChunk", "AIMessageChunk": "AIMessageChunk",
    "SystemMessageChunk": "SystemMessageChunk", "ToolMessageChunk": "ToolMessageChunk",
}  # fmt: skip

# The keys that rendering produces; every other key is kept and restored.
_OF_SAID = frozenset(("content",))
_OF_AI = frozenset(("content", "tool_calls", "invalid_tool_calls"))
_OF_RESULT = frozenset(("content", "tool_call_id", "status"))
_OF_CALL = frozenset(("name", "args", "id", "type"))
# Calls that a provider's content has too; the keys of their ids and of their arguments.
_CALL_BLOCKS = {"tool_use": ("id", "input"), "tool_call": ("id", "args"),
                "function_call": ("call_id", "arguments")}  # fmt: skip
_SPELLED = "memman_spelled"  # a mark among a part's other keys, never sent


class LangChainFormat(SeparateMessages):
    """`{"type": "human", "data": {"content": ...}}`, or the constructor form, and back."""

    name = _NAME
    request_framing = 3
    message_framing = MESSAGE_FRAMING
    takes_cache_key = True  # ChatOpenAI does

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for either form, which no other format has."""
        return 6 if messages and all(_read(message) is not None for message in messages) else 0

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for a message's text and one for each call, without removed messages."""
        names: dict[str, str] = {}
        gone = _removed(messages)

        def parse_one(message: JSON, label: str) -> list[NewEntry]:
            return [] if int(label) in gone else _parse_message(message, label, names)

        return parse_each(messages, parse_one)

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn; results directly follow the message with their calls."""
        if turn.kind == "assistant":
            return _render_assistant(turn)
        if turn.kind == "user" or turn.kind == "system":
            return _render_said(turn.kind, turn.entries[0])
        text, extras = delimited(turn)
        return Rendered((_message("human", {"content": text}),), MESSAGE_FRAMING, extras)

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Turn system messages behind any other into notes."""
        types = [_type_of(message) for message in messages]
        head = next((n for n, kind in enumerate(types) if kind != "system"), len(types))
        if "system" not in types[head:]:
            return messages
        late = [
            _note(message) if kind == "system" else message
            for message, kind in zip(messages[head:], types[head:], strict=True)
        ]
        return [*messages[:head], *late]


def _read(message: JSON) -> tuple[str, JSONObject, bool] | None:
    """Return the type and data of a message and whether it has the constructor form, else None."""
    if not isinstance(message, dict):
        return None
    kind, data = message.get("type"), message.get("data")
    if kind == "constructor":
        path, data = message.get("id"), message.get("kwargs")
        name = path[-1] if isinstance(path, list) and path else None
        kind = _CLASSES.get(name) if isinstance(name, str) else None
    if not isinstance(kind, str) or not isinstance(data, dict):
        return None
    if kind not in _ROLES and kind not in ("chat", "remove"):
        return None
    return kind, data, "kwargs" in message


def _type_of(message: JSON) -> str:
    found = _read(message)
    return found[0] if found else ""


def _removed(messages: Sequence[JSON]) -> set[int]:
    """Return the indexes of removed messages and of the messages that remove them."""
    gone: set[int] = set()
    for index, message in enumerate(messages):
        if _type_of(message) == "remove":
            wanted = _id_of(message)
            gone.add(index)
            gone |= {
                earlier
                for earlier in range(index)
                if wanted == _REMOVE_ALL or _id_of(messages[earlier]) == wanted
            }
    return gone


def _id_of(message: JSON) -> JSON:
    found = _read(message)
    return found[1].get("id") if found else None


# ---------------------------------------------------------------- rendering


def _message(kind: str, data: JSONObject, kept: Kept | None = None) -> JSONObject:
    """Return a message in its original form, if that is one of its type."""
    if data.get("type", kind) != kind:
        data = {key: value for key, value in data.items() if key != "type"}
    if "role" in data and kind != "chat":
        data = {key: value for key, value in data.items() if key != "role"}
    if kept is not None and "lc" in kept.block:
        constructed = {**kept.block, "kwargs": data}
        if _type_of(constructed) == kind:
            return constructed
    return {"type": kind, "data": data}


def _note(message: JSONObject) -> JSONObject:
    data: JSON = message["data"] if "data" in message else message["kwargs"]
    content = data["content"]
    text = content if isinstance(content, str) else "\n".join(map(_text_of, content))
    return _message("human", {"content": SYSTEM_NOTE + text})


def _text_of(block: JSON) -> str:
    return block if isinstance(block, str) else str(block.get("text", ""))


def _render_said(role: str, entry: Entry) -> Rendered:
    kept = kept_of(entry, _NAME)
    extras: list[str] = [SYSTEM_NOTE] if role == "system" else []
    content = _wire_content(entry.content, kept, extras)
    data = with_kept({"content": content}, kept.message)
    same = kept.style != "" and _role_of(kept.style, data) == role
    kind = kept.style if same else _TYPES[role]
    message = _message(kind, data, kept)
    return Rendered((message,), MESSAGE_FRAMING + parts_framing(entry.content), tuple(extras))


def _render_assistant(turn: Turn) -> Rendered:
    texts, calls = turn.entries, turn.calls
    extras: list[str] = []
    kept = kept_of(texts[0] if texts else calls[0].entry, _NAME)
    data: JSONObject = {"content": _said(texts, calls, kept, extras)}
    sound = [call for call in calls if kept_of(call.entry, _NAME).style != "invalid"]
    odd = [call for call in calls if kept_of(call.entry, _NAME).style == "invalid"]
    if sound or kept.blank == "listed":
        data["tool_calls"] = [_wire_call(call, extras) for call in sound]
    if odd or kept.blank == "listed":
        data["invalid_tool_calls"] = [_wire_invalid(call) for call in odd]
    message = _message(_kind(kept, calls), with_kept(data, kept.message), kept)
    framing = MESSAGE_FRAMING + sum(parts_framing(entry.content) for entry in texts)
    framing += (MESSAGE_FRAMING + CALL_FRAMING) * len(calls)
    answers = [call for call in turn.answers if _is_answered(call)]
    results = [_wire_result(call, extras) for call in answers]
    sources = (spoken_of(turn), *results_of(answers))
    return Rendered((message, *results), framing, tuple(extras), sources)


def _is_answered(call: Call) -> bool:
    """Return True if a tool message answers a call: an invalid call without an id has no answer."""
    if call.result is not None or call.entry.call_id is not None:
        return True
    return kept_of(call.entry, _NAME).style != "invalid"


def _kind(kept: Kept, calls: Sequence[Call]) -> str:
    """Return the type of an assistant message; a call keeps its own spelling."""
    chat = kept.style == "chat" and not calls and _role_of("chat", kept.message) == "assistant"
    return kept.style if chat or kept.style == "AIMessageChunk" else "ai"


def _role_of(kind: str, data: Mapping[str, JSON]) -> str:
    """Return the role of a message of this type; a chat message names its role."""
    return _ROLES.get(kind) or _CHAT_ROLES.get(str(data.get("role", "")).lower(), "user")


def _said(texts: Sequence[Entry], calls: Sequence[Call], kept: Kept, extras: list[str]) -> JSON:
    """Return the content, with the calls' own blocks if the provider has them there too."""
    blocks: list[JSONObject | None] = []
    uses = [block for call in calls if (block := _call_block(call)) is not None]
    if not uses:
        if not texts:
            return [] if kept.order == "l" else ""
        if len(texts) == 1:
            return _wire_content(texts[0].content, kept_of(texts[0], _NAME), extras)
        if all(isinstance(entry.content, str) for entry in texts):
            return "\n".join(entry.text for entry in texts)
    for entry in texts:
        content = entry.content
        if isinstance(content, str):
            blocks += [{"type": "text", "text": content}] if content else []
        else:
            blocks += _wire_blocks(content, kept_of(entry, _NAME), extras)
    return interleaved(kept.order, blocks, [use for use in uses if use])


def _call_block(call: Call) -> JSONObject | None:
    kept = kept_of(call.entry, _NAME)
    keys = _CALL_BLOCKS.get(kept.style)
    if keys is None:
        return None
    given: JSON = call.entry.text if kept.style == "function_call" else arguments_of(call.entry)
    base = {"type": kept.style, "name": call.entry.name, keys[0]: call.unique_id, keys[1]: given}
    return with_kept(base, kept.body)


def _wire_call(call: Call, extras: list[str]) -> JSONObject:
    name, arguments = call.entry.name or "tool", arguments_object(call.entry, extras)
    return {"name": name, "args": arguments, "id": call.unique_id, "type": "tool_call"}


def _wire_invalid(call: Call) -> JSONObject:
    entry = call.entry
    kept = kept_of(entry, _NAME)
    call_id = call.unique_id if _is_answered(call) else None
    base = {"name": entry.name, "args": entry.text, "id": call_id}
    return with_kept({**base, "type": "invalid_tool_call"}, kept.body)


def _wire_result(call: Call, extras: list[str]) -> JSONObject:
    data: JSONObject = {"content": NO_RESULT, "tool_call_id": call.unique_id}
    result = call.result
    if result is None:
        name = call.entry.name or "tool"
        extras += [NO_RESULT, name]
        return _message("tool", {**data, "name": name, "status": "error"})
    kept = kept_of(result, _NAME)
    data["content"] = _wire_content(result.content, kept, extras)
    if result.is_error:
        data["status"] = "error"
    elif kept.blank == "success":
        data["status"] = "success"
    kind = kept.style if kept.style == "ToolMessageChunk" else "tool"
    return _message(kind, with_kept(data, kept.message), kept)


def _wire_content(content: Content, kept: Kept, extras: list[str]) -> JSON:
    if isinstance(content, str):
        return content
    return [block for block in _wire_blocks(content, kept, extras) if block] or ""


def _wire_blocks(content: tuple[Part, ...], kept: Kept, extras: list[str]) -> list[JSON]:
    return [
        None if block is None else _respelled(block)
        for block in wire_parts(content, kept, _wire_part, extras)
    ]


def _respelled(block: JSONObject) -> JSON:
    """Restore a block: a text without its block, or an image in LangChain's own form."""
    spelled = block.pop(_SPELLED, None)
    if spelled == "str":
        return block["text"]
    if spelled != "image":
        return block
    url = block.pop("image_url")["url"]
    inline = data_of(ImagePart(url=url), "image/png")
    image = {"url": url} if inline is None else {"mime_type": inline[0], "base64": inline[1]}
    return {**block, "type": "image", **image}


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in LangChain's form, or None if it has none."""
    match part:
        case ImagePart() if part.url or part.data:
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            image = {"url": url, **({"detail": part.detail} if part.detail else {})}
            return {"type": "image_url", "image_url": image}
        case FilePart():
            inline = data_of(part, "application/pdf")
            if inline is not None:
                return {"type": "file", "mime_type": inline[0], "base64": inline[1]}
            return {"type": "file", "url": part.url} if part.url else None
    return spoken_part(_NAME, part)


# ---------------------------------------------------------------- parsing


def _parse_message(message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
    """Return the entries of one message; `label` takes the place of a message id until one is made."""
    found = _read(message)
    if found is None:
        raise FormatError(
            f"this is not a LangChain message ({shape_of(message)}): it needs a 'type' of "
            f"{', '.join(_TYPES.values())} or tool and its 'data', or the constructor form"
        )
    kind, data, constructed = found
    head = other_keys(message, frozenset(("kwargs",))) if constructed else {}
    role = _role_of(kind, data)
    style = "" if kind in _TYPES.values() or kind == "tool" else kind
    if role == "tool":
        return [_parse_result(data, head, style, names)]
    if role == "assistant":
        return _parse_assistant(data, head, style, label, names)
    content, parts = _parse_content(data.get("content"))
    kept = Kept(message=other_keys(data, _OF_SAID), block=head, parts=parts, style=style)
    own: JSON = role
    said = NewEntry(type="message", role=own, content=content, name=_name_in(data))
    return [keeping(said, _NAME, kept)]


def _name_in(data: JSONObject) -> str | None:
    name = data.get("name")
    return name if isinstance(name, str) else None


def _parse_assistant(
    data: JSONObject, head: JSONObject, style: str, label: str, names: dict[str, str]
) -> list[NewEntry]:
    calls = _listed(data, "tool_calls")
    invalid = _listed(data, "invalid_tool_calls")
    known = {call.get("id"): call for call in calls}
    blocks, order = _apart(data.get("content"), known)
    made = [_parse_call(call, blocks.get(call.get("id")), label, names) for call in calls]
    made += [_parse_invalid(call, label, names) for call in invalid]
    if not made and (legacy := _legacy(data)) is not None:
        text = str(legacy.get("arguments") or "")
        made = [(call_entry(text, None, legacy["name"], label), Kept())]
    rest = data.get("content")
    if isinstance(rest, list):
        rest = [block for block in rest if not _is_call_block(block, known)]
    content, parts = _parse_content(rest) if rest != [] else ("", {})
    listed = "tool_calls" in data and "invalid_tool_calls" in data
    shape = order if "u" in order else "l" if isinstance(rest, list) and not content else ""
    return message_entries(
        _NAME,
        "assistant",
        content,
        Kept(parts=parts, style=style),
        made,
        label,
        name=_name_in(data),
        message=other_keys(data, _OF_AI),
        block=head,
        blank="listed" if listed else "",
        order=shape,
    )


def _listed(data: JSONObject, key: str) -> list[JSONObject]:
    calls = data.get(key) or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise FormatError(f"'{key}' must be a list of calls, not {shape_of(calls)}")
    for call in calls:
        if not isinstance(call.get("id"), str | None):
            raise FormatError(f"a tool call's id must be a string, not {safe_repr(call['id'], 40)}")
    return calls


def _is_call_block(block: JSON, known: Mapping[str | None, JSON]) -> bool:
    """Return True if a block of the content is one of the calls outside it."""
    if not is_typed(block) or block["type"] not in _CALL_BLOCKS:
        return False
    call_id = block.get(_CALL_BLOCKS[block["type"]][0])
    return isinstance(call_id, str) and call_id in known


def _apart(content: JSON, known: Mapping[JSON, JSON]) -> tuple[dict[JSON, JSONObject], str]:
    """Return the calls' own blocks by call id, and how texts and calls alternate."""
    if not isinstance(content, list):
        return {}, ""
    blocks = {
        block[_CALL_BLOCKS[block["type"]][0]]: block
        for block in content
        if _is_call_block(block, known)
    }
    order = "".join("u" if _is_call_block(block, known) else "t" for block in content)
    return blocks, order if blocks else ""


def _parse_call(
    call: JSONObject, block: JSONObject | None, label: str, names: dict[str, str]
) -> Tool:
    name, call_id = call.get("name"), call.get("id")
    if not isinstance(name, str) or not isinstance(call_id, str | None):
        raise FormatError(f"a tool call needs a name and an id: {shape_of(call)}")
    names[call_id or ""] = name
    text = encoded(call.get("args"), "the args of a call")
    if block is None:
        return call_entry(text, call_id, name, label), Kept(body=other_keys(call, _OF_CALL))
    keys = frozenset(("type", "name", *_CALL_BLOCKS[block["type"]]))
    if block["type"] == "function_call" and isinstance(block.get("arguments"), str):
        text = block["arguments"]
    kept = Kept(body=other_keys(block, keys), style=block["type"])
    return call_entry(text, call_id, name, label), kept


def _parse_invalid(call: JSONObject, label: str, names: dict[str, str]) -> Tool:
    name, call_id, given = call.get("name"), call.get("id"), call.get("args")
    if not isinstance(name, str | None) or not isinstance(call_id, str | None):
        raise FormatError(f"an invalid tool call needs a name and an id: {shape_of(call)}")
    names[call_id or ""] = name or ""
    text = given if isinstance(given, str) else ""
    kept = Kept(body=other_keys(call, _OF_CALL), style="invalid")
    return call_entry(text, call_id, name, label), kept


def _legacy(data: JSONObject) -> JSON:
    """Return the call of a model from before there were tool calls."""
    more = data.get("additional_kwargs")
    call = more.get("function_call") if isinstance(more, dict) else None
    return call if isinstance(call, dict) and isinstance(call.get("name"), str) else None


def _parse_result(
    data: JSONObject, head: JSONObject, style: str, names: dict[str, str]
) -> NewEntry:
    call_id = data.get("tool_call_id")
    if not isinstance(call_id, str | None):
        raise FormatError(f"'tool_call_id' must be a string, not {safe_repr(call_id, 40)}")
    content, parts = _parse_content(data.get("content"))
    name = _name_in(data) or names.get(call_id or "")
    status = data.get("status")
    kept = Kept(
        message=other_keys(data, _OF_RESULT),
        block=head,
        parts=parts,
        style=style,
        blank="success" if status == "success" else "",
    )
    return keeping(result_entry(content, call_id, name, is_error=status == "error"), _NAME, kept)


def _parse_content(content: JSON) -> tuple[Content, dict[str, JSONObject]]:
    """Return a content, and the other keys of its parts."""
    blocks = [_typed(block) for block in content] if isinstance(content, list) else content
    return read_content(blocks, _NAME, _known_part, _wire_part)


def _typed(block: JSON) -> JSON:
    """Return a block as `_wire_part` writes it, with a mark of its spelling."""
    if isinstance(block, str):
        return {"type": "text", "text": block, _SPELLED: "str"}
    if not isinstance(block, dict) or block.get("type") != "image":
        return block
    url, data, kind = block.get("url"), block.get("base64"), block.get("mime_type")
    if isinstance(data, str) and isinstance(kind, str):
        url = f"data:{kind};base64,{data}"
    if not isinstance(url, str):
        return block
    rest = other_keys(block, frozenset(("url", "base64", "mime_type")))
    return {**rest, "type": "image_url", "image_url": {"url": url}, _SPELLED: "image"}


def _known_part(block: JSONObject) -> Part | None:
    kind = block["type"]
    if kind == "image_url":
        image = block.get("image_url")
        given: Callable[[str], JSON] = image.get if isinstance(image, dict) else {}.get
        return ImagePart(url=given("url"), detail=given("detail"))
    if kind == "file":
        return FilePart(
            url=block.get("url"), data=block.get("base64"), media_type=block.get("mime_type")
        )
    return None
