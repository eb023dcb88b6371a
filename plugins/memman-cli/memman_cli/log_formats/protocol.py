"""The protocol of a reader of logs, and the items that it returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from memman.entries import NewEntry


class ReadEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a log, with its time (ISO 8601, None if the log has none).

    An `abandoned` one belongs to a branch that was not continued, so the model no longer saw it.
    """

    new_entry: NewEntry
    at: str | None = None
    abandoned: bool = False


class Compaction(msgspec.Struct, frozen=True, gc=False):
    """A point in a log before which everything was replaced by `summary`; `reason` is the log's own."""

    summary: str
    reason: str
    at: str | None = None


class LeftOut(msgspec.Struct, frozen=True, gc=False):
    """A part of a log that is not in its conversation, described for the user."""

    what: str


ReadItem = ReadEntry | Compaction | LeftOut


@runtime_checkable
class ImportFormat(Protocol):
    """A log that is only read: an agent's session file, or the export of a chat.

    An item is a line of a JSONL file, an element of a JSON list, or the document itself.
    """

    name: str

    def detect(self, items: Sequence[Any]) -> int:
        """Return how certainly these first items of a file are of this log: 0 for not at all."""

    def conversations(self, items: Iterable[Any]) -> Iterable[tuple[str, Iterable[Any]]]:
        """Return the conversations in the items, each with its title, if any, and its own items."""

    def parse(self, items: Iterable[Any]) -> Iterable[ReadItem]:
        """Return one conversation in order. Unknown data is kept as metadata. Raises `FormatError`.

        The items can be iterated over more than once, and may be more than memory holds, so the result
        should be a generator.
        """
