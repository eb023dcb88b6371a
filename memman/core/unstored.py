"""Messages that are part of a context and of no log: those of `fit_messages`, and pending ones."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from memman.core.resolver import Resolver
from memman.counting.media import media_fault
from memman.display import safe_repr
from memman.entries import NOT_COUNTED, Entry, NewEntry, entry_of
from memman.errors import FormatError
from memman.formats.lenient import parsed_messages, read_messages, with_notes
from memman.formats.streams import whole
from memman.ids import entry_id
from memman.session.shared import Shared
from memman.window import is_compaction


class Unstored:
    """Makes entries of messages as `add_messages` does, without storing them.

    A message that cannot be read is kept whole: a request must not fail because of it. Entries are named by
    the index of their message, behind a prefix; they are not counted.
    """

    def __init__(self, shared: Shared, resolver: Resolver) -> None:
        self._shared = shared
        self._resolver = resolver

    def pending(self, messages: Any, form: str) -> tuple[Entry, ...]:
        """Return the entries of messages that follow a window in a context of this format, all pinned."""
        _, found = self._read(messages, "auto", form, "pending:")
        return tuple(msgspec.structs.replace(entry, pinned=True) for entry in found)

    def whole(self, messages: Any, format: str) -> tuple[str, tuple[Entry, ...]]:
        """Return the format of all messages of a request, and their entries.

        System messages at the start are pinned.
        """
        form, found = self._read(messages, format, self._shared.format, "")
        for number, entry in enumerate(found):
            if entry.role != "system" or entry.type != "message":
                break
            found[number] = msgspec.structs.replace(entry, pinned=True)
        # The provider of a compaction reads nothing before the last one.
        first = max((at for at, entry in enumerate(found) if is_compaction(entry)), default=0)
        return form, tuple(entry for at, entry in enumerate(found) if entry.pinned or at >= first)

    def _read(
        self, messages: Any, format: str, default: str, prefix: str
    ) -> tuple[str, list[Entry]]:
        plain = read_messages(whole(messages, keep=True), keep=True)
        if format == "auto":
            form = self._resolver.most_likely([each.message for each in plain], default)
        else:
            form = self._resolver.format_named(format)
        if isinstance(messages, bytes | int | float | None) or (
            isinstance(messages, str) and form.name != "text"
        ):
            raise FormatError(f"messages must be a list of them, not {safe_repr(messages, 60)}")
        parsed = [with_notes(each, media_fault) for each in parsed_messages(form, plain, keep=True)]
        return form.name, [
            self._entry(new_entry, entry_id(f"{prefix}{index}", number), prefix)
            for index, of_message in groupby(parsed, key=attrgetter("message_index"))
            for number, new_entry in enumerate(of_message)
        ]

    def _entry(self, new_entry: NewEntry, name: str, prefix: str) -> Entry:
        label = new_entry.message_id
        if label is not None:
            new_entry = msgspec.structs.replace(new_entry, message_id=f"{prefix}{label}")
        entry = entry_of(new_entry, name, self._shared.clock(), NOT_COUNTED)
        return self._shared.redacted(entry, "nothing was built")
