"""Redacting the records of a log that comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from memman.archive.validation import with_entry
from memman.entries import Entry, Role
from memman.records import Record, StateSetter
from memman.state import MESSAGES, State, StateItem, state_text
from memman.window import state_entry

Redact = Callable[[Entry], Entry]
_NO_CHANGES: Final[Mapping[str, str]] = {}
_ROLES: Final[Mapping[str, Role]] = {"said": "assistant", "system": "system"}


class Redactor:
    """Applies `redact` to the records of a log, which it is given in their order.

    An outline quotes pieces of entries, in which `redact` may not recognise a secret. So the block loses
    the items that come only from changed entries; the user's messages stay, as redacted.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._changed: dict[str, str] = {}  # by id, the new texts of messages, "" of other entries

    def record(self, record: Record) -> Record:
        """Return a record with every entry and its outline redacted; counts of blocks stay."""
        record = with_entry(record, self._entry)
        if not isinstance(record, StateSetter) or record.state is None:
            return record
        shown = state_entry(record, record.state)
        state = redacted_state(shown, record.state, self._redact, self._changed)
        return msgspec.structs.replace(record, state=state)

    def _entry(self, entry: Entry) -> Entry:
        clean = self._redact(entry)
        if (clean.content, clean.name) != (entry.content, entry.name):
            self._changed[entry.id] = clean.text if entry.type == "message" else ""
        return clean


def redacted_state(
    shown: Entry, state: State, redact: Redact, changed: Mapping[str, str] = _NO_CHANGES
) -> State:
    """Return an outline with `redact` applied to each of its texts; its count stays.

    Args:
        shown: the entry that shows it.
        state: the block.
        redact: redacts an entry.
        changed: the texts of messages that `redact` changed, by id, and "" for other entries.
    """

    def clean(item: StateItem) -> str:
        """Return the text of an item that may stay; "" for one that may not."""
        lost = [
            state.sources[number] for number in item.sources if state.sources[number] in changed
        ]
        if len(lost) < len(item.sources) or not lost:
            text = redact(_in_place_of(shown, item, item.text)).text
            one_line = text != item.text and item.section not in MESSAGES
            return " ".join(text.splitlines()) if one_line else text
        return changed[lost[-1]].strip() if item.section in MESSAGES and not item.part else ""

    items = []
    for item in state.items:
        if text := clean(item):
            key = item.key  # of a task its tool, of a call its id, of a message its speaker
            if item.section in MESSAGES:
                key = redact(_in_place_of(shown, item, text)).name or ""
            items.append(msgspec.structs.replace(item, key=key, text=text))
    if tuple(items) == state.items:
        return state
    return msgspec.structs.replace(state, text=state_text(items, state.covered), items=tuple(items))


def _in_place_of(shown: Entry, item: StateItem, text: str) -> Entry:
    """Return an entry with this text for an item of a block; a message has its speaker's name."""
    if item.section not in MESSAGES:
        return msgspec.structs.replace(shown, content=text)
    name = item.key or None
    role = _ROLES.get(item.section, "user")
    return msgspec.structs.replace(shown, content=text, type="message", role=role, name=name)
