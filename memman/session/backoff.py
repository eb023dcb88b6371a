"""When a session's summarizer may be called and its strategy run again after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from memman.compression import Step
from memman.compression.summarize import MOST_PIECES, Parts
from memman.config import ROOM_SHARE, Budget
from memman.display import without_message
from memman.runtime.circuit_breaker import CircuitBreaker, Pause

FIRST_PAUSE: Final = timedelta(seconds=15)  # a limit per minute is often free again after that
LONGEST_PAUSE: Final = timedelta(minutes=5)  # so that a summarizer that is back is noticed soon
FAILURES_TO_OPEN: Final = 3
LEAST_GAIN: Final = 0.1  # of the window: with less, the next call comes before much is new
_YIELD: Final = timedelta(seconds=1)  # between two looks whether another worker still pays
_SUMMARIZER_PAUSES: Final = "the summarizer is paused"

Progress = tuple[int, int]
"""How much was added to a session so far: tokens and entries."""


class Rest(msgspec.Struct, frozen=True):
    """A pause after failures: what pauses (in words), how many failures in a row, why, until when."""

    what: str
    failures: int
    reason: str
    since: datetime
    until: datetime

    @property
    def open(self) -> bool:
        """Whether the breaker is open: not even a compression by hand calls before `until`."""
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
        sooner = "" if self.open else " or until enough was added"
        return f"{self.what} until {until}{sooner}{times} ({reason})"


class Backoff:
    """The failures of one session's summarizer and strategy, in this process. It survives an eviction.

    After a failure the summarizer is not called for 15 s, after the next one for 30 s, and so on up to
    5 minutes. The first two pauses also end when enough was added, or by hand; later ones end by time
    only. A compression that gained less than a tenth of the window counts as a failure. A call that could
    not be made counts as none and is put off for 15 s. The same holds for a strategy if a stage or
    `redact` failed: no add runs it during a pause, and a compression by hand always does.
    """

    __slots__ = (
        "_answered_at", "_began_at", "_calls", "_failed_at", "_failure", "_prepared_at",
        "_stages", "_stages_failed_at", "_stages_pause", "_strategy", "_yielded_at", "last_reason",
        "left_at", "parts", "summarizer", "truncates",
    )  # fmt: skip

    def __init__(self) -> None:
        self.summarizer: object = None  # whose failures these are
        self._calls = _breaker()
        self._began_at: Progress = (0, 0)  # the plan
        self._failure: Rest | None = None  # of this plan
        self._answered_at: Progress | None = None
        self._failed_at: Progress | None = None
        self._strategy = _breaker()
        self._stages: Sequence[Step] = ()  # those that failed
        self._stages_pause = ""  # what pauses because of them
        self._stages_failed_at: Progress | None = None
        self._prepared_at: Progress | None = None  # early, to no avail
        self._yielded_at: datetime | None = None
        self.left_at: Progress = (0, 0)  # when the session was evicted
        self.truncates = False  # its last summary was too long even after a second request
        self.parts = Parts(MOST_PIECES[0])  # of summaries that failed as a whole
        self.last_reason = ""  # of the last compression's result

    # ------------------------------------------------------------ the summarizer

    def begin(self, summarizer: object, progress: Progress) -> None:
        """Begin a plan: its failing calls are one failure. Another summarizer has no failures."""
        self._failure, self._began_at = None, progress
        if summarizer is not self.summarizer:
            self.summarizer, self._answered_at = summarizer, None
            self._calls.record_success()
            self.truncates = False
            self.parts.clear()

    def record_failure(self, now: datetime, reason: str) -> Rest:
        """Count a plan for which the summarizer gave nothing useful."""
        if self._failure is None:
            pause = self._calls.record_failure(now.timestamp(), reason)
            assert pause is not None  # noqa: S101 - no failure is tolerated
            self._failure, self._failed_at = _rest(_SUMMARIZER_PAUSES, pause), self._began_at
        return self._failure

    def postpone(self, now: datetime, reason: str) -> Rest:
        """Put off the next call because one could not be made; that is not a failure."""
        if self._failure is None:
            pause = self._calls.postpone(now.timestamp(), reason)
            self._failure, self._failed_at = _rest(_SUMMARIZER_PAUSES, pause), self._began_at
        return self._failure

    def record_summary(self, gain: float, now: datetime) -> Rest | None:
        """Close the breaker after a summary that makes the window smaller by `gain`, if that is enough."""
        if self._failure is not None:
            return None
        self._answered_at = self._began_at
        if gain < LEAST_GAIN:
            reason = f"the compression gained {gain:.0%}, less than {LEAST_GAIN:.0%}"
            return self.record_failure(now, reason)
        self._calls.record_success()
        return None

    def record_length(self, *, truncated: bool) -> None:
        """Note whether the last summary had to be cut."""
        self.truncates = truncated

    def rest(self, now: datetime) -> Rest | None:
        """Return the summarizer's pause in effect."""
        pause = self._calls.pause(now.timestamp())
        return None if pause is None else _rest(_SUMMARIZER_PAUSES, pause)

    def failed_recently(self, progress: Progress, budget: Budget) -> bool:
        """Whether too little was added since the last failure to call again."""
        return is_recent(self._failed_at, progress, budget)

    def answered_recently(
        self, progress: Progress, budget: Budget, share: float = ROOM_SHARE
    ) -> bool:
        """Whether less than this share of the room was added since the last good answer."""
        return is_recent(self._answered_at, progress, budget, share)

    # ------------------------------------------------------------ the strategy

    def record_stage_failure(
        self, what: str, stages: Sequence[Step], now: datetime, reason: str, progress: Progress
    ) -> None:
        """Count a strategy that failed, by the fault of a stage or of `redact`; `what` pauses."""
        if stages != self._stages:
            self._strategy.record_success()
        self._stages, self._stages_pause, self._stages_failed_at = stages, what, progress
        self._strategy.record_failure(now.timestamp(), reason)

    def record_stages(self) -> None:
        """Close the breaker of the strategy: it ran to its end."""
        self._stages, self._stages_failed_at = (), None
        self._strategy.record_success()

    def stages_rest(
        self, stages: Sequence[Step], now: datetime, progress: Progress, budget: Budget
    ) -> Rest | None:
        """Return the pause in effect of these stages; another strategy has none."""
        pause = self._strategy.pause(now.timestamp()) if stages == self._stages else None
        if pause is None:
            return None
        rest = _rest(self._stages_pause, pause)
        return rest if rest.open or is_recent(self._stages_failed_at, progress, budget) else None

    # ------------------------------------------------------------ other workers, background, eviction

    def yield_to_other(self, now: datetime) -> None:
        """Plan no more for a second: another worker has the session's lease."""
        self._yielded_at = now

    def has_yielded(self, now: datetime) -> bool:
        """Whether that second lasts. A clock that went back ends it."""
        since = self._yielded_at
        return since is not None and since <= now < since + _YIELD

    def record_futile(self, progress: Progress) -> None:
        """Note that an early compression changed nothing."""
        self._prepared_at = progress

    def was_futile_recently(self, progress: Progress, budget: Budget) -> bool:
        """Whether too little was added since then to compress early again."""
        return is_recent(self._prepared_at, progress, budget)

    def record_reason(self, reason: str) -> None:
        """Keep the reason of the last compression's result."""
        self.last_reason = reason

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to remember: no compression was tried."""
        tried = self.summarizer or self._stages or self._prepared_at or self._yielded_at
        return not (tried or self.last_reason)

    def leave(self, progress: Progress) -> None:
        """Note the session's progress when it is evicted."""
        self.left_at = progress


def _breaker() -> CircuitBreaker:
    return CircuitBreaker(FIRST_PAUSE.total_seconds(), LONGEST_PAUSE.total_seconds())


def _rest(what: str, pause: Pause) -> Rest:
    since, until = (datetime.fromtimestamp(at, UTC) for at in (pause.since, pause.until))
    return Rest(what, pause.failures, pause.reason, since, until)


def is_recent(
    before: Progress | None, now: Progress, budget: Budget, share: float = ROOM_SHARE
) -> bool:
    """Return whether less than this share of the room was added since; False without a `before`."""
    if before is None:
        return False
    return not budget.fills_room(now[0] - before[0], now[1] - before[1], share)
