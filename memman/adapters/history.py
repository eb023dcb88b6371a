"""The history of a framework as a session: for adapters of frameworks that hand over their whole list."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeVar

from memman.core.methods import AsyncMethods
from memman.entries import Entry
from memman.errors import SessionNotFound
from memman.results import Context, Source

_logger: Final = logging.getLogger("memman")
T = TypeVar("T")
_GONE: Final = "no longer in the framework's history"


@dataclass(frozen=True)
class HistoryMessage:
    """A message of a framework's history.

    Args:
        id: the id of its entry, which begins with the prefix of the mirror and has no colon. Further
            entries of the same message are called `id:1`, `id:2`.
        message: the message in the mirror's format.
        is_pinned: whether no compression may replace it.
        is_result: whether it is a tool's result, which finds its call wherever it was added.
    """

    id: str
    message: Any
    is_pinned: bool = False
    is_result: bool = False


def named_by_content(messages: Iterable[Mapping[str, Any]], prefix: str) -> list[HistoryMessage]:
    """Return chat messages that have no ids as a history.

    An id is a digest of the message, and of how many equal ones precede it. It stays the same in a list
    that grows, and in another process.

    Args:
        messages: messages in the format "openai-chat".
        prefix: the beginning of the ids, as for `HistoryMirror`.
    """
    times: Counter[str] = Counter()
    found = []
    for message in messages:
        text = json.dumps(message, sort_keys=True, default=repr)
        times[text] += 1
        id_ = prefix + digest_of(f"{times[text]} {text}")
        found.append(HistoryMessage(id_, message, is_result=message.get("role") == "tool"))
    return found


class HistoryMirror:
    """Keeps a session equal to the history of a framework: what is new is added, what is gone retracted.

    Entries whose id does not begin with the prefix are not the framework's, and stay as they are: what the
    application added, or what another framework said in the same session.

    Args:
        memory: the methods of a manager, `memory.aio`.
        session_id: the session.
        format: the format of the messages.
        prefix: the beginning of the ids, such as "pai-".
        continuing: how a run of the framework continues a conversation, for a warning.
    """

    def __init__(
        self, memory: AsyncMethods, session_id: str, *, format: str, prefix: str, continuing: str
    ) -> None:
        self._memory = memory
        self._session_id = session_id
        self._format = format
        self._prefix = prefix
        self._continuing = continuing
        # The ids of the history, once it was compared with the log.
        self._known: list[str] | None = None

    async def sync(
        self, history: Sequence[HistoryMessage], since: Sequence[str] | None = None
    ) -> None:
        """Make the session equal to a history.

        Args:
            history: the history.
            since: ids of messages: what precedes the first of them in the log stays, and is not read. By
                default the history is the whole one.
        """
        ids = [each.id for each in history]
        if self._known is not None and ids[: len(self._known)] == self._known:
            await self.add(history[len(self._known) :])
        else:
            await self.reconcile(history, since)
        self._known = ids

    async def resync(self, history: Sequence[HistoryMessage]) -> None:
        """Make the session equal to a history, after another process may have continued it."""
        self._known = None
        await self.sync(history)

    def lacks(self, context: Context, known: Iterable[str] | None = None) -> bool:
        """Return whether a context has messages that the history has not: another process added them.

        Args:
            context: a context of the session.
            known: the ids of the history; by default those of the last `sync`.
        """
        ids = set(self._known or () if known is None else known)
        own = (entry.id for entry in context.entries if entry.id.startswith(self._prefix))
        return any(message_id(id_) not in ids for id_ in own)

    async def add(self, messages: Sequence[HistoryMessage]) -> set[str]:
        """Add messages to the end of the session, and return the ids of those that are in the log now."""
        if not messages:
            return set()
        by_id = {each.id: each for each in messages}
        entries = await self._memory.add_messages(
            self._session_id,
            [each.message for each in messages],
            self._format,
            ids=list(by_id),
            unknown="keep",
        )
        for entry in entries:
            if by_id[message_id(entry.id)].is_pinned:
                await self._memory.pin(self._session_id, entry.id)
        return {message_id(entry.id) for entry in entries}

    async def reconcile(
        self, history: Sequence[HistoryMessage], since: Sequence[str] | None = None
    ) -> None:
        """Make the session equal to a history by reading the log, from `since` on."""
        order = await stored_messages(self._memory, self._session_id, self._prefix, since)
        matched, missing, late = 0, list[HistoryMessage](), list[HistoryMessage]()
        for message in history:
            if matched < len(order) and order[matched] == message.id:
                late, matched = list(missing), matched + 1
            else:
                missing.append(message)
        if order and not matched:
            _logger.warning(
                "session %s: the history of this run continues nothing of it, so its %d messages are "
                "retracted; to continue a conversation, %s",
                self._session_id,
                len(order),
                self._continuing,
            )
        hidden = await self._hidden({each.id for each in missing}.difference(order))
        await retract_messages(self._memory, self._session_id, order[matched:], _GONE)
        added = await self.add([message for message in missing if message.id not in hidden])
        inserted = [
            number
            for number, message in enumerate(history)
            if message in late and message.id in added and not message.is_result
        ]
        if inserted:
            behind = history[inserted[0] :]
            await retract_messages(self._memory, self._session_id, [m.id for m in behind], _GONE)
            await self.add(behind)

    async def _hidden(self, unseen: set[str]) -> set[str]:
        """Return those of the messages that the application has hidden, so that they stay so."""
        if self._known is not None:
            # What the last history lacked was retracted here, and has come back.
            return unseen.intersection(self._known)
        found = await logged_messages(self._memory, self._session_id, unseen)
        return {id_ for id_, reason in found.items() if reason not in (None, _GONE)}


async def logged_messages(
    memory: AsyncMethods, session_id: str, ids: Iterable[str]
) -> dict[str, str | None]:
    """Return the answer of `find_ids`; nothing without a session."""
    with suppress(SessionNotFound):
        return await memory.find_ids(session_id, list(ids))
    return {}


async def stored_messages(
    memory: AsyncMethods, session_id: str, prefix: str, since: Sequence[str] | None = None
) -> list[str]:
    """Return the ids of a session's messages, in order.

    Args:
        memory: the methods of a manager, `memory.aio`.
        session_id: the session.
        prefix: the beginning of the ids.
        since: as for `get_entries`: all messages by default.
    """
    entries = await _stored(memory, session_id, since)
    names = (message_id(entry.id) for entry in entries if entry.id.startswith(prefix))
    return list(dict.fromkeys(names))


async def retract_messages(
    memory: AsyncMethods, session_id: str, gone: Iterable[str], reason: str
) -> None:
    """Retract those of the messages that are in a session."""
    names = set(gone)
    entries = await _stored(memory, session_id, list(names)) if names else ()
    if ids := [entry.id for entry in entries if message_id(entry.id) in names]:
        await memory.retract(session_id, ids, reason=reason)


async def _stored(
    memory: AsyncMethods, session_id: str, since: Sequence[str] | None
) -> list[Entry]:
    with suppress(SessionNotFound):
        return await memory.get_entries(session_id, since=since)
    return []


def native_of(source: Source, own: Mapping[str, T]) -> T | None:
    """Return the framework's own message behind a message of a context.

    Args:
        source: that of the message, in `Context.sources`.
        own: the framework's messages by their ids.

    Returns:
        The message; None if memman altered it, or if `own` does not have it.
    """
    names = set(map(message_id, source.entries))
    return own.get(names.pop()) if source.unaltered and len(names) == 1 else None


def digest_of(text: str, size: int = 12) -> str:
    """Return a digest of a text, as the id of a message that has none.

    Args:
        text: any text, with lone surrogates too.
        size: the bytes of the digest, which has two hexadecimal digits for each.
    """
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def message_id(entry_id: str) -> str:
    """Return the id of the message that an entry belongs to."""
    return entry_id.partition(":")[0]
