"""Counting with one counter, with a cache and a fallback to the estimator.

An entry keeps its count. Texts that recur, such as names and system prompts, are cached by their hash, so
that the cache holds no text.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec
from cachetools import TTLCache

from memman.counting.blocks import BlockPrices
from memman.counting.estimator import estimator_for, spread
from memman.counting.framing import api_of, framing_in
from memman.counting.models import model_ref
from memman.counting.tool_prices import price_tools
from memman.counting.validation import fingerprint_of, is_plugin_error
from memman.display import format_error, safe_repr
from memman.entries import (
    MOST_TOKENS,
    NO_JSON,
    Accuracy,
    Content,
    Entry,
    Method,
    NewEntry,
    TokenCount,
    text_of,
)
from memman.protocols import LocalCounter, ModelRef
from memman.runtime.forks import renew_in_child

logger = logging.getLogger("memman.counting")

_CACHED = 4_096
_CACHE_SECONDS = 300.0
_LONG = 500_000  # characters
_PIECES = 32
_PIECE = 8_192


class TokenCounter:
    """Counts with one counter and falls back to the estimator for `model`, entry by entry.

    A count whose `counter` is not `fingerprint` is the estimator's; `failure` has the reason.
    """

    def __init__(
        self,
        counter: LocalCounter,
        accuracy: Accuracy,
        timer: Callable[[], float] = perf_counter,
        model: ModelRef | None = None,
    ) -> None:
        self.model = model
        self.fingerprint = fingerprint_of(counter)
        self.accuracy: Accuracy = accuracy
        self.failure = ""
        self._counter = counter
        self._method: Method = "estimation" if accuracy == "low" else "client"
        self._timer = timer
        self._blocks = BlockPrices(
            lambda text: self.count_text(text).tokens, model or model_ref("")
        )
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin with an empty cache and a free lock."""
        self._lock = threading.Lock()
        self._cache: TTLCache[bytes, TokenCount] = TTLCache(_CACHED, _CACHE_SECONDS, self._timer)

    def count_entry(self, entry: NewEntry | Entry) -> TokenCount:
        """Return the cost of an entry: its text, name, images, files and blocks."""
        count = self.count_text(text_of(entry.content))
        extra = self._blocks.content(entry.content)
        if entry.raw_json is not NO_JSON:
            extra += self._blocks.raw(entry, count.tokens)
        if entry.type == "tool_call" and entry.name:
            extra += self.text_cached(entry.name)
        return self.plus(count, extra)

    def recount(self, entry: Entry) -> int:
        """Return an entry's tokens by this counter: its stored count if this counter made it."""
        # Two models with one vocabulary may charge differently for an image.
        if entry.token_count.counter == self.fingerprint and isinstance(entry.content, str):
            return entry.token_count.tokens
        return self.count_entry(entry).tokens

    def total(self, tokens: int) -> TokenCount:
        """Return the sum of this counter's counts and of framing."""
        return TokenCount(tokens, self._method, self.accuracy, self.fingerprint)

    def text_cached(self, text: str) -> int:
        """Return the tokens of a text that may recur: a system prompt, a name."""
        return self.count_cached(text).tokens

    def count_text(self, text: str) -> TokenCount:
        """Count one text; one above 500,000 characters is estimated from pieces of it.

        A vocabulary may take 4 seconds for a million equal characters.
        """
        if len(text) > _LONG and self.accuracy != "low":
            seen = spread(text, _PIECES, _PIECE)
            tokens = self.count_text(seen).tokens * len(text) // len(seen)
            return TokenCount(tokens, "estimation", "low", self.fingerprint)
        began = self._timer()
        try:
            [tokens] = self._counter.count_texts((text,))
        except BaseException as error:
            # An interruption or a cancellation is not the counter's and goes on.
            if not is_plugin_error(error):
                raise
            return self._estimate(text, format_error(error))
        if type(tokens) is not int or not 0 <= tokens <= MOST_TOKENS:
            return self._estimate(text, f"answered {safe_repr(tokens, 60)}, which is not a count")
        latency = self._timer() - began
        return TokenCount(tokens, self._method, self.accuracy, self.fingerprint, False, latency)

    def count_cached(self, content: Content) -> TokenCount:
        """Count a text that may recur; the count is cached for five minutes."""
        text = text_of(content)
        key = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        count = self._cached(key, lambda: self.count_text(text))
        return self.plus(count, self._blocks.content(content))

    def tools_cached(self, tools: bytes, format_name: str) -> int:
        """Return the tokens that tool definitions, as JSON, add to a request in a message format.

        They are priced as the model's provider bills them, or as plain JSON if that is unknown. Raises
        `FormatError` for tools that are not JSON objects.
        """
        model = self.model
        if model is None or framing_in(model, format_name) is None:
            return self.text_cached(tools.decode())

        def priced() -> TokenCount:
            found = msgspec.json.decode(tools)
            return self.total(price_tools(found, model, self._each, api=api_of(format_name)))

        key = hashlib.sha256(b"\0".join((b"tools", format_name.encode(), tools))).digest()
        return self._cached(key, priced).tokens

    def _each(self, texts: Sequence[str]) -> list[int]:
        return [self.count_text(text).tokens for text in texts]

    def _cached(self, key: bytes, count: Callable[[], TokenCount]) -> TokenCount:
        with self._lock:
            known: TokenCount | None = self._cache.get(key)
        if known is not None:
            return known
        counted = count()
        with self._lock:
            self._cache[key] = msgspec.structs.replace(counted, cached=True)
        return counted

    def _estimate(self, text: str, reason: str) -> TokenCount:
        # An error's message may quote the text, which must not reach a log.
        kind = reason.partition(":")[0]
        logger.warning("counter %s failed, estimating instead: %s", self.fingerprint, kind)
        self.failure = reason
        estimator = estimator_for(self.model)
        [tokens] = estimator.count_texts((text,))
        return TokenCount(tokens, "estimation", "low", estimator.fingerprint)

    @staticmethod
    def plus(count: TokenCount, extra: int) -> TokenCount:
        """Return a count with further tokens added."""
        return msgspec.structs.replace(count, tokens=count.tokens + extra) if extra else count


class CallableCounter:
    """A plain `str -> int` as a counter; the fingerprint is its module and qualified name by default."""

    def __init__(self, function: Callable[[str], int], fingerprint: str = "") -> None:
        self._function = function
        named = function if hasattr(function, "__qualname__") else type(function)
        self.fingerprint = fingerprint or f"callable:{named.__module__}.{named.__qualname__}"

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Count each text."""
        return [self._function(text) for text in texts]
