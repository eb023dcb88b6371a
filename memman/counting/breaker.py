"""A breaker: after some failures in a row an endpoint is left alone for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from memman.forks import renew_in_child

FAILURES_IN_A_ROW: Final = 3
PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 300.0


class Breaker:
    """Whether an endpoint may be asked. Any thread may use it; several meters may share one.

    Three failures in a row open it for 30 s. Then one call is let through: if it passes the breaker
    closes, if it fails it stays open for twice as long, at most 300 s. A call that never says how it
    went gives way to the next after another pause. `timer` gives seconds and never goes back.
    """

    def __init__(self, timer: Callable[[], float] = monotonic) -> None:
        self.reason = ""  # of the last failure
        self._timer = timer
        self._renew()
        renew_in_child(self._renew)
        self._failures = 0
        self._pause = PAUSE_SECONDS
        self._open_until: float | None = None
        # Calls let through in an earlier era say nothing of this one.
        self._era = 0

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def admit(self) -> int | None:
        """A pass to hand back with how the call went, or None while the endpoint rests."""
        with self._lock:
            if self._open_until is None:
                return self._era
            now = self._timer()
            if now < self._open_until:
                return None
            self._open_until = now + self._pause
            self._era += 1
            return self._era

    def rests(self) -> float:
        """The seconds until somebody is let through, 0 when that is now."""
        with self._lock:
            return 0.0 if self._open_until is None else max(0.0, self._open_until - self._timer())

    def passed(self, era: int) -> None:
        """The endpoint answered, whatever it said."""
        with self._lock:
            if era == self._era:
                self._failures = 0
                self._pause = PAUSE_SECONDS
                self._open_until = None

    def failed(self, era: int, reason: str) -> None:
        """The endpoint did not answer, or not with sense."""
        with self._lock:
            if era != self._era:
                return
            self.reason = reason
            self._failures += 1
            if self._open_until is not None:
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            elif self._failures < FAILURES_IN_A_ROW:
                return
            self._era += 1
            self._open_until = self._timer() + self._pause

    def withdrawn(self, era: int) -> None:
        """The call ended and says nothing of the endpoint: the next may go in its place."""
        with self._lock:
            if era == self._era and self._open_until is not None:
                self._open_until = self._timer()
