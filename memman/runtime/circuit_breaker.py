"""A circuit breaker: after failures in a row, calls pause for a while."""

from __future__ import annotations

import threading

import msgspec

from memman.runtime.forks import renew_in_child

_MOST_DOUBLINGS = 10
# Shared by all breakers: it is held for microseconds, and a lock in each would cost every session memory.
_lock = threading.Lock()


def _renew() -> None:
    """Replace the lock."""
    global _lock
    _lock = threading.Lock()


renew_in_child(_renew)


class Pause(msgspec.Struct, frozen=True):
    """A time without calls, in seconds of the breaker's clock, after so many failures in a row."""

    failures: int
    reason: str  # of the last failure
    since: float
    until: float

    def lasts(self, now: float) -> bool:
        """Whether the pause is in effect. A clock that went back ends it."""
        return self.since <= now < self.until


class CircuitBreaker:
    """Pauses calls after failures in a row. Threads may use it at once; several callers may share one.

    The first `tolerated` failures cause no pause. The next one pauses calls for `first_pause` seconds, and
    each further one for twice as long, at most `longest_pause`. A success closes the breaker.

    Callers that must not call all at once after a pause use `admit`: it lets one call through, and gives it
    a number to report the outcome with. Outcomes of calls from before the last pause are ignored. Callers
    that run one call at a time use `pause` and report without a number.

    Times are seconds of a clock of the caller's choice, the same in all calls.
    """

    def __init__(self, first_pause: float, longest_pause: float, *, tolerated: int = 0) -> None:
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._tolerated = tolerated
        self._failures = 0
        self._pause: Pause | None = None
        self._generation = 0  # of calls; each pause and each call after it begins another

    def admit(self, now: float) -> int | None:
        """Return the number of an admitted call, None during a pause.

        After a pause one call is admitted. If its outcome is not reported, the next one is admitted after
        as long a pause again.
        """
        with _lock:
            if self._pause is None:
                return self._generation
            if self._pause.lasts(now):
                return None
            self._begin_pause(now, self._pause.reason)
            return self._generation

    def pause(self, now: float) -> Pause | None:
        """Return the pause in effect."""
        with _lock:
            return self._pause if self._pause is not None and self._pause.lasts(now) else None

    def record_success(self, call: int | None = None) -> None:
        """Close the breaker."""
        with _lock:
            if self._is_current(call):
                self._failures, self._pause = 0, None

    def record_failure(self, now: float, reason: str, call: int | None = None) -> Pause | None:
        """Count a failure, and return the pause that it causes."""
        with _lock:
            if not self._is_current(call):
                return self._pause
            self._failures += 1
            if self._failures > self._tolerated:
                self._begin_pause(now, reason)
            return self._pause

    def record_no_outcome(self, now: float, call: int | None = None) -> None:
        """Admit the next call at once: this one ended without a success or a failure."""
        with _lock:
            if self._pause is not None and self._is_current(call):
                self._pause = msgspec.structs.replace(self._pause, until=now)

    def postpone(self, now: float, reason: str) -> Pause:
        """Pause calls for the first pause's time without counting a failure."""
        with _lock:
            self._generation += 1
            self._pause = Pause(self._failures, reason, now, now + self._first_pause)
            return self._pause

    def _begin_pause(self, now: float, reason: str) -> None:
        doublings = min(self._failures - self._tolerated - 1, _MOST_DOUBLINGS)
        seconds = min(self._first_pause * 2 ** max(doublings, 0), self._longest_pause)
        self._generation += 1
        self._pause = Pause(self._failures, reason, now, now + seconds)

    def _is_current(self, call: int | None) -> bool:
        return call is None or call == self._generation
