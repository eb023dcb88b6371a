"""Agent Framework's messages as `Message.to_dict()` writes them, without importing the framework.

Entries are made and rendered as those of OpenAI chat: one for the contents of a message, one for each
function call, one for each function result. A tool message has the results of one answer together.
Contents that only the framework or a provider reads are opaque.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from memman.display import shape_of
from memman.entries import JSON, FilePart, ImagePart, JSONObject, NewEntry, Part, encode_json
from memman.errors import FormatError
from memman.formats.openai_chat import (
    MESSAGE_FRAMING,
    Dialect,
    parse_messages,
    render_turn,
    restore_turn,
    spoken_part,
)
from memman.formats.parts import interleaved, is_typed, other_keys
from memman.formats.plain import parse_each
from memman.protocols import Rendered, Turn

NAME: Final = "agent-framework"
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_OF_MESSAGE: Final = frozenset(("role", "contents"))
_OF_CALL: Final = frozenset(("type", "call_id", "name", "arguments"))
_OF_RESULT: Final = frozenset(("type", "call_id", "result", "items"))
_FAILED: Final = {
    "exception": "Exception details redacted."
}  # as `Content.to_dict` marks a failure
_PAIRED: Final = ("function_call", "function_result")  # which only entries of their own can be
_KEPT: Final = "response_metadata"


_Value = TypeVar("_Value")


class AgentFrameworkFormat:
    """`{"role": ..., "contents": [{"type": ...}]}`, and back."""

    name = NAME
    request_framing = 3
    message_framing = MESSAGE_FRAMING
    joins = False
    edges: tuple[str, ...] = ()
    inline_system = True
    takes_cache_key = True  # the clients of OpenAI do

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for messages with contents; no other format has them."""
        return 6 if messages and all(map(_is_message, messages)) else 0

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return the entries of the messages, at least one for each."""
        names: dict[str, str] = {}
        return parse_each(messages, lambda message, label: _parse_message(message, label, names))

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn; the results of an assistant's calls are one message."""
        rendered = render_turn(_DIALECT, turn)
        made = tuple(_messages(rendered.messages, turn))
        return msgspec.structs.replace(rendered, messages=made)

    def restore(self, turn: Turn) -> list[JSONObject] | None:
        """Return an assistant's message, or results, with their original ids."""
        restored = restore_turn(_DIALECT, turn)
        return None if restored is None else list(_messages(restored, turn))

    def join(self, left: JSONObject, right: JSONObject) -> JSONObject | None:
        """Return None: adjacent messages of one role are valid."""
        return None

    def frame(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Return the messages: the clients of the framework add what their providers require."""
        return messages


def _is_message(message: JSON) -> bool:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        return False
    contents = message.get("contents")
    return isinstance(contents, list) and all(map(is_typed, contents))


# ---------------------------------------------------------------- in


def _parse_message(message: JSON, label: str, names: dict[str, str]) -> list[NewEntry]:
    """Return the entries of a message. `names` are the functions of the calls so far, by their ids."""
    if not _is_message(message):
        raise FormatError(
            f"this is not a message of Agent Framework ({shape_of(message)}): it needs 'contents' with "
            f"types, and a 'role' of {', '.join(_ROLES)}"
        )
    failed = {each.get("call_id") for each in message["contents"] if "exception" in each}
    found: list[NewEntry] = []
    for entry in parse_messages(_DIALECT, list(_chat_messages(message))):
        changes: dict[str, Any] = {"message_id": label, "message_index": 0}
        if entry.type == "tool_call" and entry.call_id:
            names[entry.call_id] = entry.name or ""
        elif entry.type == "tool_result":
            changes["name"] = names.get(entry.call_id or "")
            changes["is_error"] = entry.call_id in failed
        elif isinstance(message.get("author_name"), str):
            changes["name"] = message["author_name"]
        found.append(msgspec.structs.replace(entry, **changes))
    if len(found) == 1 and found[0].type == "message":
        return [msgspec.structs.replace(found[0], message_id=None)]
    return found


def _chat_messages(message: JSONObject) -> Iterator[JSONObject]:
    """Yield a message as those of OpenAI chat: what is said, then each result."""
    role, more = message["role"], other_keys(message, _OF_MESSAGE)
    results = [each for each in message["contents"] if _is_result(each)]
    others = [each for each in message["contents"] if not _is_result(each)]
    calls = [each for each in others if role == "assistant" and _is_call(each)]
    if others or not results:
        said = [each for each in others if each not in calls]
        order = "".join("u" if each in calls else "t" for each in others)
        said_as = role if role == "tool" else ""
        chat: JSONObject = {"role": "user" if said_as else role, "content": _content(said)}
        chat |= _kept(message=more, order=order if "ut" in order else "", said_as=said_as)
        if calls:
            chat["tool_calls"] = list(map(_chat_call, calls))
        yield chat
    for result in results:
        kept = _kept(message={} if others else more, content=other_keys(result, _OF_RESULT))
        content = _result_content(result)
        yield {"role": "tool", "tool_call_id": result["call_id"], "content": content, **kept}


def _kept(**kept: JSON) -> JSONObject:
    """Return what has no place in a chat message, under a key that no token is counted for."""
    found = {name: value for name, value in kept.items() if value}
    return {_KEPT: found} if found else {}


def _is_result(content: JSONObject) -> bool:
    return content["type"] == "function_result" and isinstance(content.get("call_id"), str)


def _is_call(content: JSONObject) -> bool:
    """Return whether the framework executes a call, so that a result follows."""
    named = isinstance(content.get("call_id"), str) and isinstance(content.get("name"), str)
    return content["type"] == "function_call" and named and not content.get("informational_only")


def _chat_call(call: JSONObject) -> JSONObject:
    function = {"name": call["name"], "arguments": call.get("arguments")}
    return {
        "id": call["call_id"],
        "function": function,
        **_kept(content=other_keys(call, _OF_CALL)),
    }


def _content(contents: list[JSONObject]) -> JSON:
    """Return the contents of a message as those of a chat message; a plain text is a string."""
    match contents:
        case [{"type": "text", "text": str(text), **more}] if text and not more:
            return text
    return list(map(_chat_part, contents))


def _chat_part(content: JSONObject) -> JSONObject:
    """Return a content as a part. Reasoning has the keys by which memman knows it in each format."""
    match content["type"]:
        case "text":
            part = {"type": "text", "text": content.get("text")}
        case "text_reasoning":
            part = {"type": "thinking", "thinking": content.get("text")}
            part["signature"] = content.get("protected_data")
        case "data" | "uri":
            part = {key: content.get(key) for key in ("type", "uri", "media_type")}
        case _:
            return content
    known = {"type", "text", "uri", "media_type", "protected_data"}
    return {**part, **_kept(content=other_keys(content, frozenset(known)))}


def _result_content(result: JSONObject) -> JSON:
    """Return the items of a result; plain text is a string."""
    items, value = result.get("items"), result.get("result")
    if isinstance(items, list) and items and all(map(is_typed, items)):
        return _content(items)
    if isinstance(value, str):
        return value
    return "" if value is None else bytes(encode_json(value, "a result")).decode()


# ---------------------------------------------------------------- out


def _messages(chat: Iterable[JSONObject], turn: Turn) -> Iterator[JSONObject]:
    """Yield chat messages as the framework's; adjacent results are one message."""
    failed = (call.result is not None and call.result.is_error for call in turn.answers)
    for role, group in groupby(chat, key=lambda message: message["role"]):
        messages = list(group)
        if role == "tool":
            contents = [_result(each, next(failed, False)) for each in messages]
            yield {**_kept_in(messages[0], "message", {}), "role": role, "contents": contents}
            continue
        for message in messages:
            made = zip(message.get("tool_calls", ()), turn.calls, strict=False)
            calls = [_call(each, call.entry.name) for each, call in made]
            said: list[JSONObject | None] = [*_contents(message["content"])]
            contents = interleaved(_kept_in(message, "order", ""), said, calls)
            more: JSONObject = _kept_in(message, "message", {})
            said_by = "tool" if _kept_in(message, "said_as", "") == "tool" else role
            yield {**more, "role": said_by, "contents": contents}


def _kept_in(made: JSONObject, name: str, default: _Value) -> _Value:
    """Return what had no place in a chat message; an imported log may have anything there."""
    kept = made.get(_KEPT)
    found = kept.get(name) if isinstance(kept, dict) else None
    return found if isinstance(found, type(default)) else default


def _contents(content: JSON) -> list[JSONObject]:
    """Return the content of a chat message as the framework's."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    found = map(_part, content or ())
    return [each for each in found if each["type"] not in _PAIRED or each.get("informational_only")]


def _part(part: JSONObject) -> JSONObject:
    own = {key: value for key, value in part.items() if key != _KEPT}
    if own["type"] == "thinking":
        said = {"text": own.get("thinking"), "protected_data": own.get("signature")}
        own = {"type": "text_reasoning", **{k: v for k, v in said.items() if v is not None}}
    return {**_kept_in(part, "content", {}), **own}


def _call(call: JSONObject, name: str | None) -> JSONObject:
    function = call["function"]
    ours = {"type": "function_call", "call_id": call["id"], "name": name or function["name"]}
    return {**_kept_in(call, "content", {}), **ours, "arguments": function["arguments"]}


def _result(message: JSONObject, failed: bool) -> JSONObject:
    items = _contents(message["content"]) or [{"type": "text", "text": ""}]
    texts = [item["text"] for item in items if item["type"] == "text" and item["text"]]
    ours = {"type": "function_result", "call_id": message["tool_call_id"]}
    more = {**(_FAILED if failed else {}), **_kept_in(message, "content", {})}
    return {**more, **ours, "result": "\n".join(texts), "items": items}


# ---------------------------------------------------------------- contents


def _known_part(content: JSONObject) -> Part | None:
    """Return an image or a file as a part that other formats have too."""
    uri, kind = content.get("uri"), content.get("media_type")
    if content["type"] == "hosted_file" and isinstance(content.get("file_id"), str):
        return FilePart(file_id=content["file_id"])
    if content["type"] not in ("data", "uri") or not isinstance(uri, str):
        return None
    if isinstance(kind, str) and kind.startswith("image/"):
        return ImagePart(url=uri, media_type=kind)
    return FilePart(url=uri, media_type=kind if isinstance(kind, str) else None)


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part as a content."""
    if isinstance(part, FilePart) and part.file_id:
        return {"type": "hosted_file", "file_id": part.file_id}
    if isinstance(part, ImagePart | FilePart):
        default = "image/png" if isinstance(part, ImagePart) else "application/pdf"
        kind = part.media_type or default
        if part.url and not part.url.startswith("data:"):
            return {"type": "uri", "uri": part.url, "media_type": kind}
        uri = part.url or f"data:{kind};base64,{part.data}"
        return {"type": "data", "uri": uri, "media_type": kind} if part.url or part.data else None
    return spoken_part(NAME, part)


_DIALECT: Final = Dialect(
    name=NAME,
    title="Agent Framework",
    roles=_ROLES,
    known_part=_known_part,
    wire_part=_wire_part,
    call_id=attrgetter("unique_id"),
    loose=True,
)
