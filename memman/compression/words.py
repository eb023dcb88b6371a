"""The words of a text, in any language, and its exact values.

An exact value cannot be guessed or paraphrased: a path, an identifier, a number, a date, an address. A
word is a run of letters and digits; in scripts without spaces it is a pair of neighbouring characters.
Function words of eight languages are left out by a list, since they would otherwise be covered best.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from memman.search.terms import SPACELESS, UNSPACED, function_words

_LEAST_VALUE: Final = 4
_MOST_VALUE: Final = 120  # a longer one is a blob that is not typed again
# Separators of values become spaces in one step, which is far quicker than a pattern for runs.
_APART: Final = bytes(
    [32 if n <= 32 or n == 127 or n in b"\"'`<>(){}[];|*" else n for n in range(256)]
)
# The beginning of JSON, which may be cut off: an escaped line end is not part of a value.
_JSON: Final = re.compile(r'\s*(?:\{\s*"|\[\s*["\[{])')
_ESCAPED: Final = re.compile(r'(?<!\\)((?:\\\\)*)\\(?:["bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPED_TWICE: Final = re.compile(
    r'(?<!\\)((?:\\\\\\\\)*)\\\\(?:["bfnrt ]|u[0-9a-fA-F]{4})'  # a quote is a space by then
)
_NESTED: Final = ('{\\"', '[\\"')  # a JSON text inside the JSON
# Besides ASCII only letters of scripts with a blank before and after a value: Latin, Greek, Cyrillic.
_LETTERS: Final = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u037d\u037f-\u0386\u0388-\u052f\u1e00-\u1eff"
)
_NOT_OF_VALUES: Final = re.compile(f"[^\x00-\x7f{_LETTERS}]+")
_COMMA: Final = re.compile(r"(?<!\d),|,(?!\d)")
_AFTER_WORDS: Final = ".,:!?"
_EDGES: Final = ".:!?=&#-+"
_PATHS: Final = "./~"  # the first characters of a path, which are not stripped
_LINE_OF: Final = re.compile(r"(.+\.[A-Za-z]\w*):\d+(?::\d+)?$")
# 1 for a character that marks a value.
_SURE: Final = bytes([n in b"0123456789_@/" for n in range(256)])
_MARKED: Final = re.compile(r"[0-9_@/A-Z]|[a-z\u00df-\u052f]\.[a-z]")
_LINES: Final = 3  # of a file: from this number on only its name is a value
# The first character is searched for quickly; the alternatives look around it.
_NAMED: Final = re.compile(
    r"[0-9_A-Z@.](?:(?<=\d)|(?<=\w_)(?=\w)|(?<=[a-z][A-Z])|(?<=\w@)(?=\w)"
    r"|(?<=[A-Za-z\u00c0-\u052f]{2}\.)(?=[A-Za-z]{2})|(?<=[A-Z])(?=[A-Z]{3}))",
    re.ASCII,
)
JOINTS: Final = "/.-"  # in a longer path, number or identifier
_LEAST_CHARS: Final = 3
_WORD: Final = re.compile(r"[^\W_]+")
# Signs within words that are not letters to Python: accents, the points of Hebrew and Arabic, the vowels
# of the scripts of India, joiners and non-joiners.
_SIGNS: Final = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u0900-\u0963\u0971-\u0df3"
    "\u200c\u200d"
)
_IN_WORDS: Final = rf"\w{_SIGNS}{UNSPACED}"
_WORD_WITH_SIGNS: Final = f"[{_IN_WORDS}]+"  # compiled on first use, like the next
# A path may have names in other scripts. Such a name is complete if the path continues after it, with an
# ASCII extension, or if no letter adjoins the path; otherwise its end is unknown.
_OTHER: Final = rf"(?![\x00-\x7f{_LETTERS}])[{_IN_WORDS}]"  # a letter of another script
_NAME: Final = rf"{_OTHER}[{_IN_WORDS}-]*+"
_PLAIN: Final = rf"!#$%&+.0-9:=?@A-Z\\^_a-z~{_LETTERS}-"  # the other characters of a path
_STEP: Final = re.compile(f"/[^\\x00-\\x7f{_LETTERS}]")  # most texts have none
# Compiled on first use, since that takes as long as a tenth of an import.
_PATH_OR_OTHER: Final = (
    rf"(?<![/{_PLAIN}])(?P<head>[/{_PLAIN}]++)(?<=/)(?={_OTHER})(?:(?:{_NAME}|[{_PLAIN}]++)/)*+"
    rf"(?:{_NAME}(?:\.[A-Za-z0-9]++)++|(?P<last>{_NAME})(?=[.,:;!?]*+(?![/{_PLAIN}{_IN_WORDS}]))"
    rf"|(?P<torn>{_NAME})|[{_PLAIN}]*+)"
    rf"|[^\x00-\x7f{_LETTERS}]+"
)


def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text in lower case."""
    lower = text.lower()
    if text.isascii():
        found = _WORD.findall(lower)
    else:
        found = re.findall(_WORD_WITH_SIGNS, lower.replace("_", " "))
    words = {word for word in found if len(word) >= _LEAST_CHARS}
    words -= function_words()
    if not text.isascii():
        for run in SPACELESS.findall(text):
            words.discard(run)
            words.update([run[at : at + 2] for at in range(len(run) - 1)])
    return frozenset(words)


