"""OpenAI Responses items: messages, calls, outputs and reasoning in one list, tied by `call_id`.

System messages are inline, as the API allows: `instructions` are not kept from one request to the next,
but an item is. Framing is that of chat completions, which recorded calls confirm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from memman.display import shape_of
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
from memman.formats.calls import call_entry, result_entry, results_of
from memman.formats.openai_chat import CALL_FRAMING, MESSAGE_FRAMING
from memman.formats.parts import (
    Kept,
    compaction_entry,
    compaction_in,
    file_keys,
    has_unsaid,
    interleaved,
    is_half,
    is_typed,
    keeping,
    kept_of,
    objects_in,
    opaque,
    opaque_block,
    other_keys,
    own_block,
    parts_framing,
    present,
    read_as_text,
    read_content,
    read_parts,
    typed_entry,
    wire_name,
    wire_parts,
    with_kept,
)
from memman.formats.plain import parse_each
from memman.formats.separate import SeparateMessages
from memman.formats.turns import NO_RESULT, NOT_SAID, NOTHING, delimited
from memman.formats.wire.kinds import Kind
from memman.formats.wire.reading import is_compaction, kind_of, wrapped
from memman.formats.wire.tables import kinds_of
from memman.protocols import Call, Rendered, Turn

_NAME = "openai-responses"
_ROLES = ("system", "developer", "user", "assistant")
_ID_LENGTH = 64
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_HALVES = {"tool_call": "u", "tool_result": ""}
_OUTPUTS = ("function_call_output", "custom_tool_call_output")

# The keys that rendering produces; every other key is kept and restored.
_OF_MESSAGE = frozenset(("role", "content"))
_OF_CALL = frozenset(("type", "call_id", "name", "arguments", "input"))
_OF_OUTPUT = frozenset(("type", "call_id", "output"))


class OpenAIResponsesFormat(SeparateMessages):
    """The items of a Responses request's `input`, and of a response's `output`."""

    name = _NAME
    takes_cache_key = True
    request_framing = 3
    message_framing = MESSAGE_FRAMING
    results_anywhere = True

    # ------------------------------------------------------------ in

    def detect(self, messages: Sequence[JSON]) -> int:
        """Return the highest certainty for items other than messages, and for parts that only this API
        has.
        """
        if not messages or not all(map(_is_item, messages)):
            return 0
        if not any(
            _is_said(item) or _is_own(item) or is_half(_NAME, item, kind_of(_NAME, item))
            for item in messages
        ):
            return 0  # a list of types that this API does not have
        parts = filter(is_typed, objects_in(messages, "content"))
        if any("role" not in item for item in messages) or any(map(_is_part, parts)):
            return 5
        marked = any(
            item.get("type") == "message" and isinstance(item["content"], str) for item in messages
        )
        return 4 if marked else 1

    def parse(self, messages: Sequence[JSON]) -> list[NewEntry]:
        """Return one entry for each item; those of one answer of the model share a `message_id`."""
        parser = _Parser()
        return parser.finished(parse_each(messages, parser.parse))

    # ------------------------------------------------------------ out

    def render(self, turn: Turn) -> Rendered:
        """Return the items of a turn; outputs stay in their position, behind the items with their calls."""
        kind = turn.kind
        if kind == "assistant":
            return _render_assistant(turn)
        if kind == "user" or kind == "system":
            return _render_said(kind, turn.entries[0])
        if kind == "result":  # its framing is its call's
            parts: list[str] = []
            return Rendered((_wire_output(turn.answers[0], parts),), 0, tuple(parts))
        if (own := compaction_in(turn.entries[0], _NAME)) is not None:
            return Rendered((own,), MESSAGE_FRAMING)
        text, extras = delimited(turn)
        return Rendered(({"role": "user", "content": text},), MESSAGE_FRAMING, extras)

    def restore(self, turn: Turn) -> list[JSONObject] | None:
        """Return the model's items of a turn with their ids, reasoning without a result included."""
        if turn.kind == "result" and (own := own_block(turn.answers[0].result, _NAME)):
            return [own[0]]
        if turn.kind != "assistant":
            return None
        spoken = present(_restored_spoken(entry) for entry in turn.entries)
        calls = [
            own[0] if (own := own_block(call.entry, _NAME)) else _wire_call(call)
            for call in turn.calls
        ]
        return [*spoken, *calls]


