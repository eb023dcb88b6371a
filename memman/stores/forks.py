"""What is open across a fork: told before it, and after it on both sides."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forking(Protocol):
    """Something that must not be carried over a fork as it is."""

    def before_fork(self) -> None:
        """Comes to rest, and keeps others out until `after_fork`."""

    def after_fork(self) -> None:
        """In the parent: lets others go on."""

    def in_child(self) -> None:
        """In the child, where no other thread is; `before_fork` may not have been called."""


_known: weakref.WeakValueDictionary[int, Forking] = weakref.WeakValueDictionary()
_at_rest = threading.local()


def tell_of_forks(one: Forking) -> None:
    """Tells `one` of every fork for as long as it lives."""
    _known[id(one)] = one


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


if hasattr(os, "register_at_fork"):  # where processes can fork
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
