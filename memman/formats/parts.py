"""The parts of a message's content in any format, and the keys of a message that its entries do not have.

These keys are kept in the entries' `raw`, under the format's name, and restored when they are rendered,
so an unedited message is returned as it came. Keys that rendering produces (roles, ids, names, pairing)
are never among them, and neither are texts: an edited entry has no second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from memman.display import shape_of
from memman.entries import (
    JSON,
    NO_JSON,
    Content,
    Entry,
    FilePart,
    ImagePart,
    JSONObject,
    NewEntry,
    OpaquePart,
    Part,
    TextPart,
    encode_json,
    json_bytes,
)
from memman.errors import FormatError

NOT_CARRIED = "[memman: content that this format cannot carry]"
"""Stands for the parts of a content that the format has no form for."""
PART_FRAMING = 2  # adjacent texts may cost a token more each than one text
_REASONING = ("thinking", "redacted_thinking", "reasoning")
# The same in formats whose blocks have no type, and blocks without content.
_PRIVATE = ("reasoningContent", "cachePoint", "thought", "thoughtSignature")
_ABSENT = object()

T = TypeVar("T")
Wire = JSONObject
WirePart = Callable[[Part], Wire | None]
_NONE: JSONObject = {}


def wire_parts(
    content: tuple[Part, ...], kept: Kept, wire: WirePart, extras: list[str]
) -> list[Wire | None]:
    """Return the parts in a format's form at their indexes, None for those that are left out.

    `wire` returns None for a part that the format cannot carry. The first such part that is neither blank
    nor reasoning becomes a placeholder, whose text is added to `extras`.
    """
    sent: list[Wire | None] = []
    missed = False
    for index, part in enumerate(content):
        found = wire(part)
        if found is not None:
            more = kept.parts.get(str(index), {})
            found = {**found, **{key: value for key, value in more.items() if key not in found}}
        elif not missed and is_unsaid(part):
            missed = True
            extras.append(NOT_CARRIED)
            found = wire(TextPart(NOT_CARRIED))
        sent.append(found)
    return sent


def parts_framing(content: Content) -> int:
    """Return an upper bound for the cost of the boundaries between parts."""
    return 0 if isinstance(content, str) else PART_FRAMING * len(content)


def is_unsaid(part: Part) -> bool:
    """Return True if a part has content that its text does not; reasoning is its provider's own."""
    if isinstance(part, OpaquePart):
        block = opaque_dict(part)
        return block.get("type") not in _REASONING and not any(key in block for key in _PRIVATE)
    return not isinstance(part, TextPart)


def has_unsaid(content: Content) -> bool:
    """Return True if the text of a content leaves something out."""
    return not isinstance(content, str) and any(map(is_unsaid, content))


def opaque(form: str, block: JSON, what: str = "a part of the content") -> OpaquePart:
    """Return a part that only its provider understands. Raises `InvalidInput` if it is not JSON."""
    return OpaquePart(form, msgspec.Raw(json_bytes(block, what)))


def opaque_block(part: OpaquePart) -> Wire | None:
    """Return a provider's own block, or None if it is not a block with a type."""
    block = opaque_dict(part)
    return block if is_typed(block) else None


def opaque_dict(part: OpaquePart) -> Wire:
    """Return a provider's own block; empty if it is not one."""
    try:
        block = msgspec.json.decode(part.block)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return block if isinstance(block, dict) else {}


def is_typed(block: JSON) -> bool:
    """Return True for a dict with a type."""
    return isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] != ""


def read_parts(
    blocks: list[JSON], form: str, known: Callable[[Wire], Part | None], wire: WirePart
) -> tuple[tuple[Part, ...], dict[str, Wire]]:
    """Return the parts of a list of blocks, and their other keys by index."""
    parts: list[Part] = []
    more: dict[str, Wire] = {}
    for block in blocks:
        part, extra = read_part(block, form, known, wire)
        if extra:
            more[str(len(parts))] = extra
        parts.append(part)
    return tuple(parts), more


