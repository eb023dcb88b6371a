"""Counting with an encoding: ordinary text only, and nothing that its Rust half cannot bear."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    surrogates count as the replacement character.
    """

    def __init__(self, encoding: Encoding) -> None:
        self.fingerprint = f"tiktoken:{encoding.name}"
        self._encode = encoding.encode_ordinary

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, exact.

        Where a text has over 262,144 whitespace characters in a row, each 262,144 of them may add
        or take a token. Raises `CounterUnavailable` when tiktoken panics.
        """
        encode = self._encode
        try:
            return [
                len(encode(text)) if len(text) <= _CHUNK else self._count_long(text)
                for text in texts
            ]
        except BaseException as error:
            # pyo3 derives its PanicException from BaseException, and it cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            raise CounterUnavailable(f"tiktoken panicked at a text: {error}") from error

    def _count_long(self, text: str) -> int:
        pieces = (piece for chunk in _chunks(text) for piece in _bearable(chunk))
        return sum(len(self._encode(piece)) for piece in pieces)


def _chunks(text: str) -> Iterator[str]:
    """Parts that together count what the text does, each cut at the first boundary after 64 KB."""
    start = 0
    while boundary := _BOUNDARY.search(text, start + _CHUNK):
        yield text[start : boundary.start()]
        start = boundary.start()
    yield text[start:]


def _bearable(chunk: str) -> Iterator[str]:
    """The chunk cut inside its overlong runs of whitespace.

    At least two characters of a run stay behind its last cut: a word takes the last space along.
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