def _is_item(item: JSON) -> bool:
    """Return True for an item with a type, or a message with a known role."""
    if not isinstance(item, dict):
        return False
    if _is_own(item):
        return True
    if not _is_said(item) and is_typed(item) and item["type"] != "message":
        return not {"content", "text", "parts"} & item.keys() or item["type"] == "reasoning"
    spoken = item.get("role") in _ROLES and item.get("type", "message") == "message"
    calls = "tool_calls" in item or "function_call" in item
    return spoken and not calls and isinstance(item.get("content"), str | list)


def _is_said(item: JSONObject) -> bool:
    """Return True if an item is a message; some others have a role too, such as tools added later."""
    if _is_own(item):
        return False
    return "role" in item and ("content" in item or item.get("type", "message") == "message")


def _is_own(item: JSONObject) -> bool:
    """Return True for an item of a known type that is no message."""
    return is_typed(item) and item["type"] != "message" and item["type"] in kinds_of(_NAME)


def _is_part(block: JSONObject, role: str = "") -> bool:
    """Return whether a block is a part of a message, of this role if one is given."""
    row = kind_of(_NAME, block)
    return row is not None and row.part and role in ("", row.role)


# ---------------------------------------------------------------- rendering


def _render_said(role: str, entry: Entry) -> Rendered:
    kept = kept_of(entry, _NAME)
    extras: list[str] = []
    if role == "system" and kept.style == "developer":
        role = "developer"
    content: JSON = entry.content
    if not isinstance(content, str):
        content = present(wire_parts(content, kept, _wire_part, extras)) or ""
    message = with_kept({"role": role, "content": content}, _of_message(kept))
    return Rendered((message,), MESSAGE_FRAMING + parts_framing(entry.content), tuple(extras))


def _render_assistant(turn: Turn) -> Rendered:
    extras: list[str] = []
    calls = [(call.entry, _wire_call(call, call in turn.answers)) for call in turn.calls]
    spoken = [
        None if (item := _wire_spoken(entry, extras)) is None else (entry, item)
        for entry in turn.entries
    ]
    first = turn.entries[0] if turn.entries else turn.calls[0].entry
    made = _sound(interleaved(kept_of(first, _NAME).order, spoken, calls))
    framing = MESSAGE_FRAMING * (len(made) - len(calls))
    framing += sum(parts_framing(entry.content) for entry in turn.entries)
    framing += (MESSAGE_FRAMING + CALL_FRAMING) * len(calls)
    items = [item for _, item in made] + [_wire_output(call, extras) for call in turn.answers]
    sources = (*((entry,) for entry, _ in made), *results_of(turn.answers))
    return Rendered(tuple(items), framing, tuple(extras), sources) if items else NOTHING


def _sound(made: list[tuple[Entry, JSONObject]]) -> list[tuple[Entry, JSONObject]]:
    """Keep reasoning only before its result, and ids only next to their reasoning.

    Items that came after reasoning are rejected with their ids, but without it.
    """
    sound: list[tuple[Entry, JSONObject]] = []
    for entry, item in reversed(made):
        if item.get("type") != "reasoning" or sound:
            sound.append((entry, item))
    sound.reverse()
    if any(item.get("type") == "reasoning" for _, item in sound):
        return sound
    return [
        (entry, other_keys(item, ("id",)))
        if "reasoned" in kept_of(entry, _NAME).style and not _is_tied_by_id(item)
        else (entry, item)
        for entry, item in sound
    ]


def _is_tied_by_id(item: JSONObject) -> bool:
    kind = kind_of(_NAME, item)
    return kind is not None and kind.id == "id"


def _of_message(kept: Kept) -> Mapping[str, JSON]:
    """Return a message's other keys; another type would make another item of it."""
    if kept.message.get("type", "message") == "message":
        return kept.message
    return {key: value for key, value in kept.message.items() if key != "type"}


