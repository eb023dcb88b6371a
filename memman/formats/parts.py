"""The parts of a message's content in any format, and the keys of a message that its entries do not have.

These keys are kept in the entries' `raw`, under the format's name, and restored when they are rendered,
so an unedited message is returned as it came. Keys that rendering produces (roles, ids, names, pairing)
are never among them, and neither are texts: an edited entry has no second copy.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from memman.display import shape_of
from memman.entries import (
    JSON,
    NO_JSON,
    Content,
    Entry,
    EntryType,
    FilePart,
    ImagePart,
    JSONObject,
    NewEntry,
    OpaquePart,
    Part,
    TextPart,
    attributed,
    encode_json,
    json_bytes,
    json_or,
    speaker_of,
)
from memman.errors import FormatError
from memman.formats.wire.kinds import Kind
from memman.formats.wire.reading import is_compaction, kind_of, reading, values_at
from memman.formats.wire.tables import body_of, private_names

_TYPES: Mapping[str, EntryType] = {
    "call": "tool_call", "result": "tool_result", "whole": "message", "": "message",
}  # fmt: skip
NOT_CARRIED = "[memman: content that this format cannot carry]"
"""Stands for the parts of a content that the format has no form for."""
PART_FRAMING = 2  # adjacent texts may cost a token more each than one text
_ABSENT = object()
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")

T = TypeVar("T")
Wire = JSONObject
WirePart = Callable[[Part], Wire | None]
KnownPart = Callable[[Wire], Part | None]
ReadParts = tuple[tuple[Part, ...], dict[str, Wire]]
"""Parts, and by their indexes the keys that rendering does not produce."""
ReadContent = tuple[Content, dict[str, Wire]]
"""A content, and such keys of its parts."""
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
            found = with_kept(found, kept.parts.get(str(index), _NONE))
        elif isinstance(part, OpaquePart) and part.text:
            found = wire(TextPart(part.text))
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
        return (
            not part.text
            and str(block.get("type")) not in private_names(keyed=False)
            and private_names(keyed=True).isdisjoint(block)
        )
    return not isinstance(part, TextPart)


def has_unsaid(content: Content) -> bool:
    """Return True if the text of a content leaves something out."""
    return not isinstance(content, str) and any(map(is_unsaid, content))


def speaking(entry: Entry, form: str, named: bool, extras: list[str]) -> Entry:
    """Return a message with its speaker in front of its text, unless the format is its own and `named`.

    The words that are added go to `extras`. A file alone has the name behind it, so that no part moves.
    """
    speaker, content, raw = speaker_of(entry), entry.content, entry.raw
    if not speaker or (named and isinstance(raw, dict) and form in raw):
        return entry
    if isinstance(content, str):
        said: Content = attributed(speaker, content) if content.strip() else content
    elif texts := [part for part in content if isinstance(part, TextPart)]:
        first = TextPart(attributed(speaker, texts[0].text))
        said = tuple(first if part is texts[0] else part for part in content)
    else:
        said = (*content, TextPart(f"{speaker}:")) if content and entry.role == "user" else content
    extras += [attributed(speaker, "")] if said is not content else []
    return msgspec.structs.replace(entry, content=said)


def opaque(form: str, block: JSON, what: str = "a part of the content") -> OpaquePart:
    """Return a part that only its provider understands. Raises `InvalidInput` if it is not JSON."""
    raw = msgspec.Raw(json_bytes(block, what))
    return OpaquePart(form, raw, reading(form, block) if isinstance(block, dict) else "")


def opaque_block(part: OpaquePart) -> Wire | None:
    """Return a provider's own block, or None if it is not a block with a type."""
    block = opaque_dict(part)
    return block if is_typed(block) else None


def opaque_dict(part: OpaquePart) -> Wire:
    """Return a provider's own block; empty if it is not one."""
    block = json_or(None, part.block)
    return block if isinstance(block, dict) else {}


def is_typed(block: JSON) -> bool:
    """Return True for a dict with a type."""
    return isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] != ""


def read_parts(blocks: list[JSON], form: str, known: KnownPart, wire: WirePart) -> ReadParts:
    """Return the parts of a list of blocks, and their other keys by index."""
    return _numbered([read_part(block, form, known, wire) for block in blocks])


