"""The estimator: tokens of a text from the kinds of its bytes, without a vocabulary.

The bytes of a text are mapped to classes (lower case, digit, the lead bytes of Cyrillic, ...). Classes
and sequences of them are counted, such as the start of a word or a digit after a letter. A token count is
a weighted sum of these counts; the weights were fitted to a vocabulary by `benchmarks/fit_estimator.py`.
`docs/explanation/counts.md` has the errors.

It cannot fail: it counts every string, in time that stops growing at 16,384 characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, Final

import msgspec

from memman.protocols import CounterSpec, ModelRef

VERSION: Final = 1  # of the weights, in the fingerprint: counts of older weights are recounted
NAME: Final = "estimate"
GENERIC: Final = "generic"
_WEIGHTS: Final = "estimator.json"

# Above these lengths only windows of a text are read, evenly spread over it. Text that is not ASCII has
# up to four bytes a character, so it gets shorter windows for the same time.
_LONG: Final = 16_384  # characters
_WINDOWS: Final = 32
_WINDOW_ASCII: Final = 384
_WINDOW_OTHER: Final = 160

# No known vocabulary has tokens above 16 bytes, except for runs of one character, which this floor
# counts too high.
_MOST_BYTES_A_TOKEN: Final = 16

_OF_FAMILY: Final = {
    "gpt-4o": "o200k",
    "gpt-4.1": "o200k",
    "gpt-5": "o200k",
    "o-series": "o200k",
    "gpt-4": "cl100k",
    "gpt-3.5": "cl100k",
    "claude-3": "claude-3",
    "claude-4": "claude-3",
    "claude-4.7": "claude-4.7",
}

# ---------------------------------------------------------------- classes of bytes

_CONTINUATION: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUV"  # two bytes each, from 0x80 on
_ASCII: Final = {
    "l": b"abcdefghijklmnopqrstuvwxyz",
    "u": b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "d": b"0123456789",
    "s": b" ",
    "n": b"\n\r",
    "t": b"\t",
    "q": b'"',
    "_": b"_",
    ".": b".,",
    "-": b"-=*#",
}
# The first byte of a character determines its script, the second one the part of it.
LEADS: Final = {
    "a": (0xC2, 0xC3),  # Latin-1
    "b": (0xC4, 0xC9),  # Latin, extended
    "c": (0xCA, 0xCD),  # phonetic letters, combining accents
    "e": (0xCE, 0xCF),  # Greek
    "f": (0xD0, 0xD1),  # Cyrillic
    "g": (0xD2, 0xD3),  # Cyrillic, extended
    "h": (0xD4, 0xD5),  # Armenian
    "i": (0xD6, 0xD7),  # Hebrew
    "j": (0xD8, 0xD9),  # Arabic
    "k": (0xDA, 0xDF),  # Arabic, extended; Syriac, N'Ko
    "m": (0xE0, 0xE0),  # the scripts of India; Thai, Lao, Tibetan
    "o": (0xE1, 0xE1),  # Georgian, Burmese, Khmer; Vietnamese vowels
    "r": (0xE2, 0xE2),  # punctuation, arrows, frames, symbols
    "v": (0xE3, 0xE3),  # kana
    "w": (0xE4, 0xE4),  # Han
    "x": (0xE5, 0xE6),
    "y": (0xE7, 0xE9),
    "z": (0xEA, 0xED),  # Hangul
    "W": (0xEE, 0xEF),  # full-width forms
    "X": (0xF0, 0xFF),  # emoji
}


def _class_table() -> bytes:
    table = bytearray(b"p" * 256)  # any other ASCII: punctuation, control characters
    for letter, members in _ASCII.items():
        for byte in members:
            table[byte] = ord(letter)
    for byte in range(0x80, 0xC0):
        table[byte] = ord(_CONTINUATION[(byte - 0x80) // 2])
    for letter, (first, last) in LEADS.items():
        table[first : last + 1] = letter.encode() * (last + 1 - first)
    return bytes(table)


CLASSES: Final = _class_table()


def bytes_of(text: str) -> bytes:
    """Return a text's bytes in UTF-8, with lone surrogates as `?`."""
    return text.encode("utf-8", "replace")


