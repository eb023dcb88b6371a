"""A caller's value or a stranger's error in a message: whatever it is, the message is made."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final

_MOST: Final = 200  # characters; far more than tells which value it was
_MOST_SAID: Final = 1_000  # characters of an error, which may quote a whole conversation
_MOST_KEYS: Final = 8
_KINDS: Final = ("role", "type")  # of a message: these say which one it is
_ALIKE: Final = 0.7  # of 1; below it, `nope` is like `openai`


class _Brief(reprlib.Repr):
    """Looks at the beginning of a value, and no deeper than a few levels."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxlong = self.maxother = _MOST

    def repr_instance(self, x: object, level: int) -> str:
        try:
            return repr(x)[:_MOST]
        except Exception:  # noqa: BLE001 - a stranger's `__repr__`
            return _unshowable(x)


_BRIEF: Final = _Brief()


def safe_repr(value: object, most: int = _MOST) -> str:
    """The value as `repr` shows it, its first `most` characters; what has no repr is told by its type.

    Nothing is raised for a list that is nested too deep, a number too long, or an object whose
    `__repr__` fails, and a large value costs no more than a small one.
    """
    try:
        return _BRIEF.repr(value)[:most]
    except Exception:  # noqa: BLE001 - a stranger's object may fail in ways of its own
        return _unshowable(value)[:most]


def shape_of(value: object) -> str:
    """Return a dict with its keys, its role and its type, else a type: no words of a conversation."""
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
    """An error's `kind_of` and what it `said`: for people and events, not for a record."""
    return f"{error_kind(error)}: {error_message(error)}"


def error_kind(error: BaseException) -> str:
    """An error's type, and a program's exit status: no words of others."""
    status = getattr(error, "exit_status", None)
    name = type(error).__name__
    return f"{name} (exit status {status})" if isinstance(status, int) else name


def without_message(reason: str) -> str:
    """A reason that ends in what an error `told`, without its words: these may go into a record.

    A program's output or a provider's message may hold a secret, and `redact` does not see it.
    """
    return reason.partition(":")[0]


def error_message(error: BaseException, most: int = _MOST_SAID) -> str:
    """What an error says, its first `most` characters, with a question mark for each lone surrogate."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - a stranger's `__str__`
        words = "what it says cannot be shown"
    return words[:most].encode(errors="replace").decode()


def _unshowable(value: object) -> str:
    return f"<{type(value).__name__} that cannot be shown>"
