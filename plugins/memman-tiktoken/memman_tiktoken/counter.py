"""Counting in an encoding: ordinary text only, within the limits of the compiled code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from memman.errors import CounterUnavailable

if TYPE_CHECKING:
    from tiktoken import Encoding

_CHUNK: Final = 65_536
# tiktoken's regex engine panics at about 1,000,000 whitespace characters in a row. A multiple of
# 128, the longest token of spaces, so that a cut changes the count of a run by one at most.
_WHITESPACE_RUN: Final = 262_144
# In each of OpenAI's patterns a letter is matched by a word, and no word goes on over a space: they
# always split a text here, so counting the two sides apart is exact.
_BOUNDARY: Final = re.compile(r"(?<=[A-Za-z]) ")
_WHITESPACE: Final = re.compile(r"\s+")


class TiktokenCounter:
    """Counts texts as OpenAI's models read them. Any thread may use it.

    Text that spells a special token (`<|endoftext|>`) counts as the ordinary text it is; lone
    surrogates count as the replacement character. `note` is the reason for this backend.
    """

    def __init__(self, encoding: Encoding, note: str = "") -> None:
        self.fingerprint = fingerprint_of(encoding.name)
        self.note = note
        self._encode = encoding.encode_ordinary

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text, exact.

        Each 262,144 whitespace characters in a row may add or remove a token. Raises `CounterUnavailable`
        if tiktoken panics.
        """
        encode = self._encode
        try:
            return [
                len(encode(text)) if len(text) <= _CHUNK else self._count_long(text)
                for text in texts
            ]
        except BaseException as error:
            if (borne := _borne(error, "tiktoken")) is error:
                raise
            raise borne from error

    def _count_long(self, text: str) -> int:
        pieces = (piece for chunk in _chunks(text) for piece in _bearable(chunk))
        return sum(len(self._encode(piece)) for piece in pieces)


class FastCounter:
    """The same counts by a faster backend (`backends`), without chunks.

    A run of whitespace of any length is exact.
    """

    def __init__(self, encoding: str, backend: str, count: Callable[[str], int], note: str) -> None:
        # All backends return equal numbers, so cached counts stay valid: one fingerprint.
        self.fingerprint = fingerprint_of(encoding)
        self.note = note
        self._backend = backend
        self._count = count

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text, exact. Raises `CounterUnavailable` if the backend panics."""
        count = self._count
        try:
            try:
                return [count(text) for text in texts]
            except (UnicodeEncodeError, TypeError):
                # How the backends refuse a lone surrogate.
                return [count(_whole(text)) for text in texts]
        except BaseException as error:
            if (borne := _borne(error, self._backend)) is error:
                raise
            raise borne from error


def fingerprint_of(encoding: str) -> str:
    """Return the fingerprint of all counters of `encoding`."""
    return f"tiktoken:{encoding}"


def _whole(text: str) -> str:
    """Return the text with its surrogates paired or replaced, as in tiktoken."""
    if not isinstance(text, str):
        raise TypeError(f"a text to count must be a string, not {type(text).__name__}")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _borne(error: BaseException, backend: str) -> BaseException:
    """Turn a panic into an error that can be caught; leave other errors."""
    # pyo3 derives its PanicException from BaseException, and it cannot be imported.
    if type(error).__name__ != "PanicException":
        return error
    return CounterUnavailable(f"{backend} panicked at a text: {error}")


def _chunks(text: str) -> Iterator[str]:
    """Yield parts whose counts add up to the text's, each cut at the first boundary after 64 KB."""
    start = 0
    while boundary := _BOUNDARY.search(text, start + _CHUNK):
        yield text[start : boundary.start()]
        start = boundary.start()
    yield text[start:]


def _bearable(chunk: str) -> Iterator[str]:
    """Return the chunk cut inside its overlong runs of whitespace.

    At least two characters of a run stay behind its last cut: a word includes the last space.
    """
    if len(chunk) <= _WHITESPACE_RUN:
        yield chunk
        return
    start = 0
    for run in _WHITESPACE.finditer(chunk):
        for cut in range(run.start() + _WHITESPACE_RUN, run.end() - 1, _WHITESPACE_RUN):
            yield chunk[start:cut]
            start = cut
    yield chunk[start:]
