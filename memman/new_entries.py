"""What the `add_*` verbs make of what they are given: one maker for both doors of each verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from memman.entries import Content, NewEntry, check_name, check_text, json_bytes
from memman.errors import InvalidInput


def message(
    role: Literal["system", "user", "assistant"], content: Content, message_id: str | None
) -> NewEntry:
    """A message."""
    return NewEntry(type="message", role=role, content=content, message_id=message_id)


def tool_call(
    name: str, arguments: Mapping[str, Any] | str, call_id: str | None, message_id: str | None
) -> NewEntry:
    """A call of a tool."""
    name = check_name(name, "tool_call")
    if not name:  # providers refuse it
        raise InvalidInput("a tool call names its tool, not ''")
    return NewEntry(
        type="tool_call",
        role="assistant",
        content=_arguments(arguments),
        call_id=call_id,
        name=name,
        message_id=message_id,
    )


def tool_result(
    name: str, content: Content, call_id: str | None, is_error: bool, message_id: str | None
) -> NewEntry:
    """What a tool returned."""
    name = check_name(name, "tool_result")
    return NewEntry(
        type="tool_result",
        role="tool",
        content=content,
        call_id=call_id,
        name=name,
        message_id=message_id,
        is_error=is_error,
    )


def context(source: str, content: Content, message_id: str | None) -> NewEntry:
    """Material from a source."""
    source = check_name(source, "context")
    return NewEntry(
        type="context", role="system", content=content, name=source, message_id=message_id
    )


def _arguments(arguments: Mapping[str, Any] | str) -> str:
    """A call's arguments as text."""
    if type(arguments) is dict:
        return json_bytes(arguments, "a tool call's arguments").decode()
    if isinstance(arguments, str):
        return check_text(arguments, "a tool call's arguments")
    if not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"a tool call's arguments are a mapping or text, not {type(arguments).__name__}"
        )
    return json_bytes(dict(arguments), "a tool call's arguments").decode()
