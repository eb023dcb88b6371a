"""What a provider's message had beyond what its entries say.

It is kept in the entries' `raw`, under the format's name, and put back when they are rendered, so that
an unedited message goes back equal to what came. What rendering answers for (roles, ids, names,
pairing) is never among it, and the texts are not either: an edited entry has no second copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from memman.entries import NO_JSON, Entry, NewEntry, encode_json

_NONE: dict[str, Any] = {}


class Kept(msgspec.Struct, frozen=True):
    """What is kept beside an entry in one format.

    `message` has the other keys of the message, on its first entry; `block` those of the entry's own
    call or result, `body` those of the function that is called, `parts` those of a content's parts by
    their index. `blank` is how a content without a word was spelled ("null", "absent", "empty"),
    `style` another spelling of the entry, and `order` how texts and calls alternated. `spelled` has the
    keys that were not in the words of the wire, for formats that are read in two: by the index of a
    part, "" for the entry's own block and "message" for the message.
    """

    message: Mapping[str, Any] = _NONE
    block: Mapping[str, Any] = _NONE
    body: Mapping[str, Any] = _NONE
    parts: Mapping[str, Mapping[str, Any]] = _NONE
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


def _beside_structure(kept: Mapping[str, Any], structure: frozenset[str]) -> Mapping[str, Any]:
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


def others(given: Mapping[str, Any], ours: frozenset[str]) -> dict[str, Any]:
    """The keys of a message, block or part that rendering does not answer for."""
    return {key: value for key, value in given.items() if key not in ours}


def beside(base: dict[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the kept keys after its own, which stay as they are."""
    return {**base, **{key: value for key, value in kept.items() if key not in base}}
