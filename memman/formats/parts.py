"""The parts of a content in any format: what is sent, and what only a placeholder stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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
PART_FRAMING = 2  # texts that are counted as one may cost a token more each when they are apart
_REASONING = ("thinking", "redacted_thinking", "reasoning")
# The same in formats whose blocks have no type, and what is no content at all.
_PRIVATE = ("reasoningContent", "cachePoint", "thought", "thoughtSignature")
_ABSENT = object()

Wire = JSONObject
WirePart = Callable[[Part], Wire | None]
_NONE: JSONObject = {}


def wire_parts(
    content: tuple[Part, ...], kept: Kept, wire: WirePart, extras: list[str]
) -> list[Wire | None]:
    """The parts in a format's words, None for what is left out, each at its index.

    `wire` answers None for what the format cannot carry. The first such part that is neither blank nor
    reasoning becomes a placeholder, whose text goes to `extras`.
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
    """What the boundaries between parts may cost."""
    return 0 if isinstance(content, str) else PART_FRAMING * len(content)


def is_unsaid(part: Part) -> bool:
    """Whether a part says something that text does not; reasoning is its provider's own."""
    if isinstance(part, OpaquePart):
        block = opaque_dict(part)
        return block.get("type") not in _REASONING and not any(key in block for key in _PRIVATE)
    return not isinstance(part, TextPart)


def has_unsaid(content: Content) -> bool:
    """Whether the text of a content leaves something out."""
    return not isinstance(content, str) and any(map(is_unsaid, content))


def opaque(form: str, block: JSON, what: str = "a part of the content") -> OpaquePart:
    """A part that only its provider understands. Raises `InvalidInput` for what is not JSON."""
    return OpaquePart(form, msgspec.Raw(json_bytes(block, what)))


def opaque_block(part: OpaquePart) -> Wire | None:
    """A provider's own block, or None where it is not a block with a type."""
    block = opaque_dict(part)
    return block if is_typed(block) else None


def opaque_dict(part: OpaquePart) -> Wire:
    """A provider's own block; empty where it is not one."""
    try:
        block = msgspec.json.decode(part.block)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return block if isinstance(block, dict) else {}


def is_typed(block: JSON) -> bool:
    """Whether this is a dict that says of which type it is."""
    return isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] != ""


def read_parts(
    blocks: list[JSON], form: str, known: Callable[[Wire], Part | None], wire: WirePart
) -> tuple[tuple[Part, ...], dict[str, Wire]]:
    """The parts of a list of blocks, and the other keys that some have, by index."""
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
    """A block as a part and its other keys; opaque when `known` and `wire` would not give it back."""
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
    """The same as `read_parts` for blocks without a type, which are named by their key.

    A single plain text is a string. A text that says nothing but carries a signature is opaque.
    """
    parts: list[Part] = []
    more: dict[str, Wire] = {}
    for block in blocks:
        part = known(block)
        sent = wire(part) if part is not None and _is_textual(part) else None
        if isinstance(part, TextPart) and not any(key in block for key in _PRIVATE):
            sent = {"text": part.text}  # also where it is blank and will be left out
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
    """The media type and base64 data of what is given inline, also as a data URL; else None."""
    inline = next((g for g in (part.url, part.data) if g and g.startswith("data:")), None)
    if inline is not None:
        head, _, data = inline.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0] or part.media_type or default
        return (media_type, data) if data and head.endswith(";base64") else None
    return (part.media_type or default, part.data) if part.data else None


def present(blocks: Iterable[Wire | None]) -> list[Wire]:
    """The blocks that are sent."""
    return [block for block in blocks if block is not None]


def interleaved(order: str, said: list[Wire | None], calls: list[Wire]) -> list[Wire]:
    """What was said before the calls, or in the order ("t", "u") in which they came."""
    if order.count("t") == len(said) and order.count("u") == len(calls):
        texts, uses = iter(said), iter(calls)
        found = [next(texts if kind == "t" else uses, None) for kind in order]
    else:
        found = [*said, *calls]
    return present(found)


def arguments_of(entry: Entry) -> JSON:
    """A call's arguments as the JSON that they are, or None where they are none."""
    try:
        return msgspec.json.decode(entry.text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _is_textual(part: Part) -> bool:
    values = (getattr(part, name) for name in part.__struct_fields__)
    return all(value is None or isinstance(value, str) for value in values)


# ---------------------------------------------------------------- kept keys


class Kept(msgspec.Struct, frozen=True):
    """What is kept beside an entry in one format.

    `message` has the other keys of the message, on its first entry; `block` those of the entry's own
    call or result, `body` those of the function that is called, `parts` those of a content's parts by
    their index. `blank` is how a content without a word was spelled ("null", "absent", "empty"),
    `style` another spelling of the entry, and `order` how texts and calls alternated. `spelled` has the
    keys that were not in the words of the wire, for formats that are read in two: by the index of a
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
# Rendering answers for these alone: an imported entry could add a call or a result with them.
_OF_MESSAGES = frozenset((
    "content", "function_call", "invalid_tool_calls", "parts", "tool_call_id", "tool_calls",
))  # fmt: skip
_OF_BLOCKS = _OF_MESSAGES | {
    "call_id", "custom", "data", "functionCall", "functionResponse", "function_response", "kwargs",
    "output", "role", "toolResult", "toolUse", "tool_use_id",
}  # fmt: skip


def kept_of(entry: Entry, name: str) -> Kept:
    """What an entry keeps for this format; nothing where its `raw` is of another making."""
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
        message=_beside_structure(kept.message, _OF_MESSAGES),
        block=_beside_structure(kept.block, _OF_BLOCKS),
        body=_beside_structure(kept.body, _OF_BLOCKS),
        parts={index: _beside_structure(part, _OF_BLOCKS) for index, part in kept.parts.items()},
    )


def _beside_structure(kept: Mapping[str, JSON], structure: frozenset[str]) -> Mapping[str, JSON]:
    """The kept keys without those of a message's structure; an empty one is only a spelling."""
    if kept.keys().isdisjoint(structure) and isinstance(kept.get("name"), str | None):
        return kept
    return {
        key: value
        for key, value in kept.items()
        if (key not in structure or value is None or value == [])
        and (key != "name" or isinstance(value, str | None))
    }


def keeping(new_entry: NewEntry, name: str, kept: Kept) -> NewEntry:
    """The draft with what is kept beside it."""
    found = {
        field: value for field in kept.__struct_fields__ if (value := getattr(kept, field))
    }  # without the defaults: raw holds only what rendering would not reproduce
    if not found:
        return new_entry
    raw = encode_json({name: found}, "what the message has beside its content")
    return msgspec.structs.replace(new_entry, raw_json=raw)


def others(given: Mapping[str, JSON], ours: frozenset[str]) -> JSONObject:
    """The keys of a message, block or part that rendering does not answer for."""
    return {key: value for key, value in given.items() if key not in ours}


def beside(base: JSONObject, kept: Mapping[str, JSON]) -> JSONObject:
    """`base` with the kept keys after its own, which stay as they are."""
    return {**base, **{key: value for key, value in kept.items() if key not in base}}