def read_part(
    block: JSON, form: str, known: Callable[[Wire], Part | None], wire: WirePart
) -> tuple[Part, Wire]:
    """Return a block as a part and its other keys; opaque if `known` and `wire` would not restore it."""
    if not is_typed(block):
        raise FormatError(f"a part of a content must be a dict with a type, not {shape_of(block)}")
    if block["type"] == "text":
        text = "" if block.get("text") is None else block["text"]
        if not isinstance(text, str):
            raise FormatError(f"the text of a part must be a string, not {shape_of(text)}")
        return TextPart(text), {k: v for k, v in block.items() if k not in ("type", "text")}
    part = known(block)
    sent = wire(part) if part is not None and _is_textual(part) else None
    if part is not None and sent and all(block.get(k, _ABSENT) == v for k, v in sent.items()):
        return part, {key: value for key, value in block.items() if key not in sent}
    return opaque(form, block), {}


def read_keyed(
    blocks: list[Wire], form: str, known: Callable[[Wire], Part | None], wire: WirePart
) -> tuple[Content, dict[str, Wire]]:
    """Read blocks without a type as `read_parts` does; each is named by its key.

    A single plain text is a string. A blank text with a signature is opaque.
    """
    parts: list[Part] = []
    more: dict[str, Wire] = {}
    for block in blocks:
        part = known(block)
        sent = wire(part) if part is not None and _is_textual(part) else None
        if isinstance(part, TextPart) and not any(key in block for key in _PRIVATE):
            sent = {"text": part.text}  # even if it is blank and will be left out
        if part is None or not sent or any(block.get(k, _ABSENT) != v for k, v in sent.items()):
            parts.append(opaque(form, block))
            continue
        extra = {key: value for key, value in block.items() if key not in sent}
        if extra:
            more[str(len(parts))] = extra
        parts.append(part)
    if len(parts) == 1 and isinstance(parts[0], TextPart) and not more:
        return parts[0].text, {}
    return tuple(parts), more


def data_of(part: ImagePart | FilePart, default: str) -> tuple[str, str] | None:
    """Return the media type and base64 data of an inline part or data URL; else None."""
    inline = next((g for g in (part.url, part.data) if g and g.startswith("data:")), None)
    if inline is not None:
        head, _, data = inline.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0] or part.media_type or default
        return (media_type, data) if data and head.endswith(";base64") else None
    return (part.media_type or default, part.data) if part.data else None


def present(blocks: Iterable[T | None]) -> list[T]:
    """Return the blocks that are sent."""
    return [block for block in blocks if block is not None]


def keep_spelled(new_entry: NewEntry, format: str, kept: msgspec.Struct) -> NewEntry:
    """Return the entry with the keys that it has no fields for, so that its format can restore them.

    Args:
        new_entry: an entry of a message that is JSON.
        format: the name of the format.
        kept: the keys, in a struct that omits its defaults. They cost no tokens.
    """
    found = msgspec.to_builtins(kept)
    if not found:
        return new_entry
    raw = msgspec.Raw(msgspec.json.encode({format: {"spelled": found}}))
    return msgspec.structs.replace(new_entry, raw_json=raw)


def spelled_of(entry: Entry, format: str, nothing: T) -> T:
    """Return the keys that `keep_spelled` has kept; `nothing` if the entry has none, or others."""
    if entry.raw_json is NO_JSON:
        return nothing
    raw = entry.raw
    own = raw.get(format) if isinstance(raw, dict) else None
    try:
        return msgspec.convert(own["spelled"] if isinstance(own, dict) else {}, type(nothing))
    except (KeyError, msgspec.ValidationError):
        return nothing


def interleaved(order: str, spoken: list[T | None], calls: list[T]) -> list[T]:
    """Return texts before calls, or in their original order ("t", "u")."""
    if order.count("t") == len(spoken) and order.count("u") == len(calls):
        texts, uses = iter(spoken), iter(calls)
        found = [next(texts if kind == "t" else uses, None) for kind in order]
    else:
        found = [*spoken, *calls]
    return present(found)