def _wire_spoken(entry: Entry, extras: list[str]) -> JSONObject | None:
    """Return an assistant's entry as an item of its own type or a message; None if it is empty."""
    content = entry.content
    kept = kept_of(entry, _NAME)
    if (own := own_block(entry, _NAME)) is not None:
        return own[0]
    if isinstance(content, str):
        return with_kept({"role": "assistant", "content": content}, _of_message(kept))
    if kept.style.startswith("parts"):
        parts = present(wire_parts(content, kept, _wire_output_part, extras))
        return with_kept({"role": "assistant", "content": parts or ""}, _of_message(kept))
    if len(content) == 1 and isinstance(content[0], OpaquePart) and content[0].format == _NAME:
        item = opaque_block(content[0])
        row = None if item is None else kind_of(_NAME, item)
        if row is not None and not row.plain and not row.part:
            return item
    unsaid = has_unsaid(content)
    if not entry.text and not unsaid:
        return None
    extras += [NOT_SAID] if unsaid else []
    # The parts of an answer are the API's own; parts from elsewhere become text.
    return {"role": "assistant", "content": entry.text + (NOT_SAID if unsaid else "")}


def _restored_spoken(entry: Entry) -> JSONObject | None:
    """Return an assistant's entry as it was added, also without parts."""
    item = _wire_spoken(entry, [])
    return {**item, "content": []} if item is not None and entry.content == () else item


def _wire_call(call: Call, is_answered: bool = True) -> JSONObject:
    """Return a call; one that this request does not answer, even with a placeholder, is as it was."""
    entry = call.entry
    own = _own_call(call) if is_answered or call.result else own_block(entry, _NAME)
    if own is not None:
        return {**own[0], own[1].id: _wire_id(call)}
    kept = kept_of(entry, _NAME)
    kind = "custom_tool_call" if _is_custom(entry) else "function_call"
    item = {"type": kind, "call_id": _wire_id(call), "name": wire_name(entry.name)}
    item[_CALLS[kind]] = entry.text
    return with_kept(item, kept.block)


def _own_call(call: Call) -> tuple[JSONObject, Kind] | None:
    """Return a call as the item that it was, if an item can answer it.

    Otherwise both are a function call and its output, which can have any text.
    """
    own = own_block(call.entry, _NAME)
    if own is None:
        return None
    row, answer = own[1], own_block(call.result, _NAME)
    if answer is None:
        return own if _stand_in(row) is not None else None
    pairs = answer[1].type in row.partners if row.partners else answer[1].tool == row.tool
    return own if pairs else None


def _stand_in(call: Kind) -> Kind | None:
    """Return the row of a result that can have any text, for a call of this type; None without one."""
    found = kinds_of(_NAME)[call.partners[0]] if call.partners else None
    return found if found is not None and found.said else None


def _own_output(call: Call, row: Kind, extras: list[str]) -> JSONObject:
    """Return the output of a typed call: the item that it was, or one with a text."""
    answer = own_block(call.result, _NAME)
    if answer is not None:
        return {**answer[0], answer[1].id: _wire_id(call)}
    stand_in = _stand_in(row) or row
    text = NO_RESULT if call.result is None else call.result.text
    extras += [NO_RESULT] if call.result is None else []
    item = {"type": stand_in.type, stand_in.id: _wire_id(call)}
    return {**item, stand_in.said: wrapped(stand_in, text), **stand_in.shape}


def _is_custom(entry: Entry) -> bool:
    return kept_of(entry, _NAME).style.startswith("custom")


def _wire_id(call: Call) -> str:
    """Return the call's id within the provider's length, unique within the request."""
    if len(call.unique_id) <= _ID_LENGTH:
        return call.unique_id
    return f"{call.unique_id[:40]}--{call.entry.seq}"


def _wire_output(call: Call, extras: list[str]) -> JSONObject:
    if (own := _own_call(call)) is not None:
        return _own_output(call, own[1], extras)
    kind = _OUTPUTS[_is_custom(call.entry)]
    item: JSONObject = {"type": kind, "call_id": _wire_id(call)}
    result = call.result
    if result is None:
        extras.append(NO_RESULT)
        return {**item, "output": NO_RESULT}
    kept = kept_of(result, _NAME)
    item["output"] = result.content
    if not isinstance(result.content, str):
        item["output"] = present(wire_parts(result.content, kept, _wire_part, extras)) or ""
    return with_kept(item, kept.block)


