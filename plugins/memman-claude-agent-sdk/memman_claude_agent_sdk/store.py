"""`MemmanSessionStore`: keeps the transcripts of Claude Code in memman sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from memman import (
    Entry,
    IdConflict,
    InvalidInput,
    MemoryManager,
    SessionInfo,
    SessionNotFound,
    valid_id,
)
from memman_claude_agent_sdk.transcript import FORMAT, Line, is_line

if TYPE_CHECKING:  # memman loads this package for its format, without the SDK
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

P = ParamSpec("P")
T = TypeVar("T")
_logger: Final = logging.getLogger("memman")
_MOST_BYTES: Final = 100  # of a part of a session id, so that all parts fit into one


class MemmanSessionStore:
    """Keep the transcripts of Claude Code's sessions in memman, one session each.

    The session of a transcript is called `project_key/session_id`, that of a subagent
    `project_key/session_id/subpath`. `load` returns the lines as they were appended, in order. The
    messages in them are also ordinary entries: for search, for other formats, for reports.

    Args:
        memory: a `MemoryManager`, without `redact`. The store calls it in threads, so it works with asyncio
            and trio.
    """

    def __init__(self, memory: MemoryManager) -> None:
        if not isinstance(memory, MemoryManager):
            raise InvalidInput(
                f"memory must be a MemoryManager, not {type(memory).__name__}: the SDK also runs on trio, "
                "so the store calls it in threads"
            )
        self.memory = memory
        self._lock = Lock()  # of the summaries, which each append reads and writes

    # ------------------------------------------------------------ required

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add the lines of a transcript, except for those whose `uuid` the session has."""
        await _in_thread(self._append, key, [dict(entry) for entry in entries])

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the lines of a transcript, None if there are none."""
        return await _in_thread(self._load, key)

    # ------------------------------------------------------------ optional

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, without those of subagents."""
        return [
            {"session_id": own["session_id"], "mtime": _mtime(info)}
            for info, own in await _in_thread(self._sessions, _part(project_key))
            if "subpath" not in own
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what the SDK keeps of each session of a project: its title, first prompt, folder."""
        return [
            {"session_id": own["session_id"], "mtime": _mtime(info), "data": own["summary"]}
            for info, own in await _in_thread(self._sessions, _part(project_key))
            if "subpath" not in own
        ]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session, those of its subagents."""
        within = session_id_of({"project_key": key["project_key"], "session_id": key["session_id"]})
        return [own["subpath"] for _, own in await _in_thread(self._sessions, within)]

    async def delete(self, key: SessionKey) -> None:
        """Delete the session of a transcript for good, and those of its subagents."""
        await _in_thread(self._delete, key)

    # ------------------------------------------------------------ in a thread

    def _append(self, key: SessionKey, lines: Sequence[Line]) -> None:
        if not lines:
            return
        session_id = session_id_of(key)
        with self._lock:
            newest = self._newest(session_id)
            entries = self._add(session_id, lines)
            if "redacted" in [each.metadata.get("memman", {}).get("altered") for each in entries]:
                raise InvalidInput(
                    "`redact` changed a line, and cannot reach its other keys: use a manager "
                    "without it"
                )
            added = {entry.id for entry in entries if entry.seq > newest}
            fresh = [line for line in lines if (id_ := _line_id(line)) is None or id_ in added]
            self._note(session_id, key, fresh)

    def _load(self, key: SessionKey) -> list[Any] | None:
        try:
            found = self.memory.get_messages(session_id_of(key), format=FORMAT)
        except SessionNotFound:
            return None
        return [line for line in found if is_line(line)] or None

    def _delete(self, key: SessionKey) -> None:
        session_id = session_id_of(key)
        doomed = [session_id]
        if not key.get("subpath"):
            doomed += [info.session_id for info, _ in self._sessions(session_id)]
        for each in doomed:
            self.memory.delete_session(each, missing_ok=True)

    def _newest(self, session_id: str) -> int:
        """Return the position of the newest entry in the log, 0 if there is none."""
        try:
            return max(
                (entry.seq for entry in self.memory.get_entries(session_id, last=1)), default=0
            )
        except SessionNotFound:
            return 0

    def _add(self, session_id: str, lines: Sequence[Line]) -> list[Entry]:
        """Add lines and return their entries. Those whose `uuid` the session has are not added again."""
        try:
            return self.memory.add_messages(
                session_id,
                lines,
                FORMAT,
                ids=[_line_id(line) for line in lines],
                compress=False,  # Claude Code fits its own requests
                unknown="keep",
            )
        except IdConflict:  # a known uuid with another content: it is ignored, as the SDK asks
            if len(lines) == 1:
                return []
            return [entry for line in lines for entry in self._add(session_id, [line])]

    def _note(self, session_id: str, key: SessionKey, lines: Sequence[Line]) -> None:
        """Record the usage in new lines, and describe the session by its key and the SDK's summary."""
        from claude_agent_sdk import fold_session_summary

        infos = self.memory.list_sessions(prefix=session_id)
        metadata = next(info.metadata for info in infos if info.session_id == session_id)
        own: dict[str, Any] = {**metadata.get(FORMAT, {}), **key}
        for answer in _answers(lines):
            if answer["id"] != own.get("answer"):  # the next append may have more of its lines
                self._record_usage(session_id, answer)
                own["answer"] = answer["id"]
        if not key.get("subpath"):
            before: Any = {**key, "mtime": 0, "data": own.get("summary", {})}
            appended: Any = list(lines)
            own["summary"] = fold_session_summary(before, key, appended)["data"]
        self.memory.update_session(session_id, metadata={**metadata, FORMAT: own})

    def _record_usage(self, session_id: str, answer: Line) -> None:
        try:
            self.memory.record_usage(session_id, answer["usage"], model=answer.get("model"))
        except InvalidInput as error:  # the lines are stored, and that matters more
            _logger.warning("the usage of an answer was not recorded: %s", error)

    def _sessions(self, within: str) -> list[tuple[SessionInfo, Line]]:
        """Return the sessions of transcripts in a project or below a session, with their keys."""
        found = self.memory.list_sessions(prefix=f"{within}/")
        return [(info, info.metadata[FORMAT]) for info in found if FORMAT in info.metadata]


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    from anyio import to_thread

    return await to_thread.run_sync(partial(function, *args, **kwargs))


def session_id_of(key: SessionKey) -> str:
    """Return the id of the memman session that has the transcript of a key."""
    own = "/".join(map(_part, (key["project_key"], key["session_id"])))
    subpath = key.get("subpath")
    return valid_id(subpath, prefix=f"{own}/") if subpath else own


def _part(text: str) -> str:
    """Return a part of a session id: the text, or a digest if it is too long or has a slash."""
    if text == valid_id(text) and "/" not in text and len(text.encode()) <= _MOST_BYTES:
        return text
    return f"blake2-{blake2b(text.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def _answers(lines: Sequence[Line]) -> list[Line]:
    """Return the messages of the model with their usage, once each: every line of an answer has it."""
    messages = (line.get("message") for line in lines if line.get("type") == "assistant")
    found = {
        message["id"]: message
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("id"), str) and message.get("usage")
    }
    return list(found.values())


def _line_id(line: Line) -> str | None:
    uuid = line.get("uuid")
    return valid_id(uuid) if isinstance(uuid, str) else None


def _mtime(info: SessionInfo) -> int:
    return int(info.last_active_at.timestamp() * 1000)
