"""What the readers of logs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from memman.entries import NewEntry, encode_json
from memman.errors import FormatError, InvalidInput


def beside_entry(new_entry: NewEntry, log: str, rest: dict[str, Any]) -> NewEntry:
    """The draft with what its log has beside it in its metadata, under the log's name.

    Not in `raw`: no provider is ever sent it, so it must not count as a part of the conversation.
    """
    if not rest:
        return new_entry
    encoded = encode_json({log: rest}, "what the log has beside the entry")
    return msgspec.structs.replace(new_entry, metadata_json=encoded)


def text_at(place: str, value: Any) -> str:
    """A text of a log; what is no string is shown as the JSON that it is."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return bytes(encode_json(value, place)).decode() or "{}"
    except InvalidInput as error:
        raise FormatError(f"{place}: {error}") from None


def one(items: Iterable[Any]) -> list[tuple[str, Iterable[Any]]]:
    """A file with a single conversation."""
    return [("", items)]
