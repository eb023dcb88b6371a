"""The kind of signal that memman's events have, and subscriptions of one manager to them."""

from __future__ import annotations

import inspect
import logging
import sys
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from blinker import ANY, NamedSignal

from memman.display import known_names, safe_repr
from memman.errors import InvalidInput

logger = logging.getLogger("memman.events")
R = TypeVar("R", bound=Callable[..., Any])
_warned: set[object] = set()  # what this process was warned of: once each


class EventSignal(NamedSignal):
    """A signal of blinker's, in no namespace: other libraries' signals may have the same name.

    It warns of two mistakes that blinker leaves silent: a receiver that cannot be called as
    `receiver(sender, event=...)`, and a function that is gone before it received an event.
    """

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(name, doc)
        self._unheard: dict[int, weakref.finalize[Any, Any]] = {}  # functions without an event yet

    def connect(self, receiver: R, sender: Any = ANY, weak: bool = True) -> R:
        """Connect a receiver as blinker does; one with a wrong signature is left out, with a warning."""
        if not _accepts(receiver, None, event=None):
            self._warn_of_signature(receiver)
            return receiver
        super().connect(receiver, sender, weak)
        if weak and isinstance(receiver, FunctionType) and id(receiver) not in self._unheard:
            watch = weakref.finalize(receiver, self._lost, id(receiver), repr(receiver))
            watch.atexit = False
            self._unheard[id(receiver)] = watch
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Disconnect a receiver, from every sender by default."""
        self._heard(receiver)
        super().disconnect(receiver, sender)

    def delivered_to(self, sender: Any) -> list[Callable[..., Any]]:
        """Return the receivers of an event of `sender`, which are about to be called."""
        receivers = list(self.receivers_for(sender))
        for receiver in receivers:
            self._heard(receiver)
        return receivers

    def _heard(self, receiver: Callable[..., Any]) -> None:
        watch = self._unheard.pop(id(receiver), None)
        if watch is not None:
            watch.detach()

    def _lost(self, receiver_id: int, name: str) -> None:
        del self._unheard[receiver_id]
        if "lost" in _warned or sys.is_finalizing():
            return
        _warned.add("lost")
        logger.warning(
            "the receiver %s of %r was deleted before it received an event: signals hold receivers "
            "weakly. Keep a reference to it, or use memory.on(%r, callback), which holds it",
            name, self.name, self.name,
        )  # fmt: skip

    def _warn_of_signature(self, receiver: Callable[..., Any]) -> None:
        code = getattr(receiver, "__code__", type(receiver))
        if code in _warned:
            return
        _warned.add(code)
        logger.warning(
            "the receiver %r was not connected to %r: it cannot be called as "
            "receiver(sender, event=...). Define it as f(sender, event), or use "
            "memory.on(%r, callback) for a callback(event)",
            receiver, self.name, self.name,
        )  # fmt: skip


class Subscription:
    """A callback that receives one event of one manager, until `off`."""

    def __init__(
        self,
        signal: EventSignal,
        sender: Any,
        callback: Callable[[Any], object],
        kept: set[Subscription],
    ) -> None:
        self._signal, self._callback, self._kept = signal, callback, kept
        # The manager holds it: held by the signal, it would keep the manager alive for ever.
        kept.add(self)
        signal.connect(self, sender=sender)

    def __call__(self, _sender: Any, *, event: Any) -> object:
        return self._callback(event)

    def __repr__(self) -> str:
        return f"<{self._callback!r} on {self._signal.name!r}>"

    def off(self) -> None:
        """End the subscription. Calling it again does nothing."""
        self._kept.discard(self)
        self._signal.disconnect(self)


def check_callback(callback: Any) -> None:
    """Raise `InvalidInput` unless `callback` can be called with an event."""
    if not callable(callback):
        raise InvalidInput(f"callback must be callable, not {type(callback).__name__}")
    if not _accepts(callback, None):
        raise InvalidInput(
            f"{callback!r} cannot be called as callback(event): define it with one argument"
        )


def meant_by(name: Any, names: list[str]) -> str:
    """Return the error text for an unknown event, with the name that was probably meant."""
    return f"unknown event {safe_repr(name, 60)}{known_names(name, names)}"


def _accepts(function: Callable[..., Any], *args: Any, **keywords: Any) -> bool:
    """Return whether a function takes these arguments, as far as its signature is known."""
    try:
        inspect.signature(function).bind(*args, **keywords)
    except TypeError:
        return False
    except ValueError:  # a function written in C may have no signature
        return True
    return True