def _wire_part(part: Part) -> JSONObject | None:
    """Return an input part in the provider's form, or None if it cannot be represented."""
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case ImagePart() if part.url or part.data:
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
            # The SDK's type requires a detail, the API does not: "" is an image without one.
            detail = {} if part.detail == "" else {"detail": part.detail or "auto"}
            return {"type": "input_image", "image_url": url, **detail}
        case FilePart():
            is_web = part.url is not None and part.url.startswith(("https://", "http://"))
            if part.file_id or part.data or is_web:
                return {"type": "input_file", **file_keys(part, part.url if is_web else None)}
        case OpaquePart(form) if form == _NAME:
            block = opaque_block(part)
            return block if block and _is_part(block, "user") else None
    return None


def _wire_output_part(part: Part) -> JSONObject | None:
    """Return a part of the model's output: text, or the API's own."""
    if isinstance(part, TextPart):
        return {"type": "output_text", "text": part.text}
    if not isinstance(part, OpaquePart) or part.format != _NAME:
        return None
    block = opaque_block(part)
    return block if block and _is_part(block, "assistant") else None


# ---------------------------------------------------------------- parsing


class _Parser:
    """Reads items one by one, names the outputs, and finds the items of one answer."""

    def __init__(self) -> None:
        self._kept: list[Kept] = []
        self._names: dict[str, str] = {}
        self._answer: str | None = None  # the label of the answer that the next item may belong to
        self._order = ""  # its items: messages and others "t", calls "u"
        self._spoke = False
        self._reasoned = False

    def parse(self, item: JSON, label: str) -> list[NewEntry]:
        """Return the entry of an item."""
        if not _is_item(item):
            raise FormatError(
                f"this is not an item of the Responses API ({shape_of(item)}): it needs a 'type', or a "
                "'role' of " + ", ".join(_ROLES) + " and a 'content'"
            )
        kind = "message" if _is_said(item) else item["type"]
        row = kind_of(_NAME, item)
        if is_compaction(_NAME, item):
            self._answer = None
            new_entry, kept = compaction_entry(_NAME, item), Kept(own=item)
        elif row is not None and not row.plain and is_half(_NAME, item, row):
            new_entry, kept = self._typed(item, row, label)
        elif kind in _OUTPUTS or (kind == "message" and item["role"] != "assistant"):
            self._answer = None
            new_entry, kept = self._output(item) if kind in _OUTPUTS else _parse_said(item)
        else:
            self._begin(kind, label)
            if kind in _CALLS:
                new_entry, kept = self._call(item, kind)
            else:
                new_entry, kept = _parse_spoken(item, kind)
            new_entry = msgspec.structs.replace(new_entry, message_id=self._answer)
            kept = self._after_reasoning(kind, kept)
        self._kept.append(kept)
        return [new_entry]

    def finished(self, new_entries: list[NewEntry]) -> list[NewEntry]:
        """Return all entries with their kept keys; the first of an answer has its order."""
        answers: dict[str | None, list[int]] = {}
        for number, new_entry in enumerate(new_entries):
            answers.setdefault(new_entry.message_id, []).append(number)
        answers.pop(None, None)  # items of no answer
        for first, *others in answers.values():
            kinds = [new_entries[number].type for number in (first, *others)]
            order = "".join(_HALVES.get(kind, "t") for kind in kinds)
            if "ut" in order:
                self._kept[first] = msgspec.structs.replace(self._kept[first], order=order)
        return [
            keeping(new_entry, _NAME, kept)
            for new_entry, kept in zip(new_entries, self._kept, strict=True)
        ]

    def _begin(self, kind: str, label: str, call: bool = False) -> None:
        """Continue the current answer, or begin one: two messages in a row are two answers."""
        again = self._spoke and "u" not in self._order and kind in ("message", "reasoning")
        if self._answer is None or again:
            self._answer, self._order, self._spoke, self._reasoned = label, "", False, False
        self._order += "tu"[call or kind in _CALLS]
        self._spoke = self._spoke or kind == "message"

    def _after_reasoning(self, kind: str, kept: Kept) -> Kept:
        if kind == "reasoning":
            self._reasoned = True
        elif self._reasoned:
            return msgspec.structs.replace(kept, style=f"{kept.style} reasoned".strip())
        return kept

    def _typed(self, item: JSONObject, row: Kind, label: str) -> tuple[NewEntry, Kept]:
        """Return the entry of a call of a type of its own, or of what answers it."""
        call = row.half == "call"
        if call or row.role == "assistant":
            self._begin(item["type"], label, call)
        else:
            self._answer = None
        kept = Kept(own=item)
        new_entry = typed_entry(_NAME, item, row, self._answer, self._names)
        return new_entry, self._after_reasoning(item["type"], kept) if call else kept

    def _call(self, item: JSONObject, kind: str) -> tuple[NewEntry, Kept]:
        call_id, name = item.get("call_id"), item.get("name")
        if not isinstance(call_id, str) or not isinstance(name, str):
            raise FormatError(f"a {kind} needs a call_id and a name: {shape_of(item)}")
        given = item.get(_CALLS[kind])
        if not isinstance(given, str | None):
            raise FormatError(f"{_CALLS[kind]} of a {kind} must be a string, not {shape_of(given)}")
        self._names[call_id] = name
        new_entry = call_entry(given or "", call_id, name, None)
        style = "custom" if kind == "custom_tool_call" else ""
        return new_entry, Kept(block=other_keys(item, _OF_CALL), style=style)

    def _output(self, item: JSONObject) -> tuple[NewEntry, Kept]:
        call_id, output = item.get("call_id"), item.get("output")
        if not isinstance(call_id, str):
            raise FormatError(f"a {item['type']} needs a call_id: {shape_of(item)}")
        if output is None:
            raise FormatError("an output must be text or a list of parts, not null")
        content, more = read_content(output, _NAME, _known_part, _wire_part, "an output")
        new_entry = result_entry(content, call_id, self._names.get(call_id))
        style = "custom" if item["type"] == "custom_tool_call_output" else ""
        return new_entry, Kept(block=other_keys(item, _OF_OUTPUT), parts=more, style=style)


