"""OpenAI chat messages (`chat.completions`), the format of most loops, logs and gateways.

Framing: tokens = 3 + sum over messages of (4 + text), exact for gpt-4o and gpt-4.1 on recorded calls, and
at most one per message too many for the o-series and gpt-5; a tool call adds its function wrapper.

Mistral's messages have the same shape. A format of this family is a `Dialect`: its roles, its parts and
the ids of its calls. Further rules of a provider are in the format's own module.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

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
    TextPart,
)
from memman.errors import FormatError
from memman.formats.calls import Tool, call_entry, encoded, message_entries, result_entry
from memman.formats.parts import (
    Kept,
    ReadContent,
    WirePart,
    arguments_of,
    file_keys,
    keeping,
    kept_of,
    opaque_block,
    other_keys,
    parts_framing,
    present,
    read_content,
    wire_name,
    wire_parts,
    with_kept,
)
from memman.formats.plain import has_content, parse_each
from memman.formats.separate import SeparateMessages
from memman.formats.turns import NO_RESULT, NOTHING, delimited
from memman.protocols import Call, Rendered, Turn

MESSAGE_FRAMING = 4
CALL_FRAMING = 10
_CALLS = ("tool_calls", "function_call")

# The keys that rendering produces; every other key is kept and restored.
_OF_SAID = frozenset(("role", "content"))
_OF_TOOL = frozenset(("role", "content", "tool_call_id"))
_OF_FUNCTION = frozenset(("role", "content", "name"))
_OF_CALL = frozenset(("id", "type", "function", "custom"))
_OF_BODY = frozenset(("name", "arguments"))
_OF_CUSTOM = frozenset(("name", "input"))
_NAME = "openai-chat"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class Dialect(msgspec.Struct, frozen=True):
    """The properties of one provider's messages.

    Args:
        name: the name of the format.
        title: the name in error messages.
        roles: the roles of messages.
        known_part: reads a part of a content; None if it has no type of ours.
        wire_part: writes a part; None if the provider has no type for it.
        call_id: returns a call's id on the wire.
        loose: arguments that came as an object are restored as one, and empty lists as such.
        spoken: the types of parts in assistant messages; if empty, any that the API has returned.
    """

    name: str
    title: str
    roles: tuple[str, ...]
    known_part: Callable[[JSONObject], Part | None]
    wire_part: WirePart
    call_id: Callable[[Call], str]
    loose: bool = False
    spoken: tuple[str, ...] = ()

    def spoken_part(self, part: Part) -> JSONObject | None:
        """Return the part as the assistant sends it, or None if it may not."""
        block = spoken_part(self.name, part)
        return block if block and (not self.spoken or block["type"] in self.spoken) else None


def spoken_part(name: str, part: Part) -> JSONObject | None:
    """Return a part of an assistant message in a provider's form: texts, and the provider's own blocks.

    These APIs accept no image and no file in an assistant message.
    """
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case OpaquePart(form) if form == name:
            return opaque_block(part)
    return None


def parse_messages(dialect: Dialect, messages: Sequence[JSON]) -> list[NewEntry]:
    """Return one entry for a message's text and one for each call; nothing in a message is lost."""
    calls = _Calls()
    return parse_each(messages, lambda one, label: _parse_message(dialect, one, label, calls))


def render_turn(dialect: Dialect, turn: Turn) -> Rendered:
    """Return the messages of a turn; results directly follow the message with their calls."""
    if turn.kind == "assistant":
        return _render_assistant(dialect, turn)
    if turn.kind == "user" or turn.kind == "system":
        return _render_said(dialect, turn.kind, turn.entries[0])
    text, extras = delimited(turn)
    return Rendered(({"role": "user", "content": text},), MESSAGE_FRAMING, extras)


def restore_turn(dialect: Dialect, turn: Turn) -> list[JSONObject] | None:
    """Return an assistant's message, also without a content, or results, with their original ids."""
    dialect = msgspec.structs.replace(dialect, call_id=attrgetter("wire_id"))
    if turn.kind == "assistant":
        return [_assistant_message(dialect, turn, [])]
    if turn.kind == "result":
        return [
            _result_message(dialect, call, [], _is_legacy(dialect, call.result))
            for call in turn.answers
        ]
    return None


# ---------------------------------------------------------------- rendering


def _render_said(dialect: Dialect, role: str, entry: Entry) -> Rendered:
    """Render a user or system message with parts or kept keys."""
    kept = kept_of(entry, dialect.name)
    extras: list[str] = []
    content = _wire_content(entry.content, kept, dialect.wire_part, extras)
    if role == "system" and kept.style == "developer" and kept.style in dialect.roles:
        role = "developer"
    message = with_kept({"role": role, "content": content}, kept.message)
    return Rendered((message,), MESSAGE_FRAMING + parts_framing(entry.content), tuple(extras))


