"""When a session's summarizer may be asked and its strategy be run: after a failure later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from memman.compression import FinishedParts, Step
from memman.config import Budget
from memman.display import without_message

FIRST_PAUSE: Final = timedelta(seconds=15)  # a limit per minute is often free again after that
LONGEST_PAUSE: Final = timedelta(minutes=5)  # so that a summarizer that is back is noticed soon
FAILURES_TO_OPEN: Final = 3
ASIDE: Final = timedelta(seconds=1)  # between looks whether another worker still pays
_LEFT_ALONE: Final = "the summarizer is left alone"
LEAST_GAIN: Final = 0.1  # of the window: with less, the next call comes before much is new

Progress = tuple[int, int]
"""How much a session was given so far: tokens and entries."""


class Rest(msgspec.Struct, frozen=True):
    """Until when something rests, and why: `what` says it in words; `failures` in a row, the last for
    `reason`.
    """

    what: str
    failures: int
    reason: str
    since: datetime
    until: datetime

    @property
    def open(self) -> bool:
        """Whether the breaker is open: not even a compression by hand asks before `until`."""
        return self.failures >= FAILURES_TO_OPEN

    def __str__(self) -> str:
        return self._with(self.reason)

    @property
    def recorded(self) -> str:
        """The same for a record: without the words of a program or a provider."""
        return self._with(without_message(self.reason))

    def _with(self, reason: str) -> str:
        times = ", after 1 failure" if self.failures == 1 else ""
        if self.failures > 1:
            times = f", after {self.failures} failures in a row"
        until = self.until.isoformat(timespec="seconds")
        sooner = "" if self.open else " or until much is new"
        return f"{self.what} until {until}{sooner}{times} ({reason})"

    def lasts(self, clock: Callable[[], datetime]) -> bool:
        """Whether it lasts now. A clock that went back ends it."""
        return self.since <= clock() < self.until


def _longer(what: str, before: Rest | None, now: datetime, reason: str) -> Rest:
    """The rest after one more failure in a row."""
    failures = before.failures + 1 if before is not None else 1
    pause = min(FIRST_PAUSE * 2 ** min(failures - 1, 10), LONGEST_PAUSE)
    return Rest(what, failures, reason, now, now + pause)


class Backoff:
    """What one session knows of its summarizer and strategy, in this process: also after it was unloaded.

    After a failure nobody asks for 15 s, after the next one for 30 s, and so on up to 5 minutes. The
    first two pauses end too when a room is filled with what the summarizer has not seen, or by hand;
    from the third failure in a row on only time ends one. A compression that gained less than a tenth
    of the window is such a failure; a call that could not be made is none, and is put off for 15 s. A
    good answer ends it all. So it is, by itself, with a strategy whose stage failed, or for which
    `redact` did: an add does not run it, and only a compression by hand always does.
    """

    __slots__ = (
        "_answered_at", "_aside_at", "_begun_at", "_broken", "_broken_at", "_counted", "_failed_at",
        "_rest", "_stages", "_summarizer", "last", "left_at", "parts", "tried_at", "wordy",
    )  # fmt: skip

    def __init__(self) -> None:
        self._summarizer: object = None
        self._begun_at: Progress = (0, 0)
        self._answered_at: Progress | None = None
        self._failed_at: Progress | None = None
        self._rest: Rest | None = None
        self._stages: Sequence[Step] = ()  # those that failed
        self._broken: Rest | None = None
        self._broken_at: Progress | None = None
        self._aside_at: datetime | None = None
        self._counted = False
        self.wordy = False  # its last summary was too long, also when it was asked again
        self.parts = FinishedParts()  # of summaries that came to nothing
        self.last = ""  # what the last compression said of itself
        self.tried_at: Progress | None = None  # where preparing in the background came to nothing
        self.left_at: Progress = (0, 0)  # where the session was when it was unloaded

    def begin(self, summarizer: object, progress: Progress) -> None:
        """A plan begins; however many of its calls fail, it fails once. Another summarizer is fresh."""
        self._counted, self._begun_at = False, progress
        if summarizer is not self._summarizer:
            self._summarizer, self._rest, self._answered_at = summarizer, None, None
            self.wordy = False
            self.parts.clear()

    def knows(self, summarizer: object) -> bool:
        """Whether what is noted here is of this summarizer, and not of one that it has replaced."""
        return summarizer is self._summarizer

    def failed(self, now: datetime, reason: str) -> Rest:
        """The summarizer gave nothing that could be used."""
        before = self._rest
        if self._counted and before is not None:
            return before
        self._counted, self._failed_at = True, self._begun_at
        self._rest = _longer(_LEFT_ALONE, before, now, reason)
        return self._rest

    def put_off(self, now: datetime, reason: str) -> Rest:
        """It could not be called, which is no failure; trying so with every add would be for nothing."""
        before = self._rest
        if self._counted and before is not None:
            return before
        failures = before.failures if before is not None else 0
        self._counted, self._failed_at = True, self._begun_at
        self._rest = Rest(_LEFT_ALONE, failures, reason, now, now + FIRST_PAUSE)
        return self._rest

    def answered(self, gain: float, now: datetime) -> Rest | None:
        """A summary was taken that makes the window smaller by `gain`; a rest if that is too little."""
        if self._counted:
            return None
        self._answered_at = self._begun_at
        if gain < LEAST_GAIN:
            return self.failed(
                now, f"the compression gained {gain:.0%}, less than {LEAST_GAIN:.0%}"
            )
        self._rest = None
        return None

    def step_aside(self, now: datetime) -> None:
        """Another worker has the session's lease: planning again with every add would be for nothing."""
        self._aside_at = now

    def is_aside(self, clock: Callable[[], datetime]) -> bool:
        """Whether that was less than a second ago. A clock that went back ends it."""
        since = self._aside_at
        return since is not None and since <= clock() < since + ASIDE

    def rest(self, clock: Callable[[], datetime]) -> Rest | None:
        """The summarizer's rest that lasts now."""
        rest = self._rest
        return rest if rest is not None and rest.lasts(clock) else None

    def stages_failed(
        self, what: str, stages: Sequence[Step], now: datetime, reason: str, progress: Progress
    ) -> Rest:
        """The strategy came to no end, by the fault of a stage or of `redact`; `what` rests."""
        before = self._broken if stages == self._stages else None
        self._stages, self._broken_at = stages, progress
        self._broken = _longer(what, before, now, reason)
        return self._broken

    def stages_ran(self) -> None:
        """The strategy came to its end."""
        self._stages, self._broken, self._broken_at = (), None, None

    def stages_rest(
        self,
        stages: Sequence[Step],
        clock: Callable[[], datetime],
        progress: Progress,
        budget: Budget,
    ) -> Rest | None:
        """The rest of these stages that lasts now; another strategy has none."""
        rest = self._broken
        if rest is None or stages != self._stages or not rest.lasts(clock):
            return None
        return rest if rest.open or _lately(self._broken_at, progress, budget) else None

    def failed_lately(self, progress: Progress, budget: Budget) -> bool:
        """Whether too little was added since the last failure for another conversation."""
        return _lately(self._failed_at, progress, budget)

    def asked_lately(self, progress: Progress, budget: Budget) -> bool:
        """Whether too little was added since the last good answer to ask for another."""
        return _lately(self._answered_at, progress, budget)

    def tried_lately(self, progress: Progress, budget: Budget) -> bool:
        """Whether too little was added since preparing came to nothing to try it again."""
        return _lately(self.tried_at, progress, budget)


def _lately(before: Progress | None, now: Progress, budget: Budget) -> bool:
    return before is not None and not budget.fills_room(now[0] - before[0], now[1] - before[1])
