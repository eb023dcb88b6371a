"""Cache marks: the places of a request up to which a provider keeps it, for the next request to reuse.

A provider reads a prefix from its cache only if an earlier request marked its end, or a place at most
some 20 blocks before a mark of this request. The four places are the end of system prompt and tools,
which survives compressions; the end of the compressed part; the end of the previous request; and the
end of this one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from memman.formats.renderer import Layout
from memman.protocols import CacheRequest, Format, ModelRef, SupportsCacheMarks


class CacheMarks(msgspec.Struct, frozen=True, eq=False):
    """The marks of one context, placed when it is read."""

    _form: SupportsCacheMarks
    _layout: Layout
    _request: CacheRequest

    def on_messages(self, messages: list[Any]) -> list[Any]:
        """Mark copies of the layout's messages in place."""
        self._form.mark_messages(messages, self._layout.cache_places(), self._request)
        return messages

    def on_head(self, system: str | None, tools: list[Any] | None) -> tuple[Any, list[Any] | None]:
        """Return the system prompt and the tools with their mark."""
        return self._form.mark_head(system, tools, self._request)


def marks_of(layout: Layout, model: ModelRef | None, ttl: float) -> CacheMarks | None:
    """Return the marks of a request to a model, whose cache lives `ttl` seconds; None without marks."""
    form = layout.format
    if not isinstance(form, SupportsCacheMarks):
        return None
    return CacheMarks(form, layout, CacheRequest(model, ttl))


def cache_key(form: Format, nonce: str) -> str | None:
    """Return a session's key for the provider's cache; None without one.

    The nonce itself is only in the session's own requests.
    """
    if not nonce or not getattr(form, "takes_cache_key", False):
        return None
    return f"memman-{sha256(nonce.encode()).hexdigest()[:32]}"
