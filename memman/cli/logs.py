"""A log that was only read, as a session: its entries with their own times, its compactions as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec

from memman.archive import SessionState, state_of
from memman.entries import (
    NO_JSON,
    NOT_COUNTED,
    Entry,
    NewEntry,
    encode_json,
    entry_of,
    text_of,
)
from memman.ids import new_id, new_nonce
from memman.manager import MemoryManager
from memman.protocols import Compaction, ReadEntry, ReadItem
from memman.records import (
    Added,
    Compressed,
    Configured,
    Opened,
    Record,
    Replacement,
    ReplacementMethod,
)

MOST_IN_DOCUMENT = 100_000  # entries; a session document is read and written as a whole
_LEFT_BEHIND = "left behind: the conversation went on from an earlier message"


def add_draft(memory: MemoryManager, session_id: str, new_entry: NewEntry) -> Entry:
    """Adds one entry of a log now, as whoever runs an agent would have added it."""
    shared: dict[str, Any] = {"message_id": new_entry.message_id}
    if new_entry.metadata_json is not NO_JSON:
        shared["metadata"] = msgspec.json.decode(new_entry.metadata_json)
    name = new_entry.name or ""
    called: dict[str, Any] = {"call_id": new_entry.call_id, **shared}
    match new_entry.type:
        case "tool_call":
            return memory.add_tool_call(session_id, name, text_of(new_entry.content), **called)
        case "tool_result":
            return memory.add_tool_result(
                session_id, name, new_entry.content, is_error=new_entry.is_error, **called
            )
        case "context":
            return memory.add_context(session_id, new_entry.content, name, **shared)
    said_by = {
        "user": memory.add_user_message,
        "assistant": memory.add_assistant_message,
        "system": memory.add_system_message,
    }
    return said_by[new_entry.role](session_id, new_entry.content, **shared)


def state_of_log(
    session_id: str,
    read: Iterable[ReadItem],
    count: Callable[[str], int] | None,
    settings: Mapping[str, Any] | None = None,
) -> SessionState:
    """The document of a session whose log is this; see `records_of_log`."""
    records = records_of_log(read, count, settings)
    return state_of(session_id, list(enumerate(records, 1)), settings or {})


def records_of_log(
    read: Iterable[ReadItem],
    count: Callable[[str], int] | None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Record]:
    """The records of a session whose log is this, one after the other, with settings of its own.

    Entries are counted when they are imported; `count` says what a compaction replaced, None where the
    log has none. An entry without a time has that of the one before, the first that of now. What was left
    behind leaves the window before the conversation goes on. A compaction with nothing before it, in
    a file that goes on another's, is a summary that stands for nothing here.
    """
    log = _Log(count)
    items = iter(read)
    first = next(items, None)
    if isinstance(first, ReadEntry | Compaction):
        yield log.opened(first.at)
    if settings:
        yield log.configured(settings)
    for item in items if first is None else chain([first], items):
        match item:
            case ReadEntry():
                yield from log.add(item)
            case Compaction():
                yield from log.compact(item)
    yield from log.leave_behind()


class _Run:
    """Entries of the window that may be replaced together: their ids and tokens, not what they say."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.tokens = 0
        self.first: tuple[int, datetime] | None = None
        self.last: tuple[int, datetime] | None = None

    def take(self, seq: int, entry: Entry, tokens: int) -> None:
        self.ids.append(entry.id)
        self.tokens += tokens
        self.first = self.first or (seq, entry.timestamp)
        self.last = (seq, entry.timestamp)