def _numbered(found: list[tuple[Part, Wire]]) -> ReadParts:
    """Return parts, and their other keys by index."""
    more = {str(index): extra for index, (_, extra) in enumerate(found) if extra}
    return tuple(part for part, _ in found), more


def read_content(
    content: JSON, form: str, known: KnownPart, wire: WirePart, what: str = "'content'"
) -> ReadContent:
    """Return a text or a list of blocks as a content, and the other keys of its parts; null is no text.

    Raises `FormatError` that names `what` for anything else.
    """
    if content is None or isinstance(content, str):
        return content or "", {}
    if not isinstance(content, list):
        raise FormatError(f"{what} must be text or a list of blocks, not {shape_of(content)}")
    return read_parts(content, form, known, wire)


def read_part(block: JSON, form: str, known: KnownPart, wire: WirePart) -> tuple[Part, Wire]:
    """Return a block as a part and its other keys; opaque if `known` and `wire` would not restore it."""
    if not is_typed(block):
        raise FormatError(f"a part of a content must be a dict with a type, not {shape_of(block)}")
    text = block.get("text") if len(block) > 2 else None  # more than its type and its text
    if isinstance(text, str) and (found := reading(form, block)).startswith(f"{text}\n"):
        # Without a blank, so that no outline takes the sources for a sentence of their own.
        sources = found.removeprefix(f"{text}\n").replace("\n", ", ")
        return msgspec.structs.replace(opaque(form, block), text=f"{text}[{sources}]"), {}
    if block["type"] == "text":
        text = "" if block.get("text") is None else block["text"]
        if not isinstance(text, str):
            raise FormatError(f"the text of a part must be a string, not {shape_of(text)}")
        return TextPart(text), other_keys(block, ("type", "text"))
    return _restorable(block, form, known(block), wire)


def read_keyed(blocks: list[Wire], form: str, known: KnownPart, wire: WirePart) -> ReadContent:
    """Read blocks without a type as `read_parts` does; each is named by its key.

    A single plain text is a string. A blank text with a signature is opaque.
    """
    found: list[tuple[Part, Wire]] = []
    for block in blocks:
        part = known(block)
        if isinstance(part, TextPart) and private_names(keyed=True).isdisjoint(block):
            found.append((part, other_keys(block, ("text",))))  # even if it is blank and left out
        else:
            found.append(_restorable(block, form, part, wire))
    parts, more = _numbered(found)
    if len(parts) == 1 and isinstance(parts[0], TextPart) and not more:
        return parts[0].text, {}
    return parts, more


def _restorable(block: Wire, form: str, part: Part | None, wire: WirePart) -> tuple[Part, Wire]:
    """Return a part and the block's other keys; opaque if `wire` would not restore the block from them."""
    values = () if part is None else (getattr(part, name) for name in part.__struct_fields__)
    textual = all(value is None or isinstance(value, str) for value in values)
    sent = wire(part) if part is not None and textual else None
    if part is None or not sent or any(block.get(k, _ABSENT) != v for k, v in sent.items()):
        return opaque(form, block), {}
    return part, other_keys(block, sent)


@lru_cache(maxsize=4_096)
def wire_name(name: str | None) -> str:
    """Return a tool's name in the alphabet of most providers."""
    return _BAD_NAME.sub("_", name or "")[:64] or "tool"


def file_keys(part: FilePart, url: str | None = None) -> dict[str, str]:
    """Return a file as OpenAI's APIs name its properties."""
    name, data = part.name, part.data
    if data and part.media_type:  # from another format: a file is a data URL with a name here
        name, data = name or "file", f"data:{part.media_type};base64,{data}"
    known = {"file_id": part.file_id, "filename": name, "file_data": data, "file_url": url}
    return {key: value for key, value in known.items() if value is not None}


def data_of(part: ImagePart | FilePart, default: str) -> tuple[str, str] | None:
    """Return the media type and base64 data of an inline part or data URL; else None."""
    inline = next((g for g in (part.url, part.data) if g and g.startswith("data:")), None)
    if inline is not None:
        head, _, data = inline.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0] or part.media_type or default
        return (media_type, data) if data and head.endswith(";base64") else None
    return (part.media_type or default, part.data) if part.data else None


MOST_MARKS = 4  # that a provider takes in a request


