"""Messages that cannot be stored or parsed as they are: altered as little as possible, or kept whole.

A message that a format cannot parse is an entry of the type `context` with the message in an opaque part.
It is the message again in a context of its own format if the rules of that format accept it, and a note in
any other context.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec

from memman.display import safe_repr, shape_of
from memman.entries import (
    JSON,
    MAX_NAME_CHARACTERS,
    MAX_SOURCE_CHARACTERS,
    Content,
    JSONObject,
    NewEntry,
    OpaquePart,
    Part,
    TextPart,
    check_new_entry,
    check_text,
    is_encodable,
)
from memman.errors import FormatError, InvalidInput
from memman.extents import MAX_DEPTH, MAX_ENTRY_BYTES, MAX_VALUES
from memman.formats.parts import opaque, opaque_dict
from memman.formats.plain import dumped, field_of, messages_in, plain_message, plain_messages
from memman.formats.wire.keys import with_request_keys
from memman.ids import valid_id
from memman.protocols import Format, Rendered, Turn

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object; another one in each process
_CUT = "[memman: the rest was too long to keep]"
_ESCAPED = 6  # the most bytes of JSON for a byte of text
_MOST_BYTES = MAX_ENTRY_BYTES // 2
_NO_ARTIFACT = "the artifact is not JSON, and was left out"
_MOST_VALUES = MAX_VALUES // 4
_INTEGER_BITS = 1_024  # longer ones are no JSON
_WHOLE = " message"  # after a format's name: the opaque part is a message of it


class PlainMessage(msgspec.Struct, frozen=True):
    """A message as plain data, and what was `altered` in it, "" for nothing."""

    message: JSON
    altered: str = ""


def read_messages(given: Any, *, keep: bool) -> list[PlainMessage]:
    """Return messages as `plain_messages` does.

    With `keep`, those that it refuses are altered until they are plain: lone surrogates become U+FFFD,
    bytes base64, other values that JSON does not have their repr.
    """
    if not keep:
        return [PlainMessage(message) for message in plain_messages(given)]
    return [
        _plain(index, message, inside) for index, (message, inside) in enumerate(messages_in(given))
    ]


def parsed_messages(
    form: Format, messages: Sequence[PlainMessage], *, keep: bool
) -> list[NewEntry]:
    """Return the entries of messages; with `keep`, those that the format refuses are kept whole."""
    kept: dict[int, NewEntry] = {}
    try:
        parsed = form.parse([each.message for each in messages])
    except FormatError:
        if not keep:
            raise
        for index, each in enumerate(messages):
            try:
                form.parse([each.message])
            except FormatError as error:
                kept[index] = _whole(form, index, each, _reason(error))
        readable = [index for index in range(len(messages)) if index not in kept]
        parsed = [
            msgspec.structs.replace(new_entry, message_index=readable[new_entry.message_index])
            for new_entry in form.parse([messages[index].message for index in readable])
        ]
    entries = [
        msgspec.structs.replace(new_entry, altered=altered) if altered else new_entry
        for new_entry in map(check_new_entry, parsed)
        for altered in (messages[new_entry.message_index].altered,)
    ]
    return sorted([*entries, *kept.values()], key=attrgetter("message_index"))


def altered_entry(new_entry: NewEntry) -> NewEntry:
    """Return an entry of any values with names, ids and texts that can be stored.

    What is neither text, parts nor blocks stays a value for `text_entry`.
    """
    plain = _Alteration().plain
    changed: dict[str, Any] = {"content": _altered_content(new_entry.content, plain)}
    if new_entry.name is not None or new_entry.type != "message":
        name = new_entry.name if isinstance(new_entry.name, str) else _shown(new_entry.name)
        most = MAX_SOURCE_CHARACTERS if new_entry.type == "context" else MAX_NAME_CHARACTERS
        changed["name"] = plain(name)[:most] or ("tool" if new_entry.type == "tool_call" else "")
    for field in ("call_id", "message_id"):
        given = getattr(new_entry, field)
        try:
            check_new_entry(NewEntry(type="message", role="user", content="", **{field: given}))
        except InvalidInput:
            changed[field] = valid_id(plain(given) if isinstance(given, str) else _shown(given))
    return msgspec.structs.replace(new_entry, **changed)


def text_entry(new_entry: NewEntry) -> NewEntry:
    """Return the entry with its content as text: JSON if it is none."""
    content: Any = new_entry.content
    if not isinstance(content, str):
        content = msgspec.json.encode(_Alteration().plain(content)).decode()
    return msgspec.structs.replace(new_entry, content=content)


def with_notes(new_entry: NewEntry, fault_of: Callable[[Content], str]) -> NewEntry:
    """Return an entry with a note in the place of each part that has a fault."""
    content, fault = new_entry.content, fault_of(new_entry.content)
    if not fault or isinstance(content, str):
        return new_entry
    parts = tuple(
        TextPart(f"[memman: {note}]") if (note := fault_of((part,))) else part for part in content
    )
    return msgspec.structs.replace(new_entry, content=parts, altered=new_entry.altered or fault)


def _altered_content(content: Any, plain: Callable[[Any], JSON]) -> Any:
    """Return a content with texts that can be stored; parts stay parts."""
    if isinstance(content, list | tuple):
        return [_altered_content(item, plain) for item in content]
    if isinstance(content, OpaquePart):
        return content
    if isinstance(content, Part):
        fields = msgspec.structs.asdict(content)
        return msgspec.structs.replace(content, **{key: plain(fields[key]) for key in fields})
    return plain(content)


def whole_message(turn: Turn, name: str) -> JSONObject | None:
    """Return the message of a turn that is a message kept whole in the format of this name."""
    content = turn.entries[0].content if turn.kind == "context" else ""
    if name == "text" or len(content) != 1 or not isinstance(content[0], OpaquePart):
        return None  # the text format has no messages
    return opaque_dict(content[0]) if content[0].format == name + _WHOLE else None


def rendered_whole(turn: Turn, form: Format) -> Rendered | None:
    """Return the rendered message of such a turn, None if the format's provider would reject it."""
    message = whole_message(turn, form.name)
    if message is None:
        return None
    from memman.formats.rules import RULES, check

    message = with_request_keys(form.name, message)
    if form.name not in RULES or check([message], form.name):
        return None
    return Rendered((message,), form.message_framing)


