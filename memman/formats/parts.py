"""The parts of a content in any format: what is sent, and what only a placeholder stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from memman.display import shape_of
from memman.entries import (
    Content,
    Entry,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    TextPart,
    json_bytes,
)
from memman.errors import FormatError
from memman.formats.patch import Kept

NOT_CARRIED = "[memman: content that this format cannot carry]"
PART_FRAMING = 2  # texts that are counted as one may cost a token more each when they are apart
_REASONING = ("thinking", "redacted_thinking", "reasoning")
# The same in formats whose blocks have no type, and what is no content at all.
_PRIVATE = ("reasoningContent", "cachePoint", "thought", "thoughtSignature")
_ABSENT = object()

Wire = dict[str, Any]
WirePart = Callable[[Part], Wire | None]


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


def opaque(form: str, block: Any, what: str = "a part of the content") -> OpaquePart:
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


def is_typed(block: Any) -> bool:
    """Whether this is a dict that says of which type it is."""
    return isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] != ""


def read_parts(
    blocks: list[Any], form: str, known: Callable[[Wire], Part | None], wire: WirePart
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
    block: Any, form: str, known: Callable[[Wire], Part | None], wire: WirePart
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


def arguments_of(entry: Entry) -> Any:
    """A call's arguments as the JSON that they are, or None where they are none."""
    try:
        return msgspec.json.decode(entry.text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _is_textual(part: Part) -> bool:
    values = (getattr(part, name) for name in part.__struct_fields__)
    return all(value is None or isinstance(value, str) for value in values)