def with_newest_marks(messages: list[Wire], key: str) -> list[Wire]:
    """Return messages with the newest cache marks alone, as many as a provider takes.

    Marks that came with messages add up. `key` names a mark, on a block or as the only key of one.
    """
    left, found = MOST_MARKS, list[Wire]()
    for message in reversed(messages):
        content, left = _marked(message["content"], key, left)
        found.append(message if content is message["content"] else {**message, "content": content})
    return found[::-1]


def _marked(content: JSON, key: str, left: int) -> tuple[JSON, int]:
    """Return a content with its last `left` marks, and the number of marks that are left before it."""
    if not isinstance(content, list):
        return content, left
    found: list[JSON] = []
    for block in reversed(content):
        kept = block
        if isinstance(block, dict) and key in block:
            if left == 0:
                kept = {name: value for name, value in block.items() if name != key}
            left = max(0, left - 1)
        if isinstance(kept, dict) and isinstance(kept.get("content"), list):
            inside, left = _marked(kept["content"], key, left)
            kept = kept if inside is kept["content"] else {**kept, "content": inside}
        found += [kept] if kept != {} else []
    found.reverse()
    same = len(found) == len(content) and all(map(operator.is_, found, content))
    return (content if same else found), left


def objects_in(messages: Iterable[Wire], key: str) -> Iterator[Wire]:
    """Yield the objects in the list that each message has at a key, if it has one."""
    for message in messages:
        found = message.get(key)
        if isinstance(found, list):
            yield from (each for each in found if isinstance(each, dict))


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
    found = in_order(order, t=spoken, u=calls)
    return present([*spoken, *calls]) if found is None else found


def in_order(order: str, **kinds: Sequence[T | None]) -> list[T] | None:
    """Return the blocks of all kinds as the letters of `order` name them; None if they are not as many."""
    if sorted(order) != sorted("".join(kind * len(blocks) for kind, blocks in kinds.items())):
        return None
    left = {kind: iter(blocks) for kind, blocks in kinds.items()}
    return present(next(left[kind]) for kind in order)


def arguments_of(entry: Entry) -> JSON:
    """Return a call's arguments as decoded JSON, or None if they are not JSON."""
    return json_or(None, entry.text)


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
        own: the whole block of a call, a result or a hosted tool that has a type of its own; the entry's
            content is what can be read of it.
    """

    message: Mapping[str, JSON] = _NONE
    block: Mapping[str, JSON] = _NONE
    body: Mapping[str, JSON] = _NONE
    parts: Mapping[str, Mapping[str, JSON]] = _NONE
    blank: str = ""
    style: str = ""
    order: str = ""
    spelled: Mapping[str, Mapping[str, str | None]] = _NONE
    own: Mapping[str, JSON] = _NONE


NOTHING = Kept()
# Only rendering produces these: an imported entry could add a call or a result with them.
_OF_MESSAGES = frozenset((
    "content", "function_call", "invalid_tool_calls", "parts", "tool_call_id", "tool_calls",
))  # fmt: skip
_OF_BLOCKS = _OF_MESSAGES | {
    "call_id", "custom", "data", "functionCall", "functionResponse", "function_response", "kwargs",
    "output", "role", "toolResult", "toolUse", "tool_use_id",
}  # fmt: skip


def kept_of(entry: Entry | None, name: str) -> Kept:
    """Return the kept keys of an entry for this format; none if its `raw` has another shape."""
    if entry is None or entry.raw_json is NO_JSON:
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


def own_block(entry: Entry | None, form: str) -> tuple[Wire, Kind] | None:
    """Return the block of its own type that an entry was read from, and its row; None for any other entry.

    A block comes from an altered document if its type is not the entry's, if its call or result lacks an id
    that it must have, if it is no item of its own, or if its format never keeps it whole.
    """
    block = dict(kept_of(entry, form).own)
    kind = kind_of(form, block) if block else None
    if kind is None:
        return None
    half = kind.half if (has_id := is_half(form, block, kind)) or not kind.anonymous else ""
    wanted = "summary" if kind.stands_for == "before" else _TYPES[half]
    if entry is None or kind.plain or kind.part or entry.type != wanted:
        return None
    return (block, kind) if has_id or half in ("", "whole") else None


def compaction_entry(form: str, block: Wire, label: str | None = None) -> NewEntry:
    """Return the entry of a provider's compaction; one without a text is sealed."""
    found = NewEntry(
        type="summary", role="assistant", content=reading(form, block), message_id=label
    )
    return keeping(found, form, Kept(own=block))


