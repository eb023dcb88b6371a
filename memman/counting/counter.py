"""Asking a counter, guarding against what it may do, and keeping what it said.

Each text is counted once per counter in its life: an entry keeps its count, names that recur (of tools,
of sources) are kept here, and `count` keeps the texts of the last minutes by digest, never by text.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any
from zlib import crc32

import msgspec
from cachetools import LRUCache, TTLCache

from memman.counting.beside import beside_block, beside_entry
from memman.counting.estimator import estimator_for
from memman.counting.framing import api_of, framing_in
from memman.counting.images import IMAGE_TYPES, image_tokens, images_inside, size_of
from memman.counting.models import model_ref
from memman.counting.tool_prices import price_tools
from memman.counting.validation import fingerprint_of, strangers_own
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
from memman.protocols import ModelRef
from memman.runtime.forks import renew_in_child

logger = logging.getLogger("memman.counting")

_NAMES_KEPT = 4_096
_RECENT_NAMES = 256
_TEXTS_KEPT = 1_024
_TOOLS_KEPT = 64
_TEXT_TTL_SECONDS = 300.0
_SMALLEST_IMAGE = 1_024  # bytes of JSON that are looked into for images


class TokenCounter:
    """Counts with one counter and falls back to the estimator for `model`, entry by entry.

    A count by another counter than `fingerprint` is the estimator's; `failure` says why it answered.
    """

    def __init__(
        self,
        counter: Any,
        accuracy: Accuracy,
        timer: Callable[[], float] = perf_counter,
        model: ModelRef | None = None,
    ) -> None:
        self.model = model
        self.fingerprint = fingerprint_of(counter)
        # A plain function need not be wrapped in lists for each text.
        plain = isinstance(counter, CallableCounter)
        self._ask: Callable[[str], Any] = (
            counter.function if plain else partial(_single, counter.count_texts)
        )
        self.accuracy: Accuracy = accuracy
        self._method: Method = "estimation" if accuracy == "low" else "client"
        self.failure = ""
        self._timer = timer
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin with empty caches and a free lock."""
        self._lock = threading.Lock()
        self._names: LRUCache[str, int] = LRUCache(_NAMES_KEPT)
        self._recent: dict[
            str, int
        ] = {}  # read without the lock: an LRU moves what it is asked for
        self._tools: LRUCache[bytes, int] = LRUCache(_TOOLS_KEPT)
        self._texts: TTLCache[bytes, TokenCount] = TTLCache(
            _TEXTS_KEPT, _TEXT_TTL_SECONDS, self._timer
        )

    def count_new(self, new_entry: NewEntry | Entry) -> TokenCount:
        """What an entry costs: its text, its name where that is sent, its images and opaque parts."""
        content = new_entry.content
        if type(content) is str:
            count, extra = self.count_text(content), 0
        else:
            count, extra = self.count_text(text_of(content)), self._beside_text(content)
        if new_entry.raw_json is not NO_JSON:
            extra += self._beside(new_entry.raw_json)
        if new_entry.type == "tool_call" and new_entry.name:
            extra += self.name_tokens(new_entry.name)
        return self.plus(count, extra) if extra else count

    count_entry = count_new

    def recount(self, entry: Entry) -> int:
        """An entry's tokens by this counter: its own count when it is of this counter."""
        # Two models with one vocabulary may charge differently for an image.
        if entry.token_count.counter == self.fingerprint and type(entry.content) is str:
            return entry.token_count.tokens
        return self.count_new(entry).tokens

    def total(self, tokens: int) -> TokenCount:
        """A sum of this counter's counts and of framing."""
        return TokenCount(tokens, self._method, self.accuracy, self.fingerprint)

    def text_cached(self, text: str) -> int:
        """The number for a text that comes again: a system prompt, tools."""
        return self.count_cached(text).tokens

    def count_text(self, text: str) -> TokenCount:
        """One text, counted now."""
        timer = self._timer
        began = timer()
        try:
            tokens = self._ask(text)
        except BaseException as error:
            # An interruption or a cancellation is not the counter's and goes on.
            if not strangers_own(error):
                raise
            return self._estimate(text, format_error(error))
        if type(tokens) is not int or not 0 <= tokens <= MOST_TOKENS:
            return self._estimate(text, f"answered {safe_repr(tokens, 60)}, which is not a count")
        return TokenCount(
            tokens, self._method, self.accuracy, self.fingerprint, False, timer() - began
        )

    def count_cached(self, content: Content) -> TokenCount:
        """A text that may come again soon: answered from the cache for five minutes."""
        text = text_of(content)
        key = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        with self._lock:
            try:
                known = self._texts[key]  # its `get` would look twice
            except KeyError:
                known = None
        if known is None:
            known = self.count_text(text)
            with self._lock:
                self._texts[key] = msgspec.structs.replace(known, cached=True)
        return known if type(content) is str else self.plus(known, self._beside_text(content))

    def tools_cached(self, tools: bytes, format_name: str) -> int:
        """What tool definitions, given as JSON, add to a request in a message format.

        As the model's provider bills them where that is known, else as their JSON. Raises `FormatError` for
        tools that are no JSON objects.
        """
        if self.model is None or framing_in(self.model, format_name) is None:
            return self.text_cached(tools.decode())
        key = hashlib.sha256(format_name.encode() + b"\0" + tools).digest()
        with self._lock:
            known = self._tools.get(key)
        if known is None:
            read = msgspec.json.decode(tools)
            known = price_tools(read, self.model, self._each, api=api_of(format_name))
            with self._lock:
                self._tools[key] = known
        return known

    def _each(self, texts: Sequence[str]) -> list[int]:
        return [self.count_text(text).tokens for text in texts]

    def name_tokens(self, name: str) -> int:
        """The tokens of a name; names recur, so each is counted once."""
        known = self._recent.get(name)
        if known is None:
            with self._lock:
                known = self._names.get(name)
            if known is None:
                known = self.count_text(name).tokens
            with self._lock:
                self._names[name] = known
                if len(self._recent) >= _RECENT_NAMES:
                    self._recent = {}
                self._recent[name] = known
        return known

    def _beside_text(self, content: Content) -> int:
        """The tokens of what is not text: images by the model's formula, the rest by its bytes."""
        if isinstance(content, str):
            return 0
        tokens = 0
        for part in content:
            if isinstance(part, ImagePart):
                tokens += self._image(part.data or part.url, part.detail or "auto")
            elif isinstance(part, OpaquePart):
                tokens += self._opaque(part)
            else:
                tokens += opaque_tokens(part)
        return tokens

    def _opaque(self, part: OpaquePart) -> int:
        """A provider's own block: by its bytes, but for the images in it."""
        block = _json(part.block)
        if isinstance(block, dict) and block.get("type") in IMAGE_TYPES:
            return sum(self._image(source) for source in images_inside(block))
        safe_repr, drawn = self._shown(block)
        found = beside_block(block)
        return safe_repr + found.tokens + max(0, found.size - drawn) // 3

    def _beside(self, raw: msgspec.Raw) -> int:
        """What goes out beside an entry's text: by its bytes, but for the images in it."""
        given = _json(raw)
        found = beside_entry(given)
        if found.size < _SMALLEST_IMAGE:
            return found.tokens + found.size // 2
        safe_repr, drawn = self._shown(given)
        return found.tokens + safe_repr + max(0, found.size - drawn) // 2

    def _shown(self, value: Any) -> tuple[int, int]:
        """The tokens of the images in JSON, and the bytes that they take in it."""
        inside = images_inside(value)
        return sum(map(self._image, inside)), sum(len(source or "") for source in inside)

    def _image(self, source: str | None, detail: str = "auto") -> int:
        return image_tokens(self.model or model_ref(""), *size_of(source), detail=detail)

    def _estimate(self, text: str, reason: str) -> TokenCount:
        # What a counter says of a text may quote it, which is for no log.
        kind = reason.partition(":")[0]
        logger.warning("counter %s failed, estimating instead: %s", self.fingerprint, kind)
        self.failure = reason
        estimator = estimator_for(self.model)
        [tokens] = estimator.count_texts((text,))
        return TokenCount(tokens, "estimation", "low", estimator.fingerprint)

    @staticmethod
    def plus(count: TokenCount, extra: int) -> TokenCount:
        """A count with tokens added that were known otherwise."""
        return msgspec.structs.replace(count, tokens=count.tokens + extra) if extra else count


def _json(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _single(count_texts: Callable[[Sequence[str]], Any], text: str) -> Any:
    """What a counter of many texts says of one; its whole answer where that is not one number."""
    answer = count_texts((text,))
    return answer[0] if len(answer) == 1 and type(answer[0]) is int else answer


class CallableCounter:
    """A plain `str -> int` as a counter."""

    def __init__(self, function: Callable[[str], int]) -> None:
        self.function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        # Two lambdas have one name, so what they do is part of who they are.
        code = getattr(function, "__code__", None)
        body = crc32(repr((code.co_code, code.co_consts, code.co_names)).encode()) if code else 0
        self.fingerprint = f"callable:{name}:{body:08x}"

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Each text on its own."""
        return [self.function(text) for text in texts]