def spread(text: str, pieces: int, size: int) -> str:
    """Return so many evenly spread pieces of a longer text, the first from its beginning."""
    step = (len(text) - size) // (pieces - 1)
    return "".join([text[start : start + size] for start in range(0, step * pieces, step)])


def reduced(data: bytes) -> tuple[bytes, int, int]:
    """Return the classes of bytes with long runs shortened, and how often letters and spaces were.

    Four letters, or four spaces, become one. A long run costs as much as its length, so the counts still
    determine it, and each sequence is counted in half the time.
    """
    classes = data.translate(CLASSES)
    letters = classes.replace(b"llll", b"l")
    spaces = letters.replace(b"ssss", b"s")
    return spaces, (len(classes) - len(letters)) // 3, (len(letters) - len(spaces)) // 3


# ---------------------------------------------------------------- weights

Features = tuple[tuple[bytes, float], ...]


class Weights(msgspec.Struct, frozen=True):
    """Weights of a vocabulary family.

    `letters` and `spaces` are the weights of each shortening of `reduced`. `ascii` are sequences of
    classes with their weights, `scripts` those of each lead class, used only if it occurs. A text of `n`
    estimated tokens has at most `margin[ascii or not] * n + slack` in 95 of 100 cases, and at most `most`
    tokens a byte.
    """

    constant: float
    letters: float
    spaces: float
    ascii: Features
    scripts: tuple[tuple[bytes, Features], ...]
    margin: tuple[float, float]
    slack: float
    most: int


@cache
def _families() -> dict[str, Weights]:
    stored = msgspec.json.decode((Path(__file__).parent / _WEIGHTS).read_bytes())
    return {name: _weights(each) for name, each in stored["families"].items()}


def _weights(stored: dict[str, Any]) -> Weights:
    """Return weights as stored in the file, with their patterns as bytes."""
    scripts = [(lead.encode(), _features(each)) for lead, each in stored["scripts"].items()]
    patterns = {"ascii": _features(stored["ascii"]), "scripts": scripts}
    return msgspec.convert(stored | patterns, Weights)


def _features(stored: dict[str, float]) -> Features:
    return tuple((pattern.encode(), weight) for pattern, weight in stored.items())


# ---------------------------------------------------------------- the counter


class TextEstimator:
    """Estimates with the weights of one vocabulary family. Any thread may use it."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.fingerprint = f"{NAME}:{family}/{VERSION}"
        self._weights = _families()[family]

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text: 0 for an empty one, else from 1 to its bytes in UTF-8."""
        return [self._count(text) for text in texts]

    def upper(self, text: str) -> int:
        """Return a bound that a text's tokens do not exceed in 95 of 100 cases."""
        if not text:
            return 0
        weights = self._weights
        margin = weights.margin[0 if text.isascii() else 1]
        bound = ceil(margin * self._count(text) + weights.slack)
        # len() is the number of bytes for ASCII only; other text would have to be encoded.
        return min(bound, weights.most * len(text)) if text.isascii() else bound

    def _count(self, text: str) -> int:
        length = len(text)
        if length <= _LONG:
            return self._tokens(text) if text else 0
        window = _WINDOW_ASCII if text.isascii() else _WINDOW_OTHER
        seen = spread(text, _WINDOWS, window)
        return round(self._tokens(seen) * length / len(seen))

    def _tokens(self, text: str) -> int:
        weights = self._weights
        data = bytes_of(text)
        classes, letters, spaces = reduced(data)
        count = classes.count
        tokens = weights.constant + weights.letters * letters + weights.spaces * spaces
        for pattern, weight in weights.ascii:
            tokens += weight * count(pattern)
        if not text.isascii():
            for lead, features in weights.scripts:
                if lead in classes:
                    for pattern, weight in features:
                        tokens += weight * count(pattern)
        return min(max(round(tokens), len(data) // _MOST_BYTES_A_TOKEN, 1), len(data))


_made: Final = cache(TextEstimator)


def estimator_for(model: ModelRef | None = None) -> TextEstimator:
    """Return the estimator of a model's vocabulary family, the generic one if that is unknown."""
    return _made(_OF_FAMILY.get(model.family, GENERIC) if model else GENERIC)


ESTIMATE: Final = CounterSpec(
    name=NAME, match=lambda _model: 1, factory=estimator_for, accuracy="low"
)
