"""What in a text carries its meaning: its words, in any language, and its exact values.

A value is what nobody can guess or put into other words: a path, an identifier, a number, a date, an
address. A word is a run of letters and digits; where a script writes no spaces each two neighbouring
characters are one. Words that only hold sentences together are left out, those of eight languages by a
list, since they would otherwise be the best covered of all.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Final

from memman.tables import beside

_LEAST_VALUE: Final = 4
_MOST_VALUE: Final = 120  # a longer one is a blob, not something that anybody types again
_CHUNK: Final = re.compile(r"(?:[^\s\"'`<>(){}\[\],;|*]|(?<=\d),(?=\d)){4,}")
_ASCII: Final = re.compile(r"[!-~]{4,}")
_EDGES: Final = ".:!?=&#-+"
_LINE_OF: Final = re.compile(r"(.+\.[A-Za-z]\w*):\d+(?::\d+)?$")
_DIGIT: Final = re.compile(r"\d")
_NAMED: Final = re.compile(r"\w_\w|[a-z][A-Z]|\w@\w|[^\W\d_]{2}\.[^\W\d_]{2}|[A-Z]{4}")
_LEAST_CHARS: Final = 3
_WORD: Final = re.compile(r"[^\W_]+")
# Thai and Lao, Burmese, Khmer, Japanese kana, Chinese characters.
_SPACELESS: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+"
)


@cache
def _holding() -> frozenset[str]:
    """Read when first asked for: English, German, French, Spanish, Portuguese, Italian, Dutch, Russian."""
    return frozenset(beside(__file__, "holding_words.txt").decode().split())


def words_of(text: str) -> frozenset[str]:
    """The words of a text that carry its meaning, in lower case."""
    words = {word for word in _WORD.findall(text.lower()) if len(word) >= _LEAST_CHARS}
    words -= _holding()
    if not text.isascii():
        for run in _SPACELESS.findall(text):
            words.discard(run)
            words.update([run[at : at + 2] for at in range(len(run) - 1)])
    return frozenset(words)


def exact_values(text: str) -> list[str]:
    """The exact values of a text, each once, in the order in which they first stand."""
    found: dict[str, None] = {}
    for chunk in dict.fromkeys(_CHUNK.findall(text)):
        if chunk.isascii():
            value = _value_in(chunk)
            if value:
                found[value] = None
        else:
            for run in _ASCII.findall(chunk):
                value = _value_in(run)
                if value:
                    found[value] = None
    return _without_lines(list(found))


def _without_lines(values: list[str]) -> list[str]:
    """A file that is named with several of its lines, as a search does, is one value."""
    files = Counter([line[1] for value in values if (line := _LINE_OF.match(value))])
    shown = [
        line[1] if (line := _LINE_OF.match(value)) and files[line[1]] > 2 else value
        for value in values
    ]
    return list(dict.fromkeys(shown))


def _value_in(chunk: str) -> str:
    """The value that a run of characters holds, or ""."""
    if "=" in chunk and "://" not in chunk:
        chunk = chunk.rpartition("=")[2]
    value = chunk.strip(_EDGES) if not chunk.startswith((".", "/", "~")) else chunk.rstrip(_EDGES)
    if not _LEAST_VALUE <= len(value) <= _MOST_VALUE:
        return ""
    named = _DIGIT.search(value) or _NAMED.search(value) or _is_path(value)
    return value if named else ""


def _is_path(value: str) -> bool:
    if "/" not in value:
        return False
    inside = value.strip("/")
    return bool(inside) and (value[0] in "/~." or inside.count("/") > 1)
