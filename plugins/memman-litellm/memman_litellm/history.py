"""The messages of a client as a session of memman, and a context as the client's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from memman import AsyncMethods, Context
from memman.adapters import HistoryMessage, HistoryMirror, named_by_content, native_of
from memman.formats.plain import plain_messages

FORMAT: Final = "openai-chat"
_PREFIX: Final = "litellm-"  # of the ids that are made here
_PROMPT: Final = ("system", "developer")


class ClientHistory:
    """A session that follows the list of messages that a client sends whole with each request.

    Args:
        memory: the methods of a manager, `memory.aio`.
        session_id: the session.
        loop: the event loop, to which the lock belongs.
    """

    def __init__(self, memory: AsyncMethods, session_id: str, loop: object) -> None:
        self.lock = asyncio.Lock()
        """Held from `sync` until the context is built: a client may send requests at the same time."""
        self.last_call = ""
        """The id of the call that was synced last."""
        self._ids: list[HistoryMessage] = []  # of the last `sync`, without the messages
        self._mirror = HistoryMirror(
            memory, session_id, format=FORMAT, prefix=_PREFIX, continuing="send older ones, too"
        )

    async def sync(self, call_id: str, history: Sequence[HistoryMessage]) -> None:
        """Make the session equal to the messages of a call."""
        await self._mirror.sync(history)
        self.last_call = call_id
        self._ids = [HistoryMessage(each.id, None, is_result=each.is_result) for each in history]

    async def add_reply(self, call_id: str, reply: Any) -> None:
        """Log the reply to a call, unless the client has sent another one since."""
        async with self.lock:
            if call_id != self.last_call:
                return
            known = {each.id for each in self._ids}
            copies = [reply] * (len(known) + 1)  # equal messages are numbered
            news = (each for each in named(plain_messages(copies), copies) if each.id not in known)
            self._ids.append(next(news))
            await self._mirror.sync(self._ids)


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> tuple[int, list[Any] | None]:
    """Return how many messages at the beginning are the system prompt, and the blocks of its text."""
    start = next((n for n, each in enumerate(messages) if each["role"] not in _PROMPT), 0)
    contents = [message.get("content") or [] for message in messages[:start]]
    parts = ([{"type": "text", "text": one}] if isinstance(one, str) else one for one in contents)
    return start, [*chain.from_iterable(parts)] or None


def messages_of(context: Context, history: Sequence[HistoryMessage]) -> list[Any]:
    """Return a context as messages: the client's own wherever they are unaltered.

    They have what LiteLLM alone understands: marks for a prompt cache, signatures of thoughts.
    """
    own = {each.id: each.message for each in history}
    pairs = zip(context.messages, context.sources, strict=True)
    return [native_of(source, own) or message for message, source in pairs]


def named(plain: Sequence[Mapping[str, Any]], own: Sequence[Any]) -> list[HistoryMessage]:
    """Return a client's own messages with ids that follow from their content in `plain`.

    Clients add keys to a reply that they send back, and move the marks for a prompt cache.
    """
    found = named_by_content(map(_said, plain), _PREFIX)
    return [replace(each, message=message) for each, message in zip(found, own, strict=True)]


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without the keys that change while it stays the same."""
    content = message.get("content") or None
    if isinstance(content, list):
        content = [{key: part[key] for key in part if key != "cache_control"} for part in content]
        if len(content) == 1 and content[0].keys() == {"type", "text"}:
            content = content[0]["text"]
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    kept = {key: message.get(key) for key in ("role", "name", "tool_call_id", "function_call")}
    return {**kept, "content": content, "calls": calls}
