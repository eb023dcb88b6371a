"""The parts of a content in any format: what is sent, and what only a placeholder stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from memman.entries import Content, OpaquePart, Part, TextPart, encode_json
from memman.errors import FormatError
from memman.formats.patch import Kept

NOT_CARRIED = "[memman: content that this format cannot carry]"
PART_FRAMING = 2  # texts that are counted as one may cost a token more each when they are apart
_REASONING = ("thinking", "redacted_thinking", "reasoning")
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
            found = {"type": "text", "text": NOT_CARRIED}
        sent.append(found)
    return sent


def parts_framing(content: Content) -> int:
    """What the boundaries between parts may cost."""
    return 0 if isinstance(content, str) else PART_FRAMING * len(content)


def is_unsaid(part: Part) -> bool:
    """Whether a part says something that text does not; reasoning is its provider's own."""
    if isinstance(part, OpaquePart):
        block = opaque_block(part)
        return block is None or block["type"] not in _REASONING
    return not isinstance(part, TextPart)


def has_unsaid(content: Content) -> bool:
    """Whether the text of a content leaves something out."""
    return not isinstance(content, str) and any(map(is_unsaid, content))


def opaque_block(part: OpaquePart) -> Wire | None:
    """A provider's own block, or None where it is not a block with a type."""
    try:
        block = msgspec.json.decode(part.block)
    except (msgspec.DecodeError, RecursionError):
        return None
    return block if isinstance(block, dict) and is_typed(block) else None


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
        raise FormatError(f"a part of a content must be a dict with a type, not {block!r:.60}")
    if block["type"] == "text":
        text = "" if block.get("text") is None else block["text"]
        if not isinstance(text, str):
            raise FormatError(f"the text of a part must be a string, not {text!r:.60}")
        return TextPart(text), {k: v for k, v in block.items() if k not in ("type", "text")}
    part = known(block)
    sent = wire(part) if part is not None and _is_textual(part) else None
    if part is not None and sent and all(block.get(k, _ABSENT) == v for k, v in sent.items()):
        return part, {key: value for key, value in block.items() if key not in sent}
    return OpaquePart(form, encode_json(block, "a part of the content")), {}


def _is_textual(part: Part) -> bool:
    values = (getattr(part, name) for name in part.__struct_fields__)
    return all(value is None or isinstance(value, str) for value in values)
