"""A log as a session: its entries with their own times, its compactions as compressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec

from memman.archive.document import SessionState, state_of
from memman.entries import NO_JSON, NOT_COUNTED, Entry, NewEntry, encode_json, entry_of
from memman.ids import new_id, new_nonce
from memman.manager import MemoryManager
from memman.records import Added, Compressed, Configured, Opened, Record, Replacement
from memman_cli.errors import UnusableError
from memman_cli.log_formats.protocol import Compaction, ReadEntry, ReadItem
from memman_cli.logs import Log

MOST_IN_DOCUMENT = 100_000  # entries; a session document is read and written as a whole
_ABANDONED = "left behind: the conversation went on from an earlier message"


def import_log(
    memory: MemoryManager, log: Log, session_id: str, settings: Mapping[str, Any], most: int
) -> None:
    """Import the whole log as a new session. Raises `UnusableError` for more than `most` entries."""
    state = state_of_log(session_id, _at_most(log, most), counter_for(log, memory), settings)
    memory.import_session(state, trust_settings=True)


def state_of_log(
    session_id: str,
    read: Iterable[ReadItem],
    count: Callable[[str], int] | None,
    settings: Mapping[str, Any] | None = None,
) -> SessionState:
    """Return the document of a log's session; see `records_of_log`."""
    records = records_of_log(read, count, settings)
    return state_of(session_id, list(enumerate(records, 1)), settings or {})


def counter_for(log: Log, memory: MemoryManager) -> Callable[[str], int] | None:
    """Return the function that counts replaced entries; None if the log cannot have compactions."""
    return (lambda text: memory.count_tokens(text).tokens) if log.read_only else None


def _at_most(log: Log, entries: int) -> Iterator[ReadItem]:
    for number, item in enumerate(log.read()):
        if number == entries:
            raise UnusableError(
                f"{log.name} has more than {entries:,} entries, too many for a session document: "
                "import it with --into chat.db or with -o chat.jsonl, and go on with that"
            )
        yield item


def records_of_log(
    read: Iterable[ReadItem],
    count: Callable[[str], int] | None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Record]:
    """Yield the records of a log's session, with settings of its own.

    Entries are counted when they are imported; `count` counts entries that a compaction replaced, and is
    None if the log has none. An entry without a time gets that of the entry before it, the first one the
    current time. An abandoned branch leaves the window before the conversation goes on. A compaction
    without entries before it, in a file that continues another, becomes a summary of nothing.
    """
    log = _Records(count)
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
    yield from log.drop_abandoned()


class _Run:
    """Entries of the window that can be replaced together: their ids and tokens, without their texts."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.tokens = 0
        self.first: tuple[int, datetime] | None = None
        self.last: tuple[int, datetime] | None = None

    def append(self, seq: int, entry: Entry, tokens: int) -> None:
        self.ids.append(entry.id)
        self.tokens += tokens
        self.first = self.first or (seq, entry.timestamp)
        self.last = (seq, entry.timestamp)


class _Records:
    """The position in the log, and the part of it that is in the window."""

    def __init__(self, count: Callable[[str], int] | None) -> None:
        self._count = count
        self._seq = 0
        self._active, self._abandoned = _Run(), _Run()
        self._pinned = 0  # tokens of the pinned head
        self._label: tuple[str, str] = ("", "")  # the last message's id in the log, and ours
        self._calls: dict[str, str] = {}  # names of calls without a result so far
        self._at = datetime.now(UTC)
        self._began = False

    def opened(self, at: str | None) -> Record:
        """Return the record that opens the session, with the time of its first entry."""
        self._advance(at)
        self._seq += 1
        return Opened(id=new_id(), at=self._at, nonce=new_nonce())

    def configured(self, settings: Mapping[str, Any]) -> Record:
        """Return the record of the session's own settings."""
        self._seq += 1
        return Configured(id=new_id(), at=self._at, changes=dict(settings))

    def add(self, item: ReadEntry) -> Iterator[Record]:
        """Add an entry; leading system messages are pinned, as in any session."""
        if not item.abandoned:
            yield from self.drop_abandoned()
        self._advance(item.at)
        new_entry = self._linked(item.new_entry)
        head = not self._began and new_entry.role == "system" and new_entry.type == "message"
        head = head and not item.abandoned
        self._began = self._began or not head
        entry = entry_of(new_entry, new_id(), self._at, NOT_COUNTED, pinned=head)
        yield self._added(entry, self._abandoned if item.abandoned else self._active)

    def compact(self, item: Compaction) -> Iterator[Record]:
        """Replace the replaceable part of the window by the log's own summary."""
        yield from self.drop_abandoned()
        self._advance(item.at)
        self._began = True
        run, self._active = self._active, _Run()
        if run.first is None or run.last is None:
            yield self._added(self._summary(item.summary, NO_JSON), self._active)
            return
        (first, start), (last, end) = run.first, run.last
        covers = {"first": first, "last": last, "start": start.isoformat(), "end": end.isoformat()}
        summary = self._summary(item.summary, encode_json(covers, "the range of a summary"))
        yield self._compressed(run, summary, item.reason)
        self._active.append(self._seq, summary, self._tokens(summary))

    def drop_abandoned(self) -> Iterator[Record]:
        """Drop an abandoned branch from the window; its entries stay in the log."""
        run, self._abandoned = self._abandoned, _Run()
        if run.ids:
            yield self._compressed(run, None, _ABANDONED)

    def _added(self, entry: Entry, run: _Run) -> Record:
        self._seq += 1
        if entry.pinned:
            self._pinned += self._tokens(entry)
        elif self._count is not None:
            run.append(self._seq, entry, self._tokens(entry))
        return Added(entry)

    def _compressed(self, run: _Run, entry: Entry | None, reason: str) -> Record:
        self._seq += 1
        kept = self._pinned + self._active.tokens
        return Compressed(
            id=new_id(),
            at=self._at,
            replacements=(Replacement(tuple(run.ids), entry, "summary" if entry else "drop"),),
            reason=reason,
            tokens_before=kept + run.tokens,
            tokens_after=kept + (0 if entry is None else self._tokens(entry)),
        )

    def _tokens(self, entry: Entry) -> int:
        return 0 if self._count is None else self._count(entry.text)

    def _summary(self, text: str, covers: msgspec.Raw) -> Entry:
        return Entry(id=new_id(), type="summary", role="system", content=text, timestamp=self._at,
                     metadata_json=covers)  # fmt: skip

    def _linked(self, new_entry: NewEntry) -> NewEntry:
        """Return the entry with an id of ours for its message, and a result with the name of its call."""
        if new_entry.message_id is not None:
            if new_entry.message_id != self._label[0]:  # the entries of a message are adjacent
                self._label = new_entry.message_id, new_id()
            new_entry = msgspec.structs.replace(new_entry, message_id=self._label[1])
        if new_entry.type == "tool_call" and new_entry.call_id and new_entry.name:
            self._calls.setdefault(new_entry.call_id, new_entry.name)
        elif new_entry.type == "tool_result" and new_entry.call_id:
            name = self._calls.pop(new_entry.call_id, None)
            if new_entry.name is None:
                new_entry = msgspec.structs.replace(new_entry, name=name)
        return new_entry

    def _advance(self, at: str | None) -> None:
        """Go to a time of the log; an invalid one is ignored."""
        if at is None:
            return
        try:
            found = datetime.fromisoformat(at)
        except ValueError:
            return
        self._at = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