def _render_assistant(dialect: Dialect, turn: Turn) -> Rendered:
    texts = turn.entries
    extras: list[str] = []
    message = _assistant_message(dialect, turn, extras)
    framing = MESSAGE_FRAMING
    if texts and (len(texts) > 1 or type(texts[0].content) is not str):
        framing += sum(1 + parts_framing(entry.content) for entry in texts)
    if not turn.calls:
        if not message.get("content") and not _says_elsewhere(message):
            return NOTHING  # gateways reject a message without a content
        return Rendered((message,), framing, tuple(extras))
    framing += (MESSAGE_FRAMING + CALL_FRAMING) * len(turn.calls)
    legacy = bool(message.get("function_call"))  # null if that came next to tool_calls
    results = [_result_message(dialect, call, extras, legacy) for call in turn.answers]
    return Rendered((message, *results), framing, tuple(extras))


def _says_elsewhere(message: Mapping[str, JSON]) -> bool:
    return bool(message.get("refusal") or message.get("audio"))


def _assistant_message(dialect: Dialect, turn: Turn, extras: list[str]) -> JSONObject:
    texts, calls = turn.entries, turn.calls
    first = texts[0] if texts else calls[0].entry
    message: JSONObject = {"role": "assistant", "content": _joined(dialect, texts, extras)}
    if calls:
        if len(calls) == 1 and _is_legacy(dialect, calls[0].entry):
            message["function_call"] = _wire_body(dialect, calls[0].entry, "arguments")
        else:
            message["tool_calls"] = [_wire_call(dialect, call) for call in calls]
    return _as_spelled(message, kept_of(first, dialect.name), dialect.loose)


def _is_legacy(dialect: Dialect, entry: Entry | None) -> bool:
    return "function" in dialect.roles and kept_of(entry, dialect.name).style == "legacy"


def _as_spelled(message: JSONObject, kept: Kept, loose: bool) -> JSONObject:
    """Restore the message's other keys, and the spelling of a blank content."""
    message = with_kept(message, _sound_keys(kept.message, loose))
    if kept.blank and (not message["content"] or _says_elsewhere(message)):
        if kept.blank == "absent":
            del message["content"]
        else:
            message["content"] = {"null": None, "list": []}.get(kept.blank, "")
    return message


def _sound_keys(given: Mapping[str, JSON], loose: bool) -> JSONObject:
    """Return an assistant message's other keys; of its calls only that there are none, of its audio only
    the id.
    """
    kept = {
        key: value
        for key, value in given.items()
        if key not in _OF_SAID and (value is None or key not in _CALLS or (loose and value == []))
    }
    audio = kept.get("audio")
    if isinstance(audio, dict) and "id" in audio:
        kept["audio"] = {"id": audio["id"]}
    return kept


def _joined(dialect: Dialect, texts: Sequence[Entry], extras: list[str]) -> JSON:
    if not texts:
        return None
    wires = [
        _wire_content(entry.content, kept_of(entry, dialect.name), dialect.spoken_part, extras)
        for entry in texts
    ]
    if len(wires) == 1:
        return wires[0] if isinstance(texts[0].content, str) else wires[0] or None
    if all(isinstance(wire, str) for wire in wires):
        return "\n".join(wires)
    typed = ([{"type": "text", "text": wire}] if isinstance(wire, str) else wire for wire in wires)
    return [part for parts in typed for part in parts]


def _wire_call(dialect: Dialect, call: Call) -> JSONObject:
    entry = call.entry
    kept = kept_of(entry, dialect.name)
    custom = kept.style == "custom" and not dialect.loose
    kind, key = ("custom", "input") if custom else ("function", "arguments")
    wire = {"id": dialect.call_id(call), "type": kind, kind: _wire_body(dialect, entry, key)}
    return with_kept(wire, other_keys(kept.block, _OF_CALL))


def _wire_body(dialect: Dialect, entry: Entry, key: str) -> JSONObject:
    kept = kept_of(entry, dialect.name)
    given = arguments_of(entry) if kept.style == "object" and dialect.loose else None
    body = {"name": wire_name(entry.name), key: entry.text if given is None else given}
    return with_kept(body, kept.body)


def _result_message(dialect: Dialect, call: Call, extras: list[str], legacy: bool) -> JSONObject:
    message: JSONObject
    result = call.result
    if legacy:
        message = {"role": "function", "name": wire_name(call.entry.name)}
    else:
        message = {"role": "tool", "tool_call_id": dialect.call_id(call)}
    if result is None:
        extras.append(NO_RESULT)
        message["content"] = NO_RESULT
        return message
    kept = kept_of(result, dialect.name)
    message["content"] = _wire_content(result.content, kept, dialect.wire_part, extras)
    return with_kept(message, kept.message)


