"""The faster backends, toktok and quicktok, which count if they are installed and correct.

Both carry o200k_base and cl100k_base, count 4 to 16 times as fast as tiktoken, and are young. So a backend
counts only after it has returned the known count of every text in `probes`. toktok is tried first because
it is faster. If neither passes, tiktoken counts, and the note gives the reason.

Their tables are of a later Unicode than tiktoken 0.14's, so their counts may differ by a token or two
next to one of the 4,699 characters of Unicode 17 (2025).

`MEMMAN_TIKTOKEN_BACKEND` names one of `toktok`, `quicktok` and `tiktoken` to use no other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from memman.errors import CounterUnavailable
from memman.providers import renew_in_child
from memman_tiktoken.probes import probes_of

BACKEND_VARIABLE: Final = "MEMMAN_TIKTOKEN_BACKEND"
TIKTOKEN: Final = "tiktoken"
Count = Callable[[str], int]


class Backend(NamedTuple):
    """A backend: its name, its function (None for tiktoken, which needs a vocabulary), and the reason."""

    name: str
    function: Count | None
    note: str


def _toktok(encoding: str) -> Count:
    import toktok  # type: ignore[import-untyped,import-not-found,unused-ignore]  # no types; need not be installed

    # The public function costs 22 us a call, more than most texts.
    count: Count = toktok._encoding(encoding).count  # noqa: SLF001 - see above
    return count


def _quicktok(encoding: str) -> Count:
    import quicktok  # type: ignore[import-untyped,import-not-found,unused-ignore]  # no types; need not be installed

    count: Count = quicktok.get_encoding(encoding).count
    return count


_MAKERS: Final[dict[str, Callable[[str], Count]]] = {"toktok": _toktok, "quicktok": _quicktok}
_lock = threading.Lock()
_found: dict[tuple[str, str], Backend] = {}


def _renew() -> None:
    """Begin with a free lock: a thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


renew_in_child(_renew)


def backend_for(encoding: str, wanted: str | None = None) -> Backend:
    """Return the backend for `encoding`, checked once in a process.

    `wanted` names one only, "" the best; by default it is `MEMMAN_TIKTOKEN_BACKEND`. Raises
    `CounterUnavailable` if the wanted one is missing or counts wrong.
    """
    if wanted is None:
        wanted = os.environ.get(BACKEND_VARIABLE, "").strip().lower()
    with _lock:
        known = _found.get((encoding, wanted))
        if known is None:
            known = _found[encoding, wanted] = _choose(encoding, wanted)
        return known


def _choose(encoding: str, wanted: str) -> Backend:
    if wanted not in ("", TIKTOKEN, *_MAKERS):
        names = ", ".join((*_MAKERS, TIKTOKEN))
        raise CounterUnavailable(f"{BACKEND_VARIABLE} is {wanted!r}: set it to one of {names}")
    if wanted == TIKTOKEN:
        return Backend(TIKTOKEN, None, f"tiktoken counts, as {BACKEND_VARIABLE} asks")
    probes = probes_of(encoding)
    if not probes:
        return Backend(TIKTOKEN, None, f"tiktoken counts: no faster backend has {encoding}")
    refused: list[str] = []
    for name in (wanted,) if wanted else _MAKERS:
        count, fault = _checked(name, encoding, probes)
        if count is not None:
            note = f"{name} counts: it was right on {len(probes)} texts of known count"
            return Backend(name, count, "; ".join([note, *refused]))
        refused.append(fault)
    if wanted:
        raise CounterUnavailable(f"{BACKEND_VARIABLE} asks for a backend, but {refused[0]}")
    return Backend(TIKTOKEN, None, "; ".join(["tiktoken counts", *refused]))


def _checked(
    name: str, encoding: str, probes: tuple[tuple[str, int], ...]
) -> tuple[Count | None, str]:
    """Return a backend's `count`, or None and its fault."""
    try:
        count = _MAKERS[name](encoding)
        answers = [(text, tokens, count(text)) for text, tokens in probes]
    except ModuleNotFoundError as error:
        if error.name == name:
            return None, f"{name} is not installed"
        return None, f"{name} failed ({error})"
    except BaseException as error:
        # Third-party compiled code; a Rust panic is a BaseException, and cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return None, f"{name} failed ({type(error).__name__}: {error})"
    for text, tokens, answer in answers:
        if type(answer) is not int or answer != tokens:
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            return None, f"{name} is wrong: {answer!r} tokens for {shown!r}, which has {tokens}"
    return count, ""
