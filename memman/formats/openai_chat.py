"""OpenAI chat messages (`chat.completions`): what most loops, logs and gateways speak.

Framing: tokens = 3 + sum over messages of (4 + text), exact for gpt-4o and gpt-4.1 on recorded calls and
one a message too many at most for the o-series and gpt-5; a tool call adds its function wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from memman.entries import (
    NO_JSON,
    Content,
    Draft,
    Entry,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    TextPart,
    encode_json,
)
from memman.errors import FormatError
from memman.formats.parts import opaque_block, parts_framing, read_parts, wire_parts
from memman.formats.patch import Kept, beside, keeping, kept_of, others
from memman.formats.plain import parse_each
from memman.formats.turns import NO_RESULT, delimited
from memman.ports import Call, Rendered, Turn

_NAME = "openai-chat"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MESSAGE_FRAMING = 4
_CALL_FRAMING = 10
_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_NOTHING = Rendered((), 0)
_CALLS = ("tool_calls", "function_call")

# What rendering answers for; every other key is kept and goes back as it came.
_OF_SAID = frozenset(("role", "content"))
_OF_TOOL = frozenset(("role", "content", "tool_call_id"))
_OF_FUNCTION = frozenset(("role", "content", "name"))
_OF_CALL = frozenset(("id", "type", "function", "custom"))
_OF_BODY = frozenset(("name", "arguments", "parsed_arguments"))  # the last is the SDK's own
_OF_CUSTOM = frozenset(("name", "input"))


class OpenAIChatFormat:
    """`{"role": ..., "content": ..., "tool_calls": [...]}` and back."""

    name = _NAME
    request_framing = 3
    message_framing = _MESSAGE_FRAMING
    joins = False
    edges: tuple[str, ...] = ()
    inline_system = True

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[Any]) -> int:
        """Sure of tool roles and `tool_calls`; any list of role and content will do otherwise."""
        if not messages or not all(
            isinstance(item, dict) and item.get("role") in _ROLES for item in messages
        ):
            return 0
        if any(item["role"] in ("tool", "function", "developer", "system") for item in messages):
            return 3
        return 3 if any("tool_calls" in item for item in messages) else 1

    def parse(self, messages: Sequence[Any]) -> list[Draft]:
        """One entry for a message's text and one for each call; nothing of a message gets lost."""
        calls = _Calls()
        return parse_each(messages, lambda message, label: _parse_message(message, label, calls))

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """The messages of a turn; results directly follow the message with their calls."""
        kind = turn.kind
        if kind == "assistant":
            return _render_assistant(turn)
        if kind == "user" or kind == "system":
            entry = turn.entries[0]
            content = entry.content
            if type(content) is str and entry.raw_json is NO_JSON:
                return Rendered(({"role": kind, "content": content},), _MESSAGE_FRAMING)
            return _render_said(kind, entry)
        text, extras = delimited(turn)
        return Rendered(({"role": "user", "content": text},), _MESSAGE_FRAMING, extras)

    def join(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any] | None:
        """Never: neighbours of one role are legal here."""
        return None

    def frame(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Nothing has to stand first or last."""
        return messages


# ---------------------------------------------------------------- rendering


def _render_said(role: str, entry: Entry) -> Rendered:
    """A user's or system's message with parts or with something kept beside it."""
    kept = kept_of(entry, _NAME)
    extras: list[str] = []
    content = _wire_content(entry.content, kept, extras)
    if role == "system" and kept.style == "developer":
        role = "developer"
    message = beside({"role": role, "content": content}, kept.message)
    return Rendered((message,), _MESSAGE_FRAMING + parts_framing(entry.content), tuple(extras))


def _render_assistant(turn: Turn) -> Rendered:
    texts = turn.entries
    calls = turn.answers
    if not calls and len(texts) == 1:
        content = texts[0].content
        if type(content) is str and texts[0].raw_json is NO_JSON:
            return Rendered(({"role": "assistant", "content": content},), _MESSAGE_FRAMING)
    extras: list[str] = []
    if not texts and len(calls) == 1 and calls[0].entry.raw_json is NO_JSON:
        asked = {"role": "assistant", "content": None, "tool_calls": [_wire_call(calls[0])]}
        said = _result_message(calls[0], extras, legacy=False)
        return Rendered((asked, said), 2 * _MESSAGE_FRAMING + _CALL_FRAMING, tuple(extras))
    message = _assistant_message(turn, extras)
    framing = _MESSAGE_FRAMING
    if texts and (len(texts) > 1 or type(texts[0].content) is not str):
        framing += sum([1 + parts_framing(entry.content) for entry in texts])
    if not calls:
        return _without_calls(message, framing, extras)
    framing += (_MESSAGE_FRAMING + _CALL_FRAMING) * len(calls)
    results = [_result_message(call, extras, "function_call" in message) for call in calls]
    return Rendered((message, *results), framing, tuple(extras))


def _without_calls(message: dict[str, Any], framing: int, extras: list[str]) -> Rendered:
    """An assistant message that must say something by itself: null alone is refused."""
    if message.get("content") is None and not _says_elsewhere(message):
        if not any(message[key] for key in message if key not in _OF_SAID):
            return _NOTHING
        message = {**message, "content": ""}
    return Rendered((message,), framing, tuple(extras))


def _says_elsewhere(message: Mapping[str, Any]) -> bool:
    return bool(message.get("refusal") or message.get("audio"))


def _assistant_message(turn: Turn, extras: list[str]) -> dict[str, Any]:
    texts, calls = turn.entries, turn.calls
    first = texts[0] if texts else calls[0].entry
    message: dict[str, Any] = {"role": "assistant", "content": _joined(texts, extras)}
    if calls:
        if len(calls) == 1 and _is_legacy(calls[0].entry):
            message["function_call"] = _wire_body(calls[0].entry, "arguments")
        else:
            message["tool_calls"] = [_wire_call(call) for call in calls]
    if first.raw_json is NO_JSON:
        return message
    return _as_spelled(message, kept_of(first, _NAME))


def _is_legacy(call: Entry) -> bool:
    return call.raw_json is not NO_JSON and kept_of(call, _NAME).style == "legacy"


def _as_spelled(message: dict[str, Any], kept: Kept) -> dict[str, Any]:
    """The message with its other keys, and its content blank in the way that it was."""
    message = beside(message, _sound_keys(kept.message))
    if kept.blank and (not message["content"] or _says_elsewhere(message)):
        if kept.blank == "absent":
            del message["content"]
        else:
            message["content"] = None if kept.blank == "null" else ""
    return message


def _sound_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """An assistant message's other keys; of its calls only a null, and of its sound the id."""
    kept = {
        key: value
        for key, value in given.items()
        if key not in _OF_SAID and (value is None or key not in _CALLS)
    }
    audio = kept.get("audio")
    if isinstance(audio, dict) and "id" in audio:
        kept["audio"] = {"id": audio["id"]}
    return kept


def _joined(texts: Sequence[Entry], extras: list[str]) -> Any:
    if not texts:
        return None
    if len(texts) == 1:
        content = texts[0].content
        if type(content) is str:
            return content
        return _wire_content(content, kept_of(texts[0], _NAME), extras) or None
    if all(isinstance(entry.content, str) for entry in texts):
        return "\n".join(entry.text for entry in texts)
    parts: list[dict[str, Any]] = []
    for entry in texts:
        wire = _wire_content(entry.content, kept_of(entry, _NAME), extras)
        parts += [{"type": "text", "text": wire}] if isinstance(wire, str) else wire
    return parts


def _wire_call(call: Call) -> dict[str, Any]:
    entry = call.entry
    if entry.raw_json is NO_JSON:
        return {
            "id": call.wire_id,
            "type": "function",
            "function": {"name": _wire_name(entry.name), "arguments": entry.text},
        }
    kept = kept_of(entry, _NAME)
    kind, key = ("custom", "input") if kept.style == "custom" else ("function", "arguments")
    wire = {"id": call.wire_id, "type": kind, kind: _wire_body(entry, key)}
    return beside(wire, others(kept.block, _OF_CALL))


def _wire_body(entry: Entry, key: str) -> dict[str, Any]:
    body = {"name": _wire_name(entry.name), key: entry.text}
    return beside(body, kept_of(entry, _NAME).body)


@lru_cache(maxsize=4_096)
def _wire_name(name: str | None) -> str:
    """A tool's name in the provider's alphabet."""
    return _TOOL_NAME.sub("_", name or "")[:64] or "tool"


def _result_message(call: Call, extras: list[str], legacy: bool) -> dict[str, Any]:
    message: dict[str, Any]
    result = call.result
    if legacy:
        message = {"role": "function", "name": _wire_name(call.entry.name)}
    else:
        message = {"role": "tool", "tool_call_id": call.wire_id}
    if result is None:
        extras.append(NO_RESULT)
        message["content"] = NO_RESULT
        return message
    content = result.content
    if type(content) is str and result.raw_json is NO_JSON:
        message["content"] = content
        return message
    kept = kept_of(result, _NAME)
    message["content"] = _wire_content(content, kept, extras)
    return beside(message, kept.message)


def _wire_content(content: Content, kept: Kept, extras: list[str]) -> Any:
    if isinstance(content, str):
        return content
    return [part for part in wire_parts(content, kept, _wire_part, extras) if part] or ""


def _wire_part(part: Part) -> dict[str, Any] | None:
    """A part in this provider's words, or None for what it has none for."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart() if part.url or part.data:
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            image = {"url": url, **({"detail": part.detail} if part.detail else {})}
            return {"type": "image_url", "image_url": image}
        case FilePart() if part.file_id or part.data:
            return {"type": "file", "file": _wire_file(part)}
        case OpaquePart(form) if form == _NAME:
            return opaque_block(part)
    return None


def _wire_file(part: FilePart) -> dict[str, str]:
    name, data = part.name, part.data
    if data and part.media_type:  # it came from elsewhere: here a file is a data URL with a name
        name, data = name or "file", f"data:{part.media_type};base64,{data}"
    known = {"file_id": part.file_id, "filename": name, "file_data": data}
    return {key: value for key, value in known.items() if value is not None}


# ---------------------------------------------------------------- parsing


class _Calls:
    """The calls of the messages so far: they name the results."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unnamed: list[str] = []  # the open calls without an id, in order

    def made(self, draft: Draft) -> None:
        """Takes note of a call."""
        name = draft.name or ""
        if draft.call_id is None:
            self._unnamed.append(name)
        else:
            self._names[draft.call_id] = name

    def answered(self, call_id: str | None, name: str | None) -> str | None:
        """The name of a result: its own, or that of its call by id, else by order."""
        if call_id is not None:
            return name or self._names.get(call_id)
        if name in self._unnamed:
            self._unnamed.remove(name)
        elif name is None and self._unnamed:
            return self._unnamed.pop(0)
        return name


def _parse_message(message: Any, label: str, calls: _Calls) -> list[Draft]:
    """The drafts of one message; `label` stands for its id until whoever adds them makes one."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _ROLES:
        raise FormatError(
            f"this is not an OpenAI chat message ({message!r:.80}): it needs a 'role' of "
            + ", ".join(_ROLES)
        )
    if role in ("tool", "function"):
        return [_parse_result(message, calls)]
    content, parts = _parse_content(message.get("content"))
    if role == "assistant":
        return _parse_assistant(message, content, parts, label, calls)
    style = "developer" if role == "developer" else ""
    kept = Kept(message=others(message, _OF_SAID), parts=parts, style=style)
    own: Any = "system" if role == "developer" else role
    return [keeping(Draft(type="message", role=own, content=content), _NAME, kept)]


def _parse_assistant(
    message: dict[str, Any],
    content: Content,
    parts: dict[str, dict[str, Any]],
    label: str,
    calls: _Calls,
) -> list[Draft]:
    made = [_parse_call(call, style, label) for call, style in _calls_of(message)]
    text = content or _said_elsewhere(message)
    blank = "" if content else _blank(message)
    if not text and blank == ("null" if made else "empty"):
        blank = ""  # so it is rendered anyway
    found: list[tuple[Draft, Kept]] = []
    if text or not made:
        own = Draft(
            type="message",
            role="assistant",
            content=text,
            message_id=label if made else None,
        )
        found.append((own, Kept(parts=parts)))
    found += made
    first, kept = found[0]
    found[0] = first, msgspec.structs.replace(kept, message=_sound_keys(message), blank=blank)
    for draft, _ in made:
        calls.made(draft)
    return [keeping(draft, _NAME, kept) for draft, kept in found]


def _blank(message: dict[str, Any]) -> str:
    """How a content that says nothing is spelled; an empty list, which is refused, is left out."""
    if message.get("content", []) == []:
        return "absent"
    return "null" if message["content"] is None else "empty"


def _said_elsewhere(message: dict[str, Any]) -> str:
    """The words of a message that has them in a refusal or in the transcript of its sound."""
    audio = message.get("audio")
    said = message.get("refusal") or (audio.get("transcript") if isinstance(audio, dict) else "")
    return said if isinstance(said, str) else ""


def _calls_of(message: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The calls of a message, each with how it is spelled."""
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise FormatError(f"'tool_calls' must be a list of calls, not {calls!r:.60}")
    found = [(call, "" if isinstance(call.get("function"), dict) else "custom") for call in calls]
    legacy = message.get("function_call")
    if legacy is not None:
        found.append(({"function": legacy}, "legacy"))
    return found


def _parse_call(call: dict[str, Any], style: str, label: str) -> tuple[Draft, Kept]:
    custom = style == "custom"
    body = call.get("custom" if custom else "function")
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise FormatError(f"the tool call {call!r:.80} names no function")
    if not isinstance(call.get("id"), str | None):
        raise FormatError(f"a call's id must be a string, not {call['id']!r:.40}")
    draft = Draft(
        type="tool_call",
        role="assistant",
        content=_arguments(body.get("input" if custom else "arguments")),
        call_id=call.get("id") or None,
        name=body["name"],
        message_id=label,
    )
    body = others(body, _OF_CUSTOM if custom else _OF_BODY)
    return draft, Kept(block=others(call, _OF_CALL), body=body, style=style)


def _arguments(given: Any) -> str:
    """Arguments as text; some servers send the object itself."""
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    return bytes(encode_json(given, "a call's arguments")).decode() or "{}"


def _parse_result(message: dict[str, Any], calls: _Calls) -> Draft:
    legacy = message["role"] == "function"  # it answers by name, whatever else it carries
    call_id = None if legacy else message.get("tool_call_id") or None
    if not isinstance(call_id, str | None):
        raise FormatError(f"'tool_call_id' must be a string, not {call_id!r:.40}")
    name = message.get("name") or None
    if not isinstance(name, str | None):
        raise FormatError(f"'name' must be a string, not {name!r:.40}")
    content, parts = _parse_content(message.get("content"))
    ours = _OF_FUNCTION if legacy else _OF_TOOL
    draft = Draft(
        type="tool_result",
        role="tool",
        content=content,
        call_id=call_id,
        name=calls.answered(call_id, name),
    )
    return keeping(draft, _NAME, Kept(message=others(message, ours), parts=parts))


def _parse_content(content: Any) -> tuple[Content, dict[str, dict[str, Any]]]:
    """A content, and the other keys of its parts."""
    if content is None:
        return "", {}
    if isinstance(content, str):
        return content, {}
    if not isinstance(content, list):
        raise FormatError(
            f"'content' must be text or a list of parts, not {type(content).__name__}"
        )
    return read_parts(content, _NAME, _known_part, _wire_part)


def _known_part(part: dict[str, Any]) -> Part | None:
    kind = part["type"]
    if kind == "image_url" and isinstance(part.get("image_url"), dict):
        image = part["image_url"]
        return ImagePart(url=image.get("url"), detail=image.get("detail"))
    if kind == "file" and isinstance(part.get("file"), dict):
        file = part["file"]
        return FilePart(
            name=file.get("filename"), file_id=file.get("file_id"), data=file.get("file_data")
        )
    return None