def arguments_of(entry: Entry) -> JSON:
    """Return a call's arguments as decoded JSON, or None if they are not JSON."""
    try:
        return msgspec.json.decode(entry.text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _is_textual(part: Part) -> bool:
    values = (getattr(part, name) for name in part.__struct_fields__)
    return all(value is None or isinstance(value, str) for value in values)


# ---------------------------------------------------------------- kept keys


class Kept(msgspec.Struct, frozen=True):
    """The kept keys of an entry in one format.

    Args:
        message: the other keys of the message, on its first entry.
        block: those of the entry's own call or result.
        body: those of the called function.
        parts: those of a content's parts by their index.
        blank: the spelling of a content without a word ("null", "absent", "empty").
        style: another spelling of the entry.
        order: how texts and calls alternated.
        spelled: the keys that were spelled in the second way, for formats with two: by the index of a
            part, "" for the entry's own block and "message" for the message.
    """

    message: Mapping[str, JSON] = _NONE
    block: Mapping[str, JSON] = _NONE
    body: Mapping[str, JSON] = _NONE
    parts: Mapping[str, Mapping[str, JSON]] = _NONE
    blank: str = ""
    style: str = ""
    order: str = ""
    spelled: Mapping[str, Mapping[str, str | None]] = _NONE


NOTHING = Kept()
# Only rendering produces these: an imported entry could add a call or a result with them.
_OF_MESSAGES = frozenset((
    "content", "function_call", "invalid_tool_calls", "parts", "tool_call_id", "tool_calls",
))  # fmt: skip
_OF_BLOCKS = _OF_MESSAGES | {
    "call_id", "custom", "data", "functionCall", "functionResponse", "function_response", "kwargs",
    "output", "role", "toolResult", "toolUse", "tool_use_id",
}  # fmt: skip


def kept_of(entry: Entry, name: str) -> Kept:
    """Return the kept keys of an entry for this format; none if its `raw` has another shape."""
    if entry.raw_json is NO_JSON:
        return NOTHING
    raw = entry.raw
    if not isinstance(raw, dict) or name not in raw:
        return NOTHING
    try:
        kept = msgspec.convert(raw[name], Kept)
    except msgspec.ValidationError:
        return NOTHING
    return msgspec.structs.replace(
        kept,
        message=_without_structure(kept.message, _OF_MESSAGES),
        block=_without_structure(kept.block, _OF_BLOCKS),
        body=_without_structure(kept.body, _OF_BLOCKS),
        parts={index: _without_structure(part, _OF_BLOCKS) for index, part in kept.parts.items()},
    )


def _without_structure(kept: Mapping[str, JSON], structure: frozenset[str]) -> Mapping[str, JSON]:
    """Return the kept keys without those of a message's structure; empty values are only a spelling."""
    if kept.keys().isdisjoint(structure) and isinstance(kept.get("name"), str | None):
        return kept
    return {
        key: value
        for key, value in kept.items()
        if (key not in structure or value is None or value == [])
        and (key != "name" or isinstance(value, str | None))
    }


def keeping(new_entry: NewEntry, name: str, kept: Kept) -> NewEntry:
    """Return the new entry with the kept keys."""
    found = {
        field: value for field in kept.__struct_fields__ if (value := getattr(kept, field))
    }  # without defaults: raw holds only what rendering would not reproduce
    if not found:
        return new_entry
    raw = encode_json({name: found}, "the other keys of the message")
    return msgspec.structs.replace(new_entry, raw_json=raw)


def other_keys(given: Mapping[str, JSON], ours: frozenset[str]) -> JSONObject:
    """Return the keys of a message, block or part that rendering does not produce."""
    return {key: value for key, value in given.items() if key not in ours}


def with_kept(base: JSONObject, kept: Mapping[str, JSON]) -> JSONObject:
    """Return `base` with the kept keys that it does not have."""
    return {**base, **{key: value for key, value in kept.items() if key not in base}}
