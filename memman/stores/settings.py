"""Checks of a store's arguments: a wrong type or value raises a `StoreError` that names the argument."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from memman.display import safe_repr
from memman.entries import is_path
from memman.errors import StoreError

_LONGEST: Final = 1_000_000  # seconds, some eleven days: drivers count milliseconds in 32 bits


def checked_path(path: Any) -> str:
    """Return the path of a file as text."""
    found = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(found, str) or not is_path(found):
        raise StoreError(f"{safe_repr(path)} is not a path of a file")
    return found


def check_choice(name: str, given: Any, choices: Sequence[str]) -> None:
    """Raise `StoreError` unless the value is one of two words."""
    if not isinstance(given, str) or given not in choices:
        first, second = choices
        raise StoreError(f'{name}={safe_repr(given)} is neither "{first}" nor "{second}"')


def check_switch(name: str, given: Any) -> None:
    """Raise `StoreError` unless the value is True or False."""
    if not isinstance(given, bool):
        raise StoreError(f"{name}={safe_repr(given)} must be True or False")


def check_whole(name: str, given: Any, least: int) -> None:
    """Raise `StoreError` unless the value is a whole number, `least` or more."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise StoreError(f"{name}={safe_repr(given)} must be a whole number, at least {least}")


def check_seconds(name: str, given: Any, *, zero: bool = True) -> None:
    """Raise `StoreError` unless the value is a number of seconds; 0 only if `zero` allows it."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not 0 <= given <= _LONGEST or (given == 0 and not zero):
        least = "from 0" if zero else "above 0 and"
        raise StoreError(
            f"{name}={safe_repr(given)} must be a number of seconds, {least} up to {_LONGEST:,}"
        )
