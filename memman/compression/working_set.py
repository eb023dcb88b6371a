"""The values that an agent works with: arguments of its calls, paths, and other exact values.

Values come from tools and are not trusted: each is a single line without control characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from memman.compression.words import sure_values
from memman.display import LINE, line_of
from memman.entries import Entry, json_or

LEAST: Final = 4  # characters of a value
# The weights of a value's first use in a call, and of each further one.
USED: Final = (3.0, 2.0)
COMMAND: Final = (1.0, 3.0)
PROSE: Final = (0.2, 3.0)  # a description
INSIDE: Final = (0.5, 1.0)
_IDENTIFIER: Final = re.compile(r"[\d/]")
_PATTERN: Final = re.compile(r"[*+?()\[\]|\\^$]")
_MOST_TEXT: Final = 20_000  # characters of one entry that are read for exact values
_MOST_STRINGS: Final = 2_000  # of one JSON value
_MARKED: Final = re.compile(r"[\d/_.@-]|[A-Z]{2}")
# More than "either/or". Each part begins at the start, so that a long run takes linear time.
_PATH: Final = re.compile(r"[/~.].|[^/]*/.*[/.\d_-]|[^.\d_-]*[.\d_-].*/.")
# A number for each of something, such as 5km/h, with a unit in any script.
_RATE: Final = re.compile(
    r"\d[\d.,]*[^\W\d]{1,4}/[^\W\d]{1,5}|[^/]*\d[^\x00-\x7f]{0,4}/[^\x00-\x7f]{1,5}"
)
_RUN: Final = re.compile(r"[\w.~@/+-]+")
_OPEN: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ].*)?|\d\d:\d\d(?::\d\d.*)?|[\d.,:%-]+[a-zA-Z]{0,3}"
    r"|[0-9a-f-]{12,}|0x[0-9a-fA-F]+",
    re.ASCII,
)
_STATUS: Final = ("status", "state", "done", "completed", "checked")
_TITLE: Final = ("content", "title", "task", "step", "text", "description", "subject", "name")
_DONE: Final = frozenset(
    ("completed", "complete", "done", "closed", "cancelled", "canceled", "true")
)


def used_values(arguments: object) -> dict[str, tuple[float, float]]:
    """Return the values in a call's arguments: the weights of a first and of a repeated use.

    A path or an identifier is likely to be used again; a command or a plain word is once it was repeated.
    """
    found: dict[str, tuple[float, float]] = {}
    for text in _strings(arguments, _STATUS):
        if LEAST <= len(text) <= LINE and text.isprintable() and not text[0].isspace():
            if is_noise(text):
                continue
            if " " not in text and _IDENTIFIER.search(text) and not _PATTERN.search(text):
                found[text] = USED
            elif _MARKED.search(text):
                found[text] = PROSE if text[0].isupper() and " " in text else COMMAND
        if len(text) > LEAST:
            for path in paths_of(text[:_MOST_TEXT]):
                found.setdefault(path, INSIDE)
    return found


def decoded(call: Entry) -> object:
    """Return a call's arguments; its text if they are not JSON."""
    return json_or(call.text, call.text)


def _strings(value: object, without: Sequence[str] = ()) -> Iterator[str]:
    """Return the strings in decoded JSON, in order, except those with these keys."""
    waiting, seen = [value], 0
    while waiting and seen < _MOST_STRINGS:
        value = waiting.pop()
        seen += 1
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)
        elif isinstance(value, dict):
            waiting += reversed([one for name, one in value.items() if name not in without])
        elif isinstance(value, list):
            waiting += reversed(value)


def paths_of(text: str) -> dict[str, None]:
    """Return the distinct paths in a text."""
    if "/" not in text:
        return {}
    found: dict[str, None] = {}
    for chunk in dict.fromkeys(text.split()):
        if "/" in chunk and "</" not in chunk:
            for run in _RUN.findall(chunk):
                path = run.rstrip(".+-@~/")
                if (
                    LEAST <= len(path) <= LINE
                    and "//" not in path
                    and _PATH.match(path)
                    and not _RATE.fullmatch(path)
                ):
                    found[path] = None
    return found


def other_values(text: str) -> list[str]:
    """Return the exact values of a text; of a long one those at its beginning and end.

    The names in JSON objects are no values.
    """
    if text[:1] in ("{", "[") and len(text) <= _MOST_TEXT:
        text = " ".join(_strings(json_or(text, text)))
    return sure_values(text, _MOST_TEXT)


def is_noise(value: str) -> bool:
    """Return True for a time, a hash or a plain number, which are rarely needed again."""
    return _OPEN.fullmatch(value) is not None


def open_tasks(arguments: object) -> list[str] | None:
    """Return the tasks of a todo list that are not done; None if the call writes no such list.

    A todo list is an argument that is a list of objects, each with a text and a status.
    """
    lists = arguments.values() if isinstance(arguments, dict) else ()
    for items in lists:
        if isinstance(items, list) and items and all(map(_is_task, items)):
            return [line_of(_title(item), 200) for item in items if _status(item) not in _DONE]
    return None


def _is_task(item: object) -> bool:
    return isinstance(item, dict) and bool(_status(item)) and bool(_title(item))


def _status(item: dict[str, object]) -> str:
    values = map(item.get, _STATUS)
    return next((str(value).lower() for value in values if isinstance(value, str | bool)), "")


def _title(item: dict[str, object]) -> str:
    values = map(item.get, _TITLE)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")
