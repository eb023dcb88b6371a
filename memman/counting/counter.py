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
from typing import Any

import msgspec
from cachetools import TTLCache

from memman.counting.estimator import estimator_for
from memman.counting.extras import extra_of_block, extra_of_entry
from memman.counting.framing import api_of, framing_in
from memman.counting.images import IMAGE_TYPES, image_tokens, images_inside, size_of
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
    ImagePart,
    Method,
    NewEntry,
    OpaquePart,
    TokenCount,
    opaque_tokens,
    text_of,
)
from memman.protocols import LocalCounter, ModelRef
from memman.runtime.forks import renew_in_child

logger = logging.getLogger("memman.counting")

_CACHED = 4_096
_CACHE_SECONDS = 300.0
_SMALLEST_IMAGE = 1_024  # bytes of JSON that may hold an image


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
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin with an empty cache and a free lock."""
        self._lock = threading.Lock()
        self._cache: TTLCache[bytes, TokenCount] = TTLCache(_CACHED, _CACHE_SECONDS, self._timer)

    def count_entry(self, entry: NewEntry | Entry) -> TokenCount:
        """Return the cost of an entry: its text, name, images and opaque parts."""
        extra = self._parts_tokens(entry.content)
        if entry.raw_json is not NO_JSON:
            extra += self._raw_tokens(entry.raw_json)
        if entry.type == "tool_call" and entry.name:
            extra += self.text_cached(entry.name)
        return self.plus(self.count_text(text_of(entry.content)), extra)

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
        """Count one text."""
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
        return self.plus(count, self._parts_tokens(content))

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

    def _parts_tokens(self, content: Content) -> int:
        """Return the tokens of content that is not text: images by formula, the rest by its bytes."""
        if isinstance(content, str):
            return 0
        tokens = 0
        for part in content:
            if isinstance(part, ImagePart):
                tokens += self._image(part.data or part.url, part.detail or "auto")
            elif isinstance(part, OpaquePart):
                tokens += self._block_tokens(_json(part.block))
            else:
                tokens += opaque_tokens(part)
        return tokens

    def _block_tokens(self, block: Any) -> int:
        """Return the tokens of a provider's own block: by its bytes, except for images in it."""
        if isinstance(block, dict) and block.get("type") in IMAGE_TYPES:
            return sum(self._image(source) for source in images_inside(block))
        images, image_bytes = self._images_in(block)
        extra = extra_of_block(block)
        return images + extra.tokens + max(0, extra.size - image_bytes) // 3

    def _raw_tokens(self, raw: msgspec.Raw) -> int:
        """Return the tokens that a message has besides its text: by its bytes, except for images."""
        value = _json(raw)
        extra = extra_of_entry(value)
        if extra.size < _SMALLEST_IMAGE:
            return extra.tokens + extra.size // 2
        images, image_bytes = self._images_in(value)
        return extra.tokens + images + max(0, extra.size - image_bytes) // 2

    def _images_in(self, value: Any) -> tuple[int, int]:
        """Return the tokens of the images in JSON, and the bytes that they take in it."""
        inside = images_inside(value)
        return sum(map(self._image, inside)), sum(len(source or "") for source in inside)

    def _image(self, source: str | None, detail: str = "auto") -> int:
        return image_tokens(self.model or model_ref(""), *size_of(source), detail=detail)

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


def _json(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


class CallableCounter:
    """A plain `str -> int` as a counter; its fingerprint is the function's module and qualified name."""

    def __init__(self, function: Callable[[str], int]) -> None:
        self._function = function
        named = function if hasattr(function, "__qualname__") else type(function)
        self.fingerprint = f"callable:{named.__module__}.{named.__qualname__}"

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Count each text."""
        return [self._function(text) for text in texts]
