"""Values and errors in messages: safe reprs, suggestions, and invisible characters."""

from __future__ import annotations

import logging
import re
import reprlib
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import islice
from typing import Final

_MOST: Final = 200  # characters
_MOST_SAID: Final = 1_000  # characters of an error, which may quote a whole conversation
_MOST_KEYS: Final = 8
LINE: Final = 120  # characters of a text on one line
_KINDS: Final = ("role", "type")  # keys of a message whose values are shown
_ALIKE: Final = 0.7  # of 1; below it, `nope` is like `openai`


class _Brief(reprlib.Repr):
    """Shows the beginning of a value, a few levels deep."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = _MOST

    def repr_instance(self, x: object, level: int) -> str:
        try:
            return repr(x)[:_MOST]
        except Exception:  # noqa: BLE001 - a third-party `__repr__`
            return _unshowable(x)


_BRIEF: Final = _Brief()


def safe_repr(value: object, most: int = _MOST) -> str:
    """Return the first `most` characters of a value's repr, or its type if it has none.

    Never raises, not even for deeply nested lists, long numbers, or an object whose `__repr__` fails. A
    large value costs no more than a small one.
    """
    try:
        return _BRIEF.repr(value)[:most]
    except Exception:  # noqa: BLE001 - a third-party object
        return _unshowable(value)[:most]


def shape_of(value: object) -> str:
    """Return a dict's keys, role and type, or a value's type, without content of a conversation."""
    if not isinstance(value, dict):
        return "None" if value is None else type(value).__name__
    shapes = [
        f"{safe_repr(key, 40)}: {safe_repr(value[key], 40) if key in _KINDS else '...'}"
        for key in islice(value, _MOST_KEYS)
    ]
    return f"{{{', '.join(shapes)}}}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the known name most like `name`, "" if none is like it."""
    if not isinstance(name, str):
        return ""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, 1, _ALIKE)
    return f", did you mean {by_lower[close[0]]!r}?" if close else ""


def known_names(name: object, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: a suggestion, and the known names."""
    names = list(known)
    return f"{did_you_mean(name, names) or ';'} known are {', '.join(names)}"


@lru_cache(maxsize=1_024)
def warn_once(logger: str, message: str) -> None:
    """Log a warning once in this process."""
    logging.getLogger(logger).warning("%s", message)


def format_error(error: BaseException) -> str:
    """Return an error's kind and message: for people and events, not for a record."""
    return f"{error_kind(error)}: {error_message(error)}"


def error_kind(error: BaseException) -> str:
    """Return an error's type, with a program's exit status, but without its message."""
    status = getattr(error, "exit_status", None)
    name = type(error).__name__
    return f"{name} (exit status {status})" if isinstance(status, int) else name


def without_message(reason: str) -> str:
    """Return a reason without the message of its error, for a record.

    A program's output or a provider's message may contain a secret that `redact` has not seen.
    """
    return reason.partition(":")[0]


def error_message(error: BaseException) -> str:
    """Return the beginning of an error's message, with `?` for each lone surrogate."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - a third-party `__str__`
        words = "its message cannot be shown"
    return words[:_MOST_SAID].encode(errors="replace").decode()


def _unshowable(value: object) -> str:
    return f"<{type(value).__name__} that cannot be shown>"


# ---------------------------------------------------------------- line ends, invisible characters

# As `str.splitlines` knows them. Each constant is the inside of a character class of `re`.
LINE_ENDS: Final = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
CONTROLS: Final = r"\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"
# Unicode's default-ignorable code points (tags and variation selectors among them), its format characters,
# and the blank Braille pattern.
INVISIBLE: Final = (
    r"\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
UNSEEN: Final = re.compile(f"[{CONTROLS}{INVISIBLE}]")
ODD_LINE_END: Final = re.compile(rf"[{LINE_ENDS}]".replace(r"\n", ""))


@cache
def gap() -> str:
    """Return a pattern for characters that may separate the letters of a word without changing its look.

    It includes combining marks: languages need them, so they stay in texts, but a delimiter is still found.
    """
    letters = map(chr, range(0x300, 0x1F000))
    marks = "".join(one for one in letters if unicodedata.category(one) in ("Mn", "Me"))
    return rf"[\s{CONTROLS}{INVISIBLE}{marks}]*"


def line_of(text: str, most: int = LINE) -> str:
    """Return a text as a single line without control characters, cut to `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
