"""Counts of a text, entries or messages, outside of any session: `count_tokens`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from memman.config import MemoryConfig
from memman.core.arguments import new_entry
from memman.core.resolver import Resolver
from memman.counting.counter import TokenCounter
from memman.counting.failures import CountFailure
from memman.entries import Entry, TokenCount, check_new_entry, check_text
from memman.formats import plain_messages
from memman.formats.streams import whole
from memman.session.requests import price_given, rendering_in, request_of
from memman.session.shared import Shared
from memman.window import Window

logger = logging.getLogger("memman")


class TokenCounting(msgspec.Struct, frozen=True):
    """Counts content with a model's counter; system prompt and tools are counted with it."""

    _shared: Shared
    _resolver: Resolver
    _config: MemoryConfig
    _counter: TokenCounter
    _system: str | None
    _tools: bytes | None

    def count(self, content: Any) -> TokenCount:
        """Return the local counter's count."""
        counter = self._counter
        if isinstance(content, str):
            text = check_text(content, "content")
            return counter.plus(counter.count_cached(text), self._extra())
        if isinstance(content, Entry):
            content = [content]
        if isinstance(content, Sequence) and all(isinstance(item, Entry) for item in content):
            tokens = sum(counter.recount(entry) for entry in content)
            return counter.total(tokens + self._extra())
        plain = plain_messages(whole(content))
        form = self._resolver.detected(plain)
        make_entry = self._shared.make_entry(counter)
        window = _window_of([make_entry(new_entry) for new_entry in form.parse(plain)])
        rendering = rendering_in(form, counter)
        rendering.update(window)
        given = sum(price_given(self._system, self._tools, counter, form))
        return counter.total(window.tokens + rendering.added + rendering.edges + given)

    def _extra(self) -> int:
        """Return the tokens of system prompt and tools if the content is not a request."""
        prompt = self._counter.text_cached(self._system) if self._system else 0
        tools = self._counter.tools_cached(self._tools, self._shared.format) if self._tools else 0
        return prompt + tools

    async def count_exactly(self, content: Any) -> TokenCount | None:
        """Return the provider's count of a request with this content; None if it has none."""
        remote = self._resolver.remote(self._config.updated({"count_policy": "confirm"}))
        if remote is None:
            return None
        clean = partial(self._shared.redacted, outcome="the provider was not asked for a count")
        window = _window_of([clean(entry) for entry in self._entries_in(content)])
        rendering = rendering_in(self._resolver.format_named(remote.format), self._counter)
        rendering.update(window)
        request = request_of(self._config.model, rendering, self._system, self._tools)
        count = await self._shared.price(remote.counter, request)
        if isinstance(count, CountFailure):
            logger.warning("%s was not counted exactly: %s", self._config.model, count.reason)
            return None
        return count

    def _entries_in(self, content: Any) -> list[Entry]:
        """Return a text, entries or messages as entries."""
        if isinstance(content, Entry):
            return [content]
        if isinstance(content, list | tuple) and all(isinstance(item, Entry) for item in content):
            return list(content)
        make_entry = self._shared.make_entry(self._counter)
        if isinstance(content, str):
            return [make_entry(check_new_entry(new_entry("message", "user", content, None)))]
        plain = plain_messages(whole(content))
        return [make_entry(new_entry) for new_entry in self._resolver.detected(plain).parse(plain)]


def _window_of(entries: Sequence[Entry]) -> Window:
    """Return a window of these entries alone, of no session."""
    window = Window()
    for seq, entry in enumerate(entries, 1):
        window.add(msgspec.structs.replace(entry, seq=seq), entry.token_count.tokens)
    return window
