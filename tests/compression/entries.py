"""Entries for tests of compression."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from memman.entries import Content, Entry, NewEntry, TokenCount, entry_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


def chars4(text: str) -> int:
    return (len(text) + 3) // 4


def entry(seq: int, content: Content, **given: Any) -> Entry:
    """Return a user message, or another entry by `given`; counted by four characters a token."""
    fields: dict[str, Any] = {"type": "message", "role": "user"} | given
    made = Entry(id=f"e{seq}", seq=seq, content=content, timestamp=AT, **fields)
    if "token_count" in given:
        return made
    return msgspec.structs.replace(made, token_count=TokenCount(chars4(made.text)))


def result(seq: int, content: Content, **given: Any) -> Entry:
    return entry(seq, content, type="tool_result", role="tool", name="shell", **given)


def summary(seq: int, content: str) -> Entry:
    return entry(seq, content, type="summary", role="system")


def constraint(seq: int, content: str) -> Entry:
    """Return an entry that its caller declared to be a constraint."""
    return entry(seq, content, metadata_json=msgspec.Raw(b'{"constraint":true}'))


class Crafting:
    """A factory of entries, counted by four characters a token."""

    def __init__(self, count: Callable[[str], int] = chars4) -> None:
        self._count = count

    def __call__(self, new_entry: NewEntry) -> Entry:
        return entry_of(new_entry, "made", AT, TokenCount(self._count(str(new_entry.content))))
