"""A log that was only read, as a session: its entries with their own times, its compactions as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from memman.archive import SessionState, state_of
from memman.entries import (
    NO_JSON,
    NOT_COUNTED,
    Draft,
    Entry,
    encode_json,
    entry_of,
    text_of,
)
from memman.ids import new_id
from memman.manager import MemoryManager
from memman.ports import Compaction, ReadEntry
from memman.records import Added, Compressed, Record, Replacement


def take_log(
    memory: MemoryManager, session_id: str, read: Iterable[ReadEntry | Compaction]
) -> None:
    """Makes a log that was read a session of a manager, with its own times and compactions."""
    count = memory.count_tokens
    memory.import_session(state_of_log(session_id, read, lambda text: count(text).tokens))


def add_draft(memory: MemoryManager, session_id: str, draft: Draft) -> Entry:
    """Adds one entry of a log now, as whoever runs an agent would have added it."""
    shared: dict[str, Any] = {"message_id": draft.message_id}
    if draft.metadata_json is not NO_JSON:
        shared["metadata"] = msgspec.json.decode(draft.metadata_json)
    name = draft.name or ""
    called: dict[str, Any] = {"call_id": draft.call_id, **shared}
    match draft.type:
        case "tool_call":
            return memory.add_tool_call(session_id, name, text_of(draft.content), **called)
        case "tool_result":
            return memory.add_tool_result(
                session_id, name, draft.content, is_error=draft.is_error, **called
            )
        case "context":
            return memory.add_context(session_id, draft.content, name, **shared)
    said_by = {
        "user": memory.add_user_message,
        "assistant": memory.add_assistant_message,
        "system": memory.add_system_message,
    }
    return said_by[draft.role](session_id, draft.content, **shared)


def state_of_log(
    session_id: str, read: Iterable[ReadEntry | Compaction], count: Callable[[str], int]
) -> SessionState:
    """The document of a session whose log is this.

    Entries are counted when it is imported; `count` says what a compaction replaced. An entry without a
    time has that of the one before, the first that of now. A compaction with nothing before it, in a file
    that goes on another's, is a summary that stands for nothing here.
    """
    log = _Log(count)
    for item in read:
        if isinstance(item, Compaction):
            log.compact(item)
        else:
            log.add(item)
    return state_of(session_id, list(enumerate(log.records, 1)), {})


class _Log:
    """The records so far, and what of them is in the window."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self.records: list[Record] = []
        self._active: list[tuple[int, Entry]] = []
        self._labels: dict[str, str] = {}
        self._at = datetime.now(UTC)
        self._began = False

    def add(self, item: ReadEntry) -> None:
        """Appends an entry; system messages before all others are pinned, as in any session."""
        self._pass(item.at)
        draft = item.draft
        if draft.message_id is not None:
            label = self._labels.setdefault(draft.message_id, new_id())
            draft = msgspec.structs.replace(draft, message_id=label)
        head = not self._began and draft.role == "system" and draft.type == "message"
        self._began = self._began or not head
        self._append(entry_of(draft, new_id(), self._at, NOT_COUNTED, pinned=head))

    def compact(self, item: Compaction) -> None:
        """Replaces all that may be replaced by the log's own summary."""
        self._pass(item.at)
        replaced = [(seq, entry) for seq, entry in self._active if not entry.pinned]
        self._began = True
        if not replaced:
            self._append(self._summary(item.summary, NO_JSON))
            return
        first, last = replaced[0], replaced[-1]
        covers = {
            "first": first[0],
            "last": last[0],
            "start": first[1].timestamp.isoformat(),
            "end": last[1].timestamp.isoformat(),
        }
        summary = self._summary(item.summary, encode_json(covers, "what a summary covers"))
        ids = tuple(entry.id for _, entry in replaced)
        made = (Replacement(ids, summary, "summary"),)
        before = sum(self._count(entry.text) for _, entry in self._active)
        after = before - sum(self._count(entry.text) for _, entry in replaced)
        self.records.append(
            Compressed(
                id=new_id(),
                at=self._at,
                replacements=made,
                reason=item.reason,
                tokens_before=before,
                tokens_after=after + self._count(item.summary),
            )
        )
        pinned = [(seq, entry) for seq, entry in self._active if entry.pinned]
        self._active = [*pinned, (len(self.records), summary)]

    def _append(self, entry: Entry) -> None:
        self.records.append(Added(entry))
        self._active.append((len(self.records), entry))

    def _summary(self, text: str, covers: msgspec.Raw) -> Entry:
        return Entry(id=new_id(), type="summary", role="system", content=text, timestamp=self._at,
                     metadata_json=covers)  # fmt: skip

    def _pass(self, at: str | None) -> None:
        """Takes over a time of the log; one that cannot be read is as good as none."""
        if at is None:
            return
        try:
            found = datetime.fromisoformat(at)
        except ValueError:
            return
        self._at = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