def _wire_content(content: Content, kept: Kept, wire: WirePart, extras: list[str]) -> JSON:
    if isinstance(content, str):
        return content
    parts = present(wire_parts(content, kept, wire, extras))
    # The text of a message that has the sources itself.
    if len(parts) == 1 and parts[0].get("annotations", 0) == kept.message.get("annotations"):
        return parts[0]["text"]
    return parts or ""


# ---------------------------------------------------------------- parsing


class _Calls:
    """The calls of the messages so far, which name the results."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        # The open calls without an id by their number, in order, and the numbers by name.
        self._open: OrderedDict[int, str] = OrderedDict()
        self._numbers: dict[str, deque[int]] = {}
        self._made = 0

    def made(self, new_entry: NewEntry) -> None:
        """Add a call."""
        name = new_entry.name or ""
        if new_entry.call_id is not None:
            self._names[new_entry.call_id] = name
            return
        self._made += 1
        self._open[self._made] = name
        self._numbers.setdefault(name, deque()).append(self._made)

    def answered(self, call_id: str | None, name: str | None) -> str | None:
        """Return the name of a result: its own, or that of its call, by id or else by order."""
        if call_id is not None:
            return name or self._names.get(call_id)
        if name is None and self._open:
            name = self._open[next(iter(self._open))]
        if name is not None and self._numbers.get(name):
            del self._open[self._numbers[name].popleft()]
        return name


def _parse_message(dialect: Dialect, message: JSON, label: str, calls: _Calls) -> list[NewEntry]:
    """Return the entries of one message; `label` takes the place of a message id until one is made."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in dialect.roles:
        raise FormatError(
            f"this is not an {dialect.title} message ({shape_of(message)}): it needs a 'role' of "
            + ", ".join(dialect.roles)
        )
    if not isinstance(message.get("name"), str | None):
        raise FormatError(f"'name' must be a string, not {safe_repr(message['name'], 40)}")
    if role in ("tool", "function"):
        return [_parse_result(dialect, message, calls)]
    spoken = role == "assistant"
    if not (spoken or has_content(message)):
        raise FormatError(f"it has the role {role!r} and no content; it needs a 'content'")
    content, parts = _parse_content(dialect, message.get("content"), spoken)
    if isinstance(content, str) and (sources := message.get("annotations")):
        block = {"type": "text", "text": content, "annotations": sources}
        read, _ = _parse_content(dialect, [block], spoken)
        content = read if isinstance(read[0], OpaquePart) else content
    if role == "assistant":
        return _parse_assistant(dialect, message, content, Kept(parts=parts), label, calls)
    style = "developer" if role == "developer" else ""
    kept = Kept(message=other_keys(message, _OF_SAID), parts=parts, style=style)
    own: JSON = "system" if role == "developer" else role
    said = NewEntry(type="message", role=own, content=content, name=message.get("name"))
    return [keeping(said, dialect.name, kept)]


def _parse_assistant(
    dialect: Dialect, message: JSONObject, content: Content, kept: Kept, label: str, calls: _Calls
) -> list[NewEntry]:
    made = [_parse_call(call, style, label) for call, style in _calls_of(message, dialect.loose)]
    text = content or _said_elsewhere(message)
    blank = "" if content else _blank(message, dialect.loose)
    if not text and blank == ("null" if made else "empty"):
        blank = ""  # the default spelling
    for new_entry, _ in made:
        calls.made(new_entry)
    return message_entries(
        dialect.name,
        "assistant",
        text,
        kept,
        made,
        label,
        name=message.get("name"),
        message=_sound_keys(message, dialect.loose),
        blank=blank,
    )


def _blank(message: JSONObject, loose: bool) -> str:
    """Return the spelling of a blank content; an empty list is left out if the provider rejects it."""
    if message.get("content", []) == []:
        return "list" if loose and "content" in message else "absent"
    return "null" if message["content"] is None else "empty"


def _said_elsewhere(message: JSONObject) -> str:
    """Return the words of a message from its refusal or the transcript of its audio."""
    audio = message.get("audio")
    text = message.get("refusal") or (audio.get("transcript") if isinstance(audio, dict) else "")
    return text if isinstance(text, str) else ""


def _calls_of(message: JSONObject, loose: bool) -> list[tuple[JSONObject, str]]:
    """Return the calls of a message, each with its spelling."""
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise FormatError(f"'tool_calls' must be a list of calls, not {shape_of(calls)}")
    found = [(call, _style(call.get("function"), loose)) for call in calls]
    legacy = message.get("function_call")
    if legacy is not None:
        found.append(({"function": legacy}, "legacy"))
    return found


