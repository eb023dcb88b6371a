"""Parts of a message besides its text, and the tokens that a provider bills for them.

Measured on recorded requests: cache marks and signatures cost nothing, a repeated reasoning text is
billed once, and a signature of Google's costs about a token for four characters beyond the first 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

# Keys of a format's kept parts that only record how a message was spelled.
_HOW_WRITTEN: Final = frozenset({"blank", "order", "spelled", "style"})
# Keys that only an API or a framework reads.
_OF_THE_API: Final = frozenset({
    "additional_kwargs", "artifact", "id", "response_metadata", "status", "type", "usage_metadata",
})  # fmt: skip
_UNREAD: Final = frozenset({"cache_control", "cachePoint", "signature"})  # at any depth
_ENCRYPTED: Final = frozenset({"thoughtSignature", "thought_signature"})  # at any depth
_THOUGHTS: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_UNBILLED_CHARACTERS: Final = 200
_ENCRYPTED_CHARACTERS: Final = 4  # to a token
_PROSE_BYTES: Final = 3  # to a token


class Extra(msgspec.Struct, frozen=True):
    """Bytes of JSON that a model may read, and separately the `tokens` of reasoning."""

    size: int = 0
    tokens: int = 0

    def __add__(self, other: Extra) -> Extra:
        return Extra(self.size + other.size, self.tokens + other.tokens)


_NOTHING: Final = Extra()


def extra_of_entry(raw: Any) -> Extra:
    """Return the extra of an entry's decoded `raw`, which has the parts kept by each format."""
    if not isinstance(raw, dict):
        return Extra(_bytes(raw))
    return sum(map(_extra_kept, raw.values()), _NOTHING)


def extra_of_block(block: Any) -> Extra:
    """Return the extra of a provider's own block: its bytes, and the tokens of its signatures."""
    read, tokens = _read(block)
    return Extra(_bytes(read), tokens)


def _extra_kept(kept: Any) -> Extra:
    """Return the extra of the parts that one format keeps; of an unknown shape, of everything."""
    if not isinstance(kept, dict):
        return Extra(_bytes(kept))
    found = _NOTHING
    for place, value in kept.items():
        if place not in _HOW_WRITTEN:
            held = value if isinstance(value, dict) else {place: value}
            for each in held.values() if place == "parts" else (held,):
                found += _extra_keys(each)
    return found


def _extra_keys(held: Any) -> Extra:
    """Return the extra of a block's keys, without those of the API and empty ones."""
    if not isinstance(held, dict):
        return Extra(_bytes(held))
    thoughts = max((_thought(held.get(key)) for key in _THOUGHTS), key=len)
    unread = _OF_THE_API.union(_THOUGHTS)
    read, tokens = _read({key: value for key, value in held.items() if value and key not in unread})
    return Extra(_bytes(read) if read else 0, tokens + len(thoughts.encode()) // _PROSE_BYTES)


def _thought(value: Any) -> str:
    """Return the reasoning in a text, or in a list of its blocks; encrypted blocks have none."""
    if isinstance(value, str):
        return value
    texts = [
        block.get("text") or block.get("summary") or block.get("thinking")
        for block in (value if isinstance(value, list) else ())
        if isinstance(block, dict)
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def _read(value: Any) -> tuple[Any, int]:
    """Return a JSON value without parts that no model reads, and the tokens of its signatures."""
    if isinstance(value, list):
        items = [_read(item) for item in value]
        return [item for item, _ in items], sum(tokens for _, tokens in items)
    if not isinstance(value, Mapping):
        return value, 0
    found: dict[str, Any] = {}
    tokens = 0
    for key, item in value.items():
        if key in _ENCRYPTED and isinstance(item, str):
            tokens += max(0, len(item) - _UNBILLED_CHARACTERS) // _ENCRYPTED_CHARACTERS
        elif key not in _UNREAD:
            found[key], inside = _read(item)
            tokens += inside
    return found, tokens


def _bytes(value: Any) -> int:
    return len(msgspec.json.encode(value))