def exact_values(text: str) -> list[str]:
    """Return the distinct exact values of a text in order of appearance."""
    chunks = dict.fromkeys(_spaced(_unescaped(text)).decode().split())
    return _values_of([chunk for chunk in chunks if _may_hold(chunk)])


def _may_hold(chunk: str) -> bool:
    """Return True if a run of characters is more than a plain word."""
    word = chunk.rstrip(_AFTER_WORDS)
    if len(word) < _LEAST_VALUE or (word.isalpha() and word[1:].islower()):
        return False
    return _MARKED.search(chunk) is not None


def sure_values(text: str, most: int) -> list[str]:
    """Return the exact values with a digit, `_`, `@` or `/`, much faster if they are few.

    Nearly all values have one. Of a text of more than `most` characters its beginning and its end are
    read, `most` together.
    """
    if len(text) <= most:
        return _values_of(dict.fromkeys(_sure_chunks(_spaced(_unescaped(text)))))
    half = most // 2
    # A value that is cut in two at the edge is dropped.
    head = _spaced(_unescaped(text[:half])).rpartition(b" ")[0]
    tail = _spaced(_unescaped(text[-half:], like=text)).partition(b" ")[2]
    return _values_of(dict.fromkeys(_sure_chunks(b"%b %b" % (head, tail))))


def _sure_chunks(spaced: bytes) -> list[str]:
    """Return the runs of characters that contain a mark, without reading the others."""
    spaced += b" "
    marks = spaced.translate(_SURE)
    chunks: list[bytes] = []
    end = 0
    while (mark := marks.find(1, end)) >= 0:
        start = spaced.rfind(b" ", end, mark) + 1
        end = spaced.find(b" ", mark)
        chunks.append(spaced[start:end])
    return b" ".join(chunks).decode().split()


def _values_of(chunks: Iterable[str]) -> list[str]:
    """Return the values in runs of characters, divided at commas that are not inside a number."""
    found: dict[str, None] = {}
    named = _NAMED.search
    for chunk in chunks:
        for piece in _COMMA.split(chunk) if "," in chunk else (chunk,):
            value = piece.rpartition("=")[2] if "=" in piece and "://" not in piece else piece
            value = value.rstrip(_EDGES) if value[:1] in _PATHS else value.strip(_EDGES)
            if _LEAST_VALUE <= len(value) <= _MOST_VALUE and (named(value) or _is_path(value)):
                found[value] = None
    return _without_lines(list(found)) if len(found) >= _LINES else list(found)


def _unescaped(text: str, like: str = "") -> str:
    """Replace each JSON escape in the text, except of a backslash, by a space.

    The beginning of the text, or of the text `like` that it ends, shows whether it is JSON.
    """
    if "\\" not in text or _JSON.match(like or text) is None:
        return text
    found = _ESCAPED.sub(r"\1 ", text)
    return _ESCAPED_TWICE.sub(r"\1 ", found) if any(mark in text for mark in _NESTED) else found


def _spaced(text: str) -> bytes:
    """Replace everything that cannot be in a value by spaces."""
    if not text.isascii():
        if _STEP.search(text):
            text = re.sub(_PATH_OR_OTHER, _only_a_whole_path, text)
        else:
            text = _NOT_OF_VALUES.sub(" ", text)
    return text.encode().translate(_APART)


def _only_a_whole_path(found: re.Match[str]) -> str:
    """Keep a path with names in other scripts, unless its end is unknown."""
    head = found["head"]
    if head is None:
        return " "
    path, at = found[0], found.start()
    if found["last"] is None and found["torn"] is None:
        return path
    begins = not (at and re.match(_WORD_WITH_SIGNS, found.string[at - 1]))
    if begins and found["torn"] is None and _is_path(path):
        return path
    root = head.rpartition("=")[2]
    return " " if _is_path(root) and not root[0].isdigit() else f"{head} "


def _without_lines(values: list[str]) -> list[str]:
    """Reduce a file that is named with several of its lines, as in search results, to one value."""
    files = {v: line[1] for v in values if ":" in v and (line := _LINE_OF.match(v))}
    if len(files) < _LINES:
        return values
    lines = Counter(files.values())
    named = [files[v] if lines[files.get(v, "")] >= _LINES else v for v in values]
    return list(dict.fromkeys(named))


def _is_path(value: str) -> bool:
    if "/" not in value:
        return False
    inside = value.strip("/")
    return bool(inside) and (value[0] in "/~." or inside.count("/") > 1)


def stands_alone(value: str, text: str, joints: str = "") -> bool:
    """Return whether a text contains a value that is not part of a longer word or number.

    With `joints` it may neither be part of words that these characters join.
    """
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not (
            _continues(value[0], text[max(0, at - 2) : at][::-1], joints)
            or _continues(value[-1], text[end : end + 2], joints)
        ):
            return True
        at = text.find(value, at + 1)
    return False


def _continues(edge: str, beside: str, joints: str) -> bool:
    """Return whether the two characters next to a value continue it; False in scripts without spaces."""
    if beside[1:] and beside[0] in joints:
        return beside[1].isascii() and beside[1].isalnum()
    return (edge + beside[:1]).isascii() and edge.isalnum() and beside[:1].isalnum()
