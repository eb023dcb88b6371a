"""The pieces of a message, and which of them are rules or labelled lines.

A piece is a sentence or a line, with the blanks after it: the pieces of a message together are the
message. No grammar is used: labels and structure count, and a short list of words that rules have in
several languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_LONGEST: Final = 300  # characters of a piece
# Includes the sentence ends of Greek, Arabic, Urdu, Hindi, Burmese, Ethiopic, Khmer; Chinese and
# Japanese, where a quoted sentence does not end its own.
ENDS: Final = re.compile(
    r"(?<=[.!?\u037e\u061f\u06d4\u0964\u0965\u104b\u1362\u17d4])\s+|\n\s*"
    r"|(?<=[\u3002\uff01\uff1f])(?![\u201d\u2019\u300d\u300f\uff09])\s*"
)
ASKED: Final = ("?", "\uff1f", "\u061f", "\u037e")
_LABEL: Final = re.compile(
    r"[\s>#*\u2022-]{0,8}(?:\d{1,3}[.)]\s{1,3})?"
    r"(?P<label>[^\W\d_][^\s:\uff1a]{0,30}(?: [^\s:\uff1a]{1,30}){0,5})"
    r"(?::\*{0,2}[ \t]{1,4}|\uff1a\s{0,4})(?P<value>\S)"
)
_TAG: Final = re.compile(  # `NOTE - ...` and `[NOTE] ...`
    r"[\s>#*\u2022-]{0,8}(?:[A-Z]{3,20}(?: [A-Z]{2,20})? [-\u2013\u2014] |\[[A-Z][A-Z _-]{2,30}\] )"
)
_PUNCTUATION: Final = " \t\r\n.,;:!?*`\"'"
_HEAD: Final = 5  # words of a sentence that show who it is about


def _text_of(name: str) -> str:
    return (Path(__file__).parent / name).read_bytes().decode()


@cache
def _words_in(name: str) -> frozenset[str]:
    return frozenset(_text_of(name).splitlines())


@cache
def _rule_words() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return words of rules that a narration may have too, and words and phrases that only rules have."""
    words, _, phrases = _text_of("rule_words.txt").partition("\n\n")
    return frozenset(words.split("\n")), tuple(phrases.splitlines())


def pieces_of(text: str) -> list[str]:
    """Return the sentences and lines of a text, each with the blanks after it."""
    found: list[str] = []
    start = 0
    for end in ENDS.finditer(text):
        if end.end() > start:
            found += cut(text[start : end.end()], _LONGEST)
            start = end.end()
    if start < len(text):
        found += cut(text[start:], _LONGEST)
    return found


def cut(text: str, most: int) -> Iterator[str]:
    """Yield a long text in pieces of at most `most` characters, if possible cut between clauses."""
    start = 0
    while len(text) - start > most:
        least, end = start + most // 3, start + most
        at = max(text.rfind(", ", least, end), text.rfind("; ", least, end))
        if at < 0:
            at = text.rfind(" ", least, end)
        at = end - 1 if at < 0 else at
        yield text[start : at + 1]
        start = at + 1
    yield text[start:]


def _is_rule(piece: str) -> bool:
    """Return True if a piece has a word that demands or forbids something, in one of the languages listed.

    A habit ("He never ...") is not a rule.
    """
    words, phrases = _rule_words()
    lower = piece.lower().replace("\u2019", "'")
    if any(phrase in lower for phrase in phrases):
        return True
    said = [word.strip(_PUNCTUATION) for word in lower.split()]
    return not words.isdisjoint(said) and _words_in("told_words.txt").isdisjoint(said[:_HEAD])


def label_of(piece: str) -> str:
    """Return the label of a line `LABEL: text`, in lower case; "" if it has none."""
    found = _LABEL.match(piece)
    return "" if found is None else found["label"].lower()


def exact_label(piece: str) -> str:
    """Return the label of a line `KEY: value` that a newer one replaces; "" if its value has a blank."""
    label = label_of(piece)
    _, _, value = piece.partition(":") if ":" in piece else piece.partition("\uff1a")
    kind = _TAG.match(piece) is not None or label in _words_in("label_words.txt")
    return label if label and not kind and len(value.split()) == 1 else ""


def is_firm(piece: str) -> bool:
    """Return whether a piece is a rule, or has a label of a kind of statement, as `FACT:`."""
    if _is_rule(piece) or _TAG.match(piece):
        return True
    found = _LABEL.match(piece)
    label = found["label"] if found else ""
    return label.isupper() or label.lower() in _words_in("label_words.txt")