def read_compaction(block: JSON) -> NewEntry:
    """Return the entry of a compaction of any provider's. Raises `FormatError` for anything else."""
    if isinstance(block, dict):
        # Only Anthropic's has a content, which is null if the compaction failed.
        form = "anthropic" if "content" in block else "openai-responses"
        if is_compaction(form, block):
            return compaction_entry(form, block)
    raise FormatError(f"this is no compaction with a content: {shape_of(block)}")


def compaction_in(entry: Entry, form: str) -> Wire | None:
    """Return the compaction that an entry was read from, in the format of its provider; else None."""
    own = own_block(entry, form) if entry.type == "summary" else None
    return own[0] if own is not None and is_compaction(form, own[0]) else None


def once_more(call: Entry, number: int) -> Entry:
    """Return a call to be rendered once more: no two messages or items of a request may share an id.

    `number` is its `seq`, which tells the two calls apart where a format cuts their ids. It has no id of an
    entry: what is shown once more is memman's.
    """
    raw = call.raw
    for kept in raw.values() if isinstance(raw, dict) else ():
        for keys in kept.values() if isinstance(kept, dict) else ():
            if isinstance(keys, dict) and isinstance(keys.get("id"), str):
                keys["id"] = f"{keys['id'][:40]}--again-{number}"
    return msgspec.structs.replace(call, id="", seq=number, raw_json=encode_json(raw, "raw"))


def is_beside(entry: Entry, form: str) -> bool:
    """Return whether an entry is a call or a result that the provider has in the assistant's message."""
    own = own_block(entry, form)
    return own is not None and own[1].beside


def typed_entry(
    form: str, block: Wire, kind: Kind, label: str | None, names: dict[str, str]
) -> NewEntry:
    """Return the entry of a call or a result with a type of its own, without its kept keys.

    `names` has the names of tools by the ids of their calls, and gets that of a call.
    """
    body = body_of(form, block)
    call_id = body.get(kind.id) if kind.id else None
    given = body.get(kind.name)
    if kind.half == "result":
        name = names.get(str(call_id))
    else:
        name = (given if isinstance(given, str) else "") or kind.tool or kind.type
        names[str(call_id)] = name
    text = reading(form, block)
    images = tuple(
        ImagePart(url=url)
        for price in kind.prices
        if price.by == "pixels"
        for value in values_at(body, price.path)
        if isinstance(url := value.get("image_url") if isinstance(value, dict) else None, str)
    )
    of_tool = kind.half == "result" and not kind.beside and kind.role != "assistant"
    return NewEntry(
        type=_TYPES[kind.half],
        role="tool" if of_tool else "assistant",
        content=((TextPart(text), *images) if text else images) if images else text,
        call_id=call_id if isinstance(call_id, str) else None,
        name=name,
        message_id=label,
        is_error=body.get("is_error") is True
        or any(body.get(key) in values for key, values in kind.failed.items()),
    )


def read_as_text(form: str, block: Wire) -> str:
    """Return what can be read of a block that is neither a call nor a result, under its tool's name."""
    kind = kind_of(form, block)
    text = reading(form, block) if kind is not None else ""
    if kind is None or not text:
        return ""
    name = block.get("name")
    return f"{name if isinstance(name, str) and name else kind.tool or kind.type}: {text}"


def is_half(form: str, block: Wire, kind: Kind | None) -> bool:
    """Return whether a block is a call or a result of a type of its own, with an id."""
    if kind is None or kind.half not in ("call", "result"):
        return False
    body = body_of(form, block)
    call_id = body.get(kind.id) if isinstance(body, dict) else None
    return isinstance(call_id, str) and call_id != ""


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
    # Without defaults: raw holds only what rendering would not reproduce.
    found = {field: value for field in kept.__struct_fields__ if (value := getattr(kept, field))}
    if not found:
        return new_entry
    raw = encode_json({name: found}, "the other keys of the message")
    return msgspec.structs.replace(new_entry, raw_json=raw)


def other_keys(given: Mapping[str, JSON], ours: Container[str]) -> JSONObject:
    """Return the keys of a message, block or part that rendering does not produce."""
    return {key: value for key, value in given.items() if key not in ours}


def with_kept(base: JSONObject, kept: Mapping[str, JSON]) -> JSONObject:
    """Return `base` with the kept keys that it does not have."""
    return {**base, **{key: value for key, value in kept.items() if key not in base}}
