"""Functions that the readers of logs share."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memman.entries import JSON, JSONObject, NewEntry, encode_json
from memman.errors import FormatError, InvalidInput
from memman.protocols import Format

_SIZE = 256
_MOST = 4_096  # the model may never stop: a cut may then separate what belongs together
_OF_MODEL = ("assistant", "model", "ai", "AIMessage")


def with_log_keys(new_entry: NewEntry, log: str, rest: JSONObject) -> NewEntry:
    """Return the new entry with the other keys of its log in its metadata, under the log's name.

    They are not in `raw`: no provider ever receives them, so they must not count as part of the
    conversation.
    """
    if not rest:
        return new_entry
    encoded = encode_json({log: rest}, "the other keys of the log")
    return msgspec.structs.replace(new_entry, metadata_json=encoded)


def text_at(place: str, value: JSON) -> str:
    """Return a text of a log; anything but a string is shown as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return bytes(encode_json(value, place)).decode() or "{}"
    except InvalidInput as error:
        raise FormatError(f"{place}: {error}") from None


def parse_piece(
    form: Format, piece: Sequence[tuple[int, JSON]], number: int = 0, what: str = ""
) -> list[NewEntry]:
    """Return the entries of a piece of a log; the ids of its messages begin with its number.

    The piece has each message with its place in the log. An error has that place, and begins with `what`.
    """
    try:
        found = form.parse([message for _, message in piece])
    except FormatError as error:
        if error.index is None:
            raise
        fault = str(error).removeprefix(f"message {error.index}: ")
        raise FormatError(f"{what}{fault}", piece[error.index][0]) from None
    return [_labelled(new_entry, number) for new_entry in found]


def _labelled(new_entry: NewEntry, number: int) -> NewEntry:
    if new_entry.message_id is None:
        return new_entry
    return msgspec.structs.replace(new_entry, message_id=f"{number}-{new_entry.message_id}")


def may_cut(before: JSON, after: JSON, size: int) -> bool:
    """Return True if a long log may be cut between two messages, so that it can be parsed in pieces.

    `size` messages end in `before`. A cut is before a reply of the model: all results of earlier calls
    are there, and a reply in several items is not split.
    """
    if size < _SIZE:
        return False
    return size >= _MOST or (_is_given(before) and not _is_given(after))


def _is_given(item: JSON) -> bool:
    """Return True for a message to the model: a user's, a tool's, instructions."""
    if not isinstance(item, dict):
        return True
    if "role" in item:
        return item["role"] not in _OF_MODEL
    return str(item.get("type")).endswith("_output")