def _parse_said(item: JSONObject) -> tuple[NewEntry, Kept]:
    content, more = _parse_content(item["content"], spoken=False)
    style = "developer" if item["role"] == "developer" else ""
    role: JSON = "system" if style else item["role"]
    kept = Kept(message=other_keys(item, _OF_MESSAGE), parts=more, style=style)
    return NewEntry(type="message", role=role, content=content), kept


def _parse_spoken(item: JSONObject, kind: str) -> tuple[NewEntry, Kept]:
    """Return the model's message, or an item that only its provider understands."""
    if kind != "message":
        text = read_as_text(_NAME, item)
        own: Content = text or (opaque(_NAME, item, "an item"),)
        kept = Kept(own=item) if text else Kept()
        return NewEntry(type="message", role="assistant", content=own), kept
    content, more = _parse_content(item["content"], spoken=True)
    style = "" if isinstance(content, str) else "parts"
    kept = Kept(message=other_keys(item, _OF_MESSAGE), parts=more, style=style)
    return NewEntry(type="message", role="assistant", content=content), kept


def _parse_content(content: JSON, spoken: bool) -> tuple[Content, dict[str, JSONObject]]:
    if isinstance(content, str):
        return content, {}
    # Input text in an output, or the reverse, is rejected.
    text, other = ("output_text", "input_text") if spoken else ("input_text", "output_text")
    parts = [
        {**part, "type": text} if isinstance(part, dict) and part.get("type") == other else part
        for part in content
    ]
    return read_parts(parts, _NAME, _known_part, _wire_output_part if spoken else _wire_part)


def _known_part(part: JSONObject) -> Part | None:
    match part["type"]:
        case "input_text" | "output_text":
            if not isinstance(part.get("text"), str):
                raise FormatError(f"the text of a part must be a string: {shape_of(part)}")
            return TextPart(part["text"])
        case "input_image":
            return ImagePart(url=part.get("image_url"), detail=part.get("detail", ""))
        case "input_file":
            return FilePart(
                name=part.get("filename"),
                file_id=part.get("file_id"),
                data=part.get("file_data"),
                url=part.get("file_url"),
            )
    return None
