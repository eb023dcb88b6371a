"""Counting with one of Mistral's vocabularies: ordinary text only, without control tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from memman.errors import CounterUnavailable

_CHUNK: Final = 65_536
# Tekken is counted by tiktoken, which panics at about 1,000,000 whitespace characters in a row. A
# multiple of 64, Tekken's longest token of spaces, so that a cut changes a count by one at most.
_WHITESPACE_RUN: Final = 262_144
# A letter is matched by a word, and no word goes on over a space: Tekken's pattern always splits
# here, so counting the two sides apart is exact.
_BOUNDARY: Final = re.compile(r"(?<=[A-Za-z]) ")
_WHITESPACE: Final = re.compile(r"\s+")


class MistralCounter:
    """Counts texts as Mistral's models read them. Any thread may use it.

    Text that spells a control token (`[INST]`, `</s>`) counts as the ordinary text it is; lone
    surrogates count as the replacement character.

    Args:
        vocabulary: its name, for the fingerprint.
        encode: text -> token ids, without those of begin and end.
        whole: never divide a text, for a vocabulary that marks the beginning of a text.
    """

    def __init__(
        self, vocabulary: str, encode: Callable[[str], Sequence[int]], *, whole: bool
    ) -> None:
        self.fingerprint = f"mistral:{vocabulary}"
        self._encode = encode
        self._whole = whole

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text, exact.

        With Tekken each 262,144 whitespace characters in a row may add or remove a token. Raises
        `CounterUnavailable` if the tokenizer panics.
        """
        try:
            return [self._count(_repaired(text)) for text in texts]
        except BaseException as error:
            # pyo3 derives its PanicException from BaseException, and it cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            raise CounterUnavailable(f"{self.fingerprint} panicked at a text: {error}") from error

    def _count(self, text: str) -> int:
        if self._whole or len(text) <= _CHUNK:
            return len(self._encode(text)) if text else 0
        pieces = (piece for chunk in _chunks(text) for piece in _bearable(chunk))
        return sum(len(self._encode(piece)) for piece in pieces)


def _repaired(text: str) -> str:
    """Return the text with its surrogates paired or replaced."""
    if not isinstance(text, str):
        raise TypeError(f"a text to count must be a string, not {type(text).__name__}")
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _chunks(text: str) -> Iterator[str]:
    """Yield parts whose counts add up to the text's, each cut at the first boundary after 64 KB."""
    start = 0
    while boundary := _BOUNDARY.search(text, start + _CHUNK):
        yield text[start : boundary.start()]
        start = boundary.start()
    yield text[start:]


def _bearable(chunk: str) -> Iterator[str]:
    """Return the chunk cut inside overlong runs of whitespace, two characters before a run's end."""
    start = 0
    if len(chunk) > _WHITESPACE_RUN:
        for run in _WHITESPACE.finditer(chunk):
            for cut in range(run.start() + _WHITESPACE_RUN, run.end() - 1, _WHITESPACE_RUN):
                yield chunk[start:cut]
                start = cut
    yield chunk[start:]
