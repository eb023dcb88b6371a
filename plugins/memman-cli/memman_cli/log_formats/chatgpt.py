"""The data export of ChatGPT (`conversations.json`): a tree for each conversation.

The branch that ends in the current node is the conversation; the others, from questions that were edited,
are read as abandoned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from memman.display import safe_repr
from memman.entries import JSON, Content, JSONObject, NewEntry, Part, TextPart
from memman.errors import FormatError
from memman.formats.parts import opaque, other_keys
from memman_cli.log_formats.common import with_log_keys
from memman_cli.log_formats.protocol import ReadEntry, ReadItem

_NAME = "chatgpt-export"
_OF_MESSAGE = frozenset(("author", "content", "create_time", "update_time", "recipient"))


class ChatGPTExport:
    """`{"title": ..., "mapping": {id: {"message", "parent", "children"}}, "current_node": id}`."""

    name = _NAME

    def detect(self, items: Sequence[JSON]) -> int:
        """Return the highest certainty for a tree of nodes with a current one."""
        known = items and all(
            isinstance(item, dict) and isinstance(item.get("mapping"), dict) for item in items
        )
        return 9 if known else 0

    def conversations(self, items: Iterable[JSON]) -> Iterator[tuple[str, Iterable[JSON]]]:
        """Yield each element as a conversation."""
        for item in items:
            yield str(item.get("title") or ""), [item]

    def parse(self, items: Iterable[JSON]) -> Iterator[ReadItem]:
        """Yield the nodes with content, each abandoned branch before the one that replaced it."""
        number = 0
        for item in items:
            for message, live in _walked(item):
                new_entry = _draft(number, message)
                number += 1
                if new_entry is not None:
                    others = other_keys(message, _OF_MESSAGE)
                    rest = {key: value for key, value in others.items() if value not in (None, {})}
                    yield ReadEntry(with_log_keys(new_entry, _NAME, rest), _time(message), not live)


def _walked(item: JSONObject) -> Iterator[tuple[JSONObject, bool]]:
    """Yield each message, and whether it is on the branch to the current node, parents before children."""
    mapping = item["mapping"]
    path = _path(mapping, item.get("current_node"))
    live, seen = set(path), set(path)
    for at in path:
        if message := _message(mapping[at]):
            yield message, True
        others = [name for name in reversed(_children(mapping[at])) if name not in live]
        while others:
            name = others.pop()
            if name in seen or name not in mapping:
                continue
            seen.add(name)
            if message := _message(mapping[name]):
                yield message, False
            others += reversed(_children(mapping[name]))


def _path(mapping: JSONObject, at: JSON) -> list[str]:
    """Return the nodes from the root to the current one; the mapping has no order."""
    if not isinstance(at, str) or at not in mapping:
        raise FormatError(f"its current_node {safe_repr(at, 60)} is not in its mapping")
    path: list[str] = []
    seen: set[str] = set()
    while isinstance(at, str) and at in mapping and at not in seen:
        seen.add(at)
        path.append(at)
        node = mapping[at]
        at = node.get("parent") if isinstance(node, dict) else None
    return path[::-1]


def _children(node: JSON) -> list[str]:
    found = node.get("children") if isinstance(node, dict) else None
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _message(node: JSON) -> JSONObject:
    """Return the message of a node; empty if it has none."""
    found = node.get("message") if isinstance(node, dict) else None
    return found if isinstance(found, dict) else {}


def _time(message: JSONObject) -> str | None:
    at = message.get("create_time")
    if isinstance(at, bool) or not isinstance(at, int | float):
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def _draft(number: int, message: JSONObject) -> NewEntry | None:
    author = message.get("author")
    role = author.get("role") if isinstance(author, dict) else None
    if role not in ("system", "user", "assistant", "tool"):
        raise FormatError(f"message {number} of the branch has an author without a known role")
    content = _content(message.get("content"))
    if not content:
        return None
    recipient = message.get("recipient")
    if role == "assistant" and isinstance(recipient, str) and recipient not in ("all", ""):
        return NewEntry(type="tool_call", role="assistant", content=content, name=recipient)
    if role == "tool":
        name = author.get("name") if isinstance(author, dict) else None
        named = name if isinstance(name, str) else None
        return NewEntry(type="tool_result", role="tool", content=content, name=named)
    own: JSON = role
    return NewEntry(type="message", role=own, content=content)


def _content(content: JSON) -> Content:
    """Return the text of a content; anything but text stays as it is."""
    if not isinstance(content, dict):
        return ""
    parts = content.get("parts")
    if isinstance(content.get("text"), str):
        return str(content["text"])
    if not isinstance(parts, list):
        known = any(value for key, value in content.items() if key != "content_type")
        return (opaque(_NAME, content, "a part of a message"),) if known else ""
    if all(isinstance(part, str) for part in parts):
        return "\n".join(parts)
    found: list[Part] = [
        TextPart(part) if isinstance(part, str) else opaque(_NAME, part, "a part of a message")
        for part in parts
        if part
    ]
    return tuple(found)
