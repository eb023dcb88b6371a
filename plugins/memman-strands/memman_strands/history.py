"""The messages of an agent as a session of memman."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Final
from uuid import uuid4

from strands.types.content import Message

from memman import AsyncMethods, Context, SessionExists, SessionNotFound
from memman.adapters import (
    HistoryMessage,
    HistoryMirror,
    digest_of,
    logged_messages,
    message_id,
    native_of,
    stored_messages,
)
from memman.formats.bedrock import sdk_messages

FORMAT: Final = "bedrock"  # Strands' messages are those of Bedrock's Converse
_PREFIX: Final = "strands-"  # of the ids that are made here
_CONTENT: Final = len(_PREFIX) + 24  # the letters of an id that tell the content
_OF_STRANDS: Final = ("tracking_id", "metadata")  # keys that no provider gets


class AgentHistory:
    """A session with the messages of an agent: what is new is added, what is gone is retracted.

    An agent may lack the oldest messages of its session: those that left it with `trim`, and those that
    were in the log before the agent was made.
    """

    def __init__(self, memory: AsyncMethods, session_id: str) -> None:
        self.session_id = session_id
        self.origin: str | None = None  # the session that an agent was restored from
        self._memory = memory
        self._mirror = HistoryMirror(
            memory,
            session_id,
            format=FORMAT,
            prefix=_PREFIX,
            continuing="keep the agent's messages, or make another agent for this session",
        )
        self._left: list[HistoryMessage] = []  # which left the agent, before its messages
        self._ids: list[str] | None = None  # of the agent's messages, in order
        self._aliases: dict[str, str] = {}  # ids in the log of messages that came without one

    async def recognise(self, messages: Sequence[Message]) -> None:
        """Find those messages in the log that came without a tracking id, by their content and order.

        Strands gives them a new one in each process: to messages that the application passes to an agent,
        and to those of old sessions.
        """
        unknown = [not message.get("tracking_id") for message in messages]
        if not any(unknown):
            return
        for message in messages:
            message["tracking_id"] = message.get("tracking_id") or uuid4().hex
        await self._fork()
        stored = await stored_messages(self._memory, self.session_id, _PREFIX)
        named = [each.id for each in _named(messages)]
        matcher = SequenceMatcher(
            None, [id_[:_CONTENT] for id_ in stored], [id_[:_CONTENT] for id_ in named], False
        )
        for start, own, size in matcher.get_matching_blocks():
            for step in range(size):
                if unknown[own + step]:
                    self._aliases[named[own + step]] = stored[start + step]

    async def sync(self, messages: Sequence[Message]) -> list[str]:
        """Make the session equal to the messages of the agent, and return their ids.

        The ids are the caller's own list: another run of the same agent may sync in between.
        """
        history = [
            replace(each, id=self._aliases.get(each.id, each.id)) for each in _named(messages)
        ]
        ids, since = [each.id for each in history], None
        if self._ids is None:  # a new agent continues the session
            await self._fork()
            since = ids
        elif ids[: len(self._ids)] != self._ids:
            since = await self._since(ids, self._ids)
        await self._mirror.sync([*self._left, *history], since)
        self._ids = ids
        return ids

    def trim(self, count: int) -> None:
        """Keep the first messages of the agent in the session, although the agent drops them."""
        ids = self._ids or []
        self._left += [HistoryMessage(id_, None) for id_ in ids[:count]]
        self._ids = ids[count:]

    def messages_of(
        self, context: Context, ids: Sequence[str], own: Sequence[Message]
    ) -> list[Message]:
        """Return a context as messages: the agent's own wherever they are unaltered.

        Args:
            context: a context of the session.
            ids: what `sync` returned.
            own: the agent's messages with these ids, or copies of them.
        """
        by_id = dict(zip(ids, own, strict=True))
        found: list[Any] = []
        rendered = sdk_messages(context.messages)
        for message, source in zip(rendered, context.sources, strict=True):
            native = native_of(source, by_id)
            found.append(message if native is None else _with_marks(native, message))
        return found

    async def _since(self, ids: Sequence[str], before: Sequence[str]) -> list[str] | None:
        """Return the ids at which the agent's part of the session begins, after its messages changed."""
        known = await logged_messages(self._memory, self.session_id, ids)
        has_begun_anew = None not in known.values()
        if not has_begun_anew and known.get(ids[0], "") is not None:
            return [*(each.id for each in self._left), *before, *ids]
        self._left = []
        return None if has_begun_anew else list(ids)

    async def _fork(self) -> None:
        """Copy the session that a new agent was restored from."""
        if self._ids is None and self.origin not in (None, self.session_id):
            with suppress(SessionExists, SessionNotFound):
                await self._memory.fork_session(str(self.origin), self.session_id)


def _named(messages: Sequence[Message]) -> list[HistoryMessage]:
    """Return messages as they are logged, with ids that are the same in another process."""
    found: dict[str, HistoryMessage] = {}
    for message in messages:
        logged = {key: value for key, value in message.items() if key not in _OF_STRANDS}
        is_result = any("toolResult" in block for block in message["content"])
        # A session manager repairs results that are missing, each time with another tracking id.
        tracked = "" if is_result else message.get("tracking_id")
        content = json.dumps(logged, default=_text_of)
        digest = id_ = f"{_PREFIX}{digest_of(content)}-{digest_of(tracked or '', 6)}"
        copies = 1
        while id_ in found:
            copies += 1
            id_ = f"{digest}-{copies}"
        pinned = (message.get("metadata") or {}).get("custom", {}).get("pinned") is True
        found[id_] = HistoryMessage(id_, logged, is_pinned=pinned, is_result=is_result)
    return list(found.values())


def _text_of(value: object) -> str:
    """Return a text for a value that is no JSON: the bytes of images and documents."""
    return digest_of(value.hex()) if isinstance(value, bytes) else repr(value)


def _with_marks(native: Message, rendered: Any) -> Message:
    """Return an agent's message with the cache points of the message in the context."""
    marks = [pair for pair in enumerate(rendered["content"]) if "cachePoint" in pair[1]]
    if not marks:
        return native
    content = list(native["content"])
    for index, mark in marks:
        content.insert(index, mark)
    marked = native.copy()
    marked["content"] = content
    return marked


def shown_from(context: Context, ids: Sequence[str]) -> int:
    """Return the index of the message from which on a context has all of these."""
    shown = {message_id(entry.id) for entry in context.entries}
    start = len(ids)
    while start and ids[start - 1] in shown:
        start -= 1
    return start