def _style(body: JSON, loose: bool) -> str:
    """Return the spelling of a call: a function's, with arguments as an object, or a custom tool's."""
    if not isinstance(body, dict):
        return "custom"
    return "object" if loose and isinstance(body.get("arguments"), dict) else ""


def _parse_call(call: JSONObject, style: str, label: str) -> Tool:
    custom = style == "custom"
    body = call.get("custom" if custom else "function")
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise FormatError(f"the tool call {shape_of(call)} names no function")
    if not isinstance(call.get("id"), str | None):
        raise FormatError(f"a call's id must be a string, not {safe_repr(call['id'], 40)}")
    given = body.get("input" if custom else "arguments")
    # Some servers send the object itself.
    text = given if isinstance(given, str) else encoded(given, "a call's arguments")
    new_entry = call_entry("" if given is None else text, call.get("id"), body["name"], label)
    body = other_keys(body, _OF_CUSTOM if custom else _OF_BODY)
    if body.get("parsed_arguments") is not None:  # the SDK's second copy of the arguments
        del body["parsed_arguments"]
    return new_entry, Kept(block=other_keys(call, _OF_CALL), body=body, style=style)


def _parse_result(dialect: Dialect, message: JSONObject, calls: _Calls) -> NewEntry:
    legacy = message["role"] == "function"  # it answers by name, whatever its other keys
    call_id = None if legacy else message.get("tool_call_id")
    if not isinstance(call_id, str | None):
        raise FormatError(f"'tool_call_id' must be a string, not {safe_repr(call_id, 40)}")
    call_id = call_id or None
    name = message.get("name") or None
    content, parts = _parse_content(dialect, message.get("content"))
    ours = _OF_FUNCTION if legacy else _OF_TOOL
    new_entry = result_entry(content, call_id, calls.answered(call_id, name))
    kept = Kept(message=other_keys(message, ours), parts=parts, style="legacy" if legacy else "")
    return keeping(new_entry, dialect.name, kept)


def _parse_content(dialect: Dialect, content: JSON, spoken: bool = False) -> ReadContent:
    """Return a content, and the other keys of its parts.

    Parts of an assistant message without a type of ours (`spoken`) are restored unchanged.
    """
    wire = dialect.spoken_part if spoken else dialect.wire_part
    return read_content(content, dialect.name, dialect.known_part, wire)


class ChatFormat(SeparateMessages):
    """The base of formats that differ in a dialect, which a subclass sets."""

    request_framing = 3
    message_framing = MESSAGE_FRAMING
    _dialect: Dialect

    def _are_chat(self, messages: Sequence[JSON]) -> bool:
        """Return True if there is a message, and all have roles of the dialect."""
        return bool(messages) and all(
            isinstance(item, dict) and item.get("role") in self._dialect.roles and has_content(item)
            for item in messages
        )

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for a message's text and one for each call; nothing in a message is lost."""
        return parse_messages(self._dialect, messages)

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of a turn; results directly follow the message with their calls."""
        return render_turn(self._dialect, turn)

    def restore(self, turn: Turn) -> list[JSONObject] | None:
        """Return an assistant's message, also without a content, or results, with their original ids."""
        return restore_turn(self._dialect, turn)


# ---------------------------------------------------------------- OpenAI


def _wire_part(part: Part) -> JSONObject | None:
    """Return a part in this provider's form, or None if it has none."""
    match part:
        case ImagePart() if part.url or part.data:
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            image = {"url": url, **({"detail": part.detail} if part.detail else {})}
            return {"type": "image_url", "image_url": image}
        case FilePart() if part.file_id or part.data:
            return {"type": "file", "file": file_keys(part)}
    return spoken_part(_NAME, part)


def _known_part(part: JSONObject) -> Part | None:
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


_DIALECT = Dialect(
    name=_NAME,
    title="OpenAI chat",
    roles=_ROLES,
    known_part=_known_part,
    wire_part=_wire_part,
    call_id=attrgetter("wire_id"),
)


class OpenAIChatFormat(ChatFormat):
    """`{"role": ..., "content": ..., "tool_calls": [...]}` and back."""

    name = _NAME
    takes_cache_key = True
    _dialect = _DIALECT

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return 3 for tool roles and `tool_calls`, 1 for any list of role and content."""
        if not self._are_chat(messages):
            return 0
        if any(item["role"] in ("tool", "function", "developer", "system") for item in messages):
            return 3
        return 3 if any("tool_calls" in item for item in messages) else 1
