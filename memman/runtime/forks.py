"""Forks: objects that pause before one, and locks that are renewed in the child.

A child has only the thread that forked. A lock that another thread held stays held in it, and a structure
that another thread was changing stays half changed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Protocol


class Forking(Protocol):
    """An object that must not be copied by a fork in the middle of an operation."""

    def before_fork(self) -> None:
        """Wait for running operations, and block new ones until `after_fork`."""

    def after_fork(self) -> None:
        """Allow operations again, in the parent."""

    def in_child(self) -> None:
        """Start in the child, which has no other thread; `before_fork` may not have been called."""


_known: weakref.WeakValueDictionary[int, Forking] = weakref.WeakValueDictionary()
_renewals: set[Callable[[], Callable[[], None] | None]] = set()
_at_rest = threading.local()


def register_for_forks(one: Forking) -> None:
    """Call the methods of `one` at every fork, as long as it lives."""
    _known[id(one)] = one


def renew_in_child(renew: Callable[[], None]) -> None:
    """Call `renew` in each forked child; a method only as long as its object lives."""
    if isinstance(renew, MethodType):
        _renewals.add(weakref.WeakMethod(renew, _renewals.discard))
    else:
        _renewals.add(lambda: renew)


def _living() -> list[Forking]:
    found = [ref() for ref in _known.valuerefs()]
    return [one for one in found if one is not None]


def _before() -> None:
    _at_rest.ones = _living()
    for one in _at_rest.ones:
        one.before_fork()


def _after() -> None:
    for one in _at_rest.ones:
        one.after_fork()
    del _at_rest.ones


def _in_child() -> None:
    for one in _living():
        one.in_child()
    for ref in list(_renewals):
        renew = ref()
        if renew is not None:
            renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
