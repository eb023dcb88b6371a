"""Messages as plain dicts, whatever they came as: dicts, the SDKs' objects, whole responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memman.entries import Draft, check_draft, encode_json
from memman.errors import FormatError, InvalidInput

_ONLY_IN_RESPONSES = frozenset(("annotations", "parsed", "parsed_output"))


def plain_messages(given: Any) -> list[Any]:
    """A list of dicts (or of the text itself) from messages, one message, or a response object.

    The objects of the OpenAI and Anthropic SDKs are recognised by what they can do, so that no SDK is
    imported. Raises `FormatError` for anything else.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        given = [given]
    return [_plain(index, item) for index, item in enumerate(given)]


def parse_each(
    messages: Iterable[Any], parse_one: Callable[[Any, str], list[Draft]]
) -> list[Draft]:
    """The drafts of all messages; a `FormatError` names the message that is at fault.

    `parse_one(message, label)` may raise any `InvalidInput`; the label is unique to the message.
    """
    drafts: list[Draft] = []
    for index, message in enumerate(messages):
        try:
            found = parse_one(message, str(index))
            for draft in found:
                check_draft(draft)
        except InvalidInput as error:
            raise FormatError(f"message {index}: {error}") from None
        except RecursionError:
            raise FormatError(f"message {index}: it is nested too deeply") from None
        drafts += found
    return drafts


def reported_usage(given: Any) -> Any:
    """The usage that a response object carries, or None."""
    if isinstance(given, Mapping):
        return given.get("usage") if "choices" in given or "stop_reason" in given else None
    return getattr(given, "usage", None) if hasattr(given, "model_dump") else None


def _plain(index: int, item: Any) -> Any:
    """A message as plain JSON data, or `FormatError` that names it."""
    message = _message_of(index, item)
    if isinstance(message, str):
        return message
    dump = getattr(message, "model_dump", None)
    if callable(dump):
        message = _dumped(index, dump)
    elif message is not item and isinstance(message, Mapping):
        message = _sendable(message)
    if not isinstance(message, Mapping):
        raise FormatError(
            f"message {index} must be a dict or an SDK's message object, not {type(item).__name__}"
        )
    plain = dict(message)
    try:
        encode_json(plain, f"message {index}")
    except InvalidInput as error:
        raise FormatError(str(error)) from None
    return plain


def _dumped(index: int, dump: Callable[..., Any]) -> Any:
    """An SDK's object as plain data, without what is only in responses."""
    try:
        dumped = dump(mode="json")
    except Exception as error:  # a stranger's code, on objects that nobody may have validated
        reason = f"{type(error).__name__}: {error}"
        raise FormatError(f"message {index} cannot be read: {reason}") from error
    return _sendable(dumped) if isinstance(dumped, Mapping) else dumped


def _sendable(message: Mapping[str, Any]) -> dict[str, Any]:
    """A response's message as it goes back: no nulls, which are what was not there.

    Only the message's own keys and those of its blocks and calls are looked at: a null deeper down
    is in the arguments of a call, and there it means something.
    """
    kept = {}
    for key, value in message.items():
        if value is None or key in _ONLY_IN_RESPONSES:
            continue
        kept[key] = [_filled(item) for item in value] if isinstance(value, list) else value
    return kept


def _filled(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    return {k: v for k, v in item.items() if v is not None and k not in _ONLY_IN_RESPONSES}


def _message_of(index: int, item: Any) -> Any:
    """The message inside a chat completion; anything else is the message itself."""
    choices = item.get("choices") if isinstance(item, Mapping) else getattr(item, "choices", None)
    if not choices:
        return item
    first = choices[0] if isinstance(choices, Sequence) else None
    message = (
        first.get("message") if isinstance(first, Mapping) else getattr(first, "message", None)
    )
    if message is None:
        raise FormatError(f"message {index} is a completion without a message in its first choice")
    return message