class _Log:
    """How far the log has come, and what of it is in the window."""

    def __init__(self, count: Callable[[str], int] | None) -> None:
        self._count = count
        self._seq = 0
        self._active, self._behind = _Run(), _Run()
        self._pinned = 0  # tokens of the head, which stays
        self._label: tuple[str, str] = ("", "")  # the last message's in the log, and ours
        self._calls: dict[str, str] = {}  # names of calls that are not answered yet
        self._at = datetime.now(UTC)
        self._began = False

    def opened(self, at: str | None) -> Record:
        """The record that opens the session, with the time of its first entry."""
        self._pass(at)
        self._seq += 1
        return Opened(id=new_id(), at=self._at, nonce=new_nonce())

    def configured(self, settings: Mapping[str, Any]) -> Record:
        """The record of the session's own settings."""
        self._seq += 1
        return Configured(id=new_id(), at=self._at, changes=dict(settings))

    def add(self, item: ReadEntry) -> Iterator[Record]:
        """An entry; system messages before all others are pinned, as in any session."""
        if not item.abandoned:
            yield from self.leave_behind()
        self._pass(item.at)
        new_entry = self._tied(item.new_entry)
        head = not self._began and new_entry.role == "system" and new_entry.type == "message"
        head = head and not item.abandoned
        self._began = self._began or not head
        entry = entry_of(new_entry, new_id(), self._at, NOT_COUNTED, pinned=head)
        yield self._added(entry, self._behind if item.abandoned else self._active)

    def compact(self, item: Compaction) -> Iterator[Record]:
        """All that may be replaced, replaced by the log's own summary."""
        yield from self.leave_behind()
        self._pass(item.at)
        self._began = True
        run, self._active = self._active, _Run()
        if run.first is None or run.last is None:
            yield self._added(self._summary(item.summary, NO_JSON), self._active)
            return
        covers = {
            "first": run.first[0],
            "last": run.last[0],
            "start": run.first[1].isoformat(),
            "end": run.last[1].isoformat(),
        }
        summary = self._summary(item.summary, encode_json(covers, "what a summary covers"))
        yield self._compressed(run, summary, "summary", item.reason)
        self._active.take(self._seq, summary, self._counted(summary))

    def leave_behind(self) -> Iterator[Record]:
        """The branch that was left behind leaves the window; its entries stay in the log."""
        run, self._behind = self._behind, _Run()
        if run.ids:
            yield self._compressed(run, None, "drop", _LEFT_BEHIND)

    def _added(self, entry: Entry, run: _Run) -> Record:
        self._seq += 1
        if entry.pinned:
            self._pinned += self._counted(entry)
        elif self._count is not None:
            run.take(self._seq, entry, self._counted(entry))
        return Added(entry)

    def _compressed(
        self, run: _Run, entry: Entry | None, method: ReplacementMethod, reason: str
    ) -> Record:
        self._seq += 1
        kept = self._pinned + self._active.tokens
        return Compressed(
            id=new_id(),
            at=self._at,
            replacements=(Replacement(tuple(run.ids), entry, method),),
            reason=reason,
            tokens_before=kept + run.tokens,
            tokens_after=kept + (0 if entry is None else self._counted(entry)),
        )

    def _counted(self, entry: Entry) -> int:
        return 0 if self._count is None else self._count(entry.text)

    def _summary(self, text: str, covers: msgspec.Raw) -> Entry:
        return Entry(id=new_id(), type="summary", role="system", content=text, timestamp=self._at,
                     metadata_json=covers)  # fmt: skip

    def _tied(self, new_entry: NewEntry) -> NewEntry:
        """The draft with a real message id in place of its label, and a result with its call's name."""
        if new_entry.message_id is not None:
            if new_entry.message_id != self._label[0]:  # the entries of a message follow each other
                self._label = new_entry.message_id, new_id()
            new_entry = msgspec.structs.replace(new_entry, message_id=self._label[1])
        if new_entry.type == "tool_call" and new_entry.call_id and new_entry.name:
            self._calls.setdefault(new_entry.call_id, new_entry.name)
        elif new_entry.type == "tool_result" and new_entry.call_id:
            name = self._calls.pop(new_entry.call_id, None)
            if new_entry.name is None:
                new_entry = msgspec.structs.replace(new_entry, name=name)
        return new_entry

    def _pass(self, at: str | None) -> None:
        """Takes over a time of the log; one that cannot be read is as good as none."""
        if at is None:
            return
        try:
            found = datetime.fromisoformat(at)
        except ValueError:
            return
        self._at = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