def _reason(error: InvalidInput) -> str:
    """Return an error's reason without the message's index."""
    text = str(error)
    return text.partition(": ")[2] or text


def _whole(form: Format, index: int, given: PlainMessage, reason: str) -> NewEntry:
    """Return the entry of a message that the format cannot parse."""
    message = given.message if isinstance(given.message, dict) else {"value": given.message}
    new_entry = NewEntry(
        type="context",
        role="system",
        content="",
        name=f"an unknown message, {shape_of(given.message)}",
        message_index=index,
        altered=given.altered,
        kept=reason,
    )
    if isinstance(given.message, str):
        return check_new_entry(msgspec.structs.replace(new_entry, content=given.message))
    try:
        return _with_message(new_entry, form, message)
    except InvalidInput as error:  # it is too large
        cut = msgspec.structs.replace(new_entry, altered=given.altered or str(error))
        return _with_message(cut, form, _Alteration().plain(message))


def _with_message(new_entry: NewEntry, form: Format, message: JSON) -> NewEntry:
    part = opaque(form.name + _WHOLE, message, "a message")
    return check_new_entry(msgspec.structs.replace(new_entry, content=(part,)))


# ---------------------------------------------------------------- plain data


def _plain(index: int, message: Any, inside: bool) -> PlainMessage:
    """Return a message as plain data, altered if it must be."""
    try:
        plain = plain_message(index, message, inside)
        if isinstance(plain, str):
            check_text(plain, "it")
    except InvalidInput as error:
        reason = _reason(error)
    else:
        left_out = _artifact(message) is not None and _artifact(plain) is None
        return PlainMessage(plain, _NO_ARTIFACT if left_out else "")
    altered = _Alteration().plain(_data(index, message))
    try:
        return PlainMessage(plain_message(index, altered, inside), reason)
    except FormatError:  # not a message
        return PlainMessage(altered, reason)


def _artifact(message: Any) -> Any:
    """Return the artifact of a LangChain message, as an object or in either form."""
    held = message
    if isinstance(message, Mapping):
        held = message.get("data") or message.get("kwargs")
    return field_of(held, "artifact")


def _data(index: int, message: Any) -> Any:
    """Return the data of an SDK's object, anything else as it is."""
    dump = getattr(message, "model_dump", None)
    if not callable(dump):
        return message
    try:
        return dumped(index, message, lambda **how: dump(**{**how, "mode": "python"}))
    except FormatError:
        return getattr(message, "__dict__", message)


class _Alteration:
    """Makes plain data of any value, within limits of size and number."""

    def __init__(self) -> None:
        self._bytes = _MOST_BYTES
        self._values = _MOST_VALUES

    def plain(self, value: Any, depth: int = 0) -> JSON:
        """Return a value as plain data that can be stored."""
        self._values -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, float) and isfinite(value):
            return float(value)
        if isinstance(value, int) and value.bit_length() < _INTEGER_BITS:
            return int(value)
        if isinstance(value, bytes | bytearray):
            return self._text(b64encode(value[: max(0, self._bytes)]).decode())
        if depth < MAX_DEPTH - 2 and self._values > 0:
            return self._nested(value, depth + 1)
        return self._text(_shown(value))

    def _nested(self, value: Any, depth: int) -> JSON:
        if isinstance(value, Mapping):
            return {
                self._text(key if isinstance(key, str) else _shown(key)): self.plain(item, depth)
                for key, item in value.items()
                if self._values > 0
            }
        if isinstance(value, list | tuple):
            return [self.plain(item, depth) for item in value if self._values > 0]
        if isinstance(value, AbstractSet):
            return [self._text(text) for text in sorted(map(_shown, value))]
        data = _data(0, value)
        return self._text(_shown(value)) if data is value else self.plain(data, depth)

    def _text(self, text: str) -> str:
        """Return a text without lone surrogates, cut at the end of the room that is left."""
        plain = str.__str__(text)
        if not is_encodable(plain):
            plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        room = max(0, self._bytes)
        size = len(msgspec.json.encode(plain))
        self._bytes -= size
        if size <= room:
            return plain
        return plain.encode()[: room // _ESCAPED].decode(errors="ignore") + _CUT


def _shown(value: Any) -> str:
    """Return the repr of a value, the same in each process."""
    return _ADDRESS.sub("", safe_repr(value))
