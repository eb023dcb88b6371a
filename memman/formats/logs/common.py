"""What the readers of logs share."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memman.entries import JSON, JSONObject, NewEntry, encode_json
from memman.errors import FormatError, InvalidInput

_SIZE = 256
_MOST = 4_096  # where the model never stops speaking: a cut may part what belongs together
_OF_MODEL = ("assistant", "model", "ai", "AIMessage")


def beside_entry(new_entry: NewEntry, log: str, rest: JSONObject) -> NewEntry:
    """The draft with what its log has beside it in its metadata, under the log's name.

    Not in `raw`: no provider is ever sent it, so it must not count as a part of the conversation.
    """
    if not rest:
        return new_entry
    encoded = encode_json({log: rest}, "what the log has beside the entry")
    return msgspec.structs.replace(new_entry, metadata_json=encoded)


def text_at(place: str, value: JSON) -> str:
    """A text of a log; what is no string is shown as the JSON that it is."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return bytes(encode_json(value, place)).decode() or "{}"
    except InvalidInput as error:
        raise FormatError(f"{place}: {error}") from None


def one(items: Iterable[JSON]) -> list[tuple[str, Iterable[JSON]]]:
    """A file with a single conversation."""
    return [("", items)]


def may_cut(before: JSON, after: JSON, size: int) -> bool:
    """Whether `size` messages that end in `before` are a piece, and `after` begins the next.

    That is where the model begins to speak after it was spoken to: all results of its calls are there,
    and what it says in several items is not parted.
    """
    if size < _SIZE:
        return False
    return size >= _MOST or (_is_given(before) and not _is_given(after))


def _is_given(item: JSON) -> bool:
    """Whether a message is one that the model is given: a user's, a tool's, instructions."""
    if not isinstance(item, dict):
        return True
    if "role" in item:
        return item["role"] not in _OF_MODEL
    return str(item.get("type")).endswith("_output")
