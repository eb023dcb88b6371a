"""Driving a compression's plan: what it asks for is fetched, and who answers badly is left alone.

The summarizer is asked outside every lock and transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from typing import Any, cast

import msgspec

from memman import events
from memman.compression import (
    UNKNOWN_WINDOW,
    Goal,
    OriginalsWanted,
    SummaryFailure,
    SummaryOptions,
    SummaryProblem,
    View,
    make_plan,
)
from memman.display import format_error, without_message
from memman.entries import Entry
from memman.errors import InvalidInput
from memman.protocols import SummaryReply, SummaryRequest, SummaryUsage
from memman.records import NO_COST, Added, Compressed, Cost
from memman.runtime import SummarizerBusy
from memman.session.backoff import Backoff, Rest
from memman.session.lease import Lease
from memman.session.live import LiveWindow
from memman.session.reasons import Unasked
from memman.summarizers import Asker
from memman.window import WindowItem

logger = logging.getLogger("memman")
# Apart, so that one who tells of the event need not tell this too.
summary_logger = logging.getLogger("memman.summaries")

_MOST_TIMEOUTS = 10  # that the calls of one compression, as of a summary in pieces, may take in all


class RedactFailed(Exception):
    """The material of a summary could not be redacted; the message says why."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a compression; `automatic` if an add made it."""

    target_tokens: int | None = None
    focus: str | None = None
    summarize: bool | None = None
    automatic: bool = False


AUTOMATIC = Wanted(automatic=True)


class Attempt(msgspec.Struct, frozen=True):
    """What a compression sets out from: the window, the goal, and who may be asked."""

    view: View
    goal: Goal
    options: SummaryOptions
    epoch: int
    summarizer: Asker | None
    unasked: Unasked


class Outcome(msgspec.Struct, frozen=True):
    """What a plan made: the view, what it cost, and the last problem of the summarizer."""

    view: View
    cost: Cost
    problem: str


class Asking(LiveWindow):
    """Asks for the summaries that a plan wants, and knows how its summarizer has done."""

    __slots__ = ()

    @property
    def pace(self) -> Backoff:
        """What this session knows of its summarizer: whether it rests, and how it went last."""
        if self._pace is None:
            with self._thread_lock:
                self._pace = self._pace or Backoff()
        return self._pace

    def leave(self) -> Backoff | None:
        """What it knows of its summarizer, for the session that is loaded in its place one day."""
        if self._pace is not None:
            self._pace.left_at = self._progress
        return self._pace

    def resume(self, pace: Backoff) -> None:
        """Goes on with what was known of the summarizer when the session was unloaded."""
        self._pace = pace
        self._go_on(pace.left_at)

    async def _carried_out(self, attempt: Attempt, lease: Lease | None) -> Outcome:
        """Drives the plan: waits for summaries, tells of problems.

        Raises `LeaseHeld` or `WindowMoved` where nothing may be paid for it here and now.
        """
        shared, pace, summarizer = self._shared, self.pace, attempt.summarizer
        own = None if summarizer is None else summarizer.max_input_tokens
        options = msgspec.structs.replace(
            attempt.options,
            window=self._config.summarizer_window or own or UNKNOWN_WINDOW,
            prompt=self._config.summary_prompt,
            redact=None if shared.redact is None else self._clean,
            wordy=pace.wordy,
            parts=pace.parts,
        )
        plan = make_plan(
            attempt.view,
            attempt.goal,
            shared.make_entry(self._meter),
            self._settled.stages,
            options,
        )
        cost, clipped, problem = Cost(), False, ""
        answer: Any = None
        while True:
            try:
                wanted = plan.send(answer)
            except StopIteration as end:
                if cost.calls:
                    pace.wordy = clipped
                return Outcome(end.value, cost, problem)
            if isinstance(wanted, SummaryProblem):
                clipped = clipped or wanted.clipped
                problem = wanted.reason
                # A clipped reply, say, is worth telling and no reason to leave the summarizer alone.
                rest = pace.failed(shared.clock(), wanted.reason) if wanted.failed else None
                if wanted.unasked:
                    rest = pace.rest(shared.clock)  # if it was put off
                self.notice(
                    failure_notice(self.id, wanted.reason, wanted.fallback, rest, self._spent)
                )
                # A provider's error may quote the conversation, which is for no log.
                kind = without_message(wanted.reason)
                summary_logger.warning(
                    "summary of session %s: %s (see compression_failed)", self.id, kind
                )
                await self._drain()
                answer = None
            elif isinstance(wanted, OriginalsWanted):
                answer = await self._originals(wanted.window_items)
            elif cost.seconds > _MOST_TIMEOUTS * (self._config.summarize_timeout or inf):
                answer = SummaryFailure(f"its {cost.calls} calls took {cost.seconds:.0f} s in all")
            else:
                if lease is not None:
                    await lease.take(attempt.epoch, self._config.summarize_timeout)
                answer, took = await self._summary(cast("Asker", summarizer), wanted)
                cost = cost.plus(took)

    def _clean(self, entry: Entry) -> Entry:
        """The entry as `redact` leaves it: it may come from an import, or from another manager."""
        outcome = (
            "nothing was changed, since nobody summarises what redact has not seen to its end "
            f"(entry {entry.id}): mend the function that is given as redact"
        )
        try:
            return self._shared.redacted(entry, outcome)
        except InvalidInput as error:
            raise RedactFailed(str(error)) from None

    async def _originals(self, items: Sequence[WindowItem]) -> list[tuple[Entry, ...]]:
        """The added entries that stubs or clipped entries stand for, as the store has them."""
        added: dict[str, Entry] = {}
        stands_for: dict[str, tuple[str, ...]] = {}
        asked = [slot.entry.id for slot in items]
        while asked:
            wanted, asked = asked, []
            for seq, record in await self._get(wanted):
                if isinstance(record, Added):
                    added[record.id] = msgspec.structs.replace(record.entry, seq=seq)
                elif isinstance(record, Compressed):
                    for item in record.replacements:
                        if item.entry is not None and item.entry.id in wanted:
                            stands_for[item.entry.id] = item.ids
                            asked += item.ids

        def originals(entry_id: str) -> list[Entry]:
            if entry_id in added:
                return [added[entry_id]]
            return [one for name in stands_for.get(entry_id, ()) for one in originals(name)]

        return [tuple(originals(slot.entry.id)) for slot in items]

    async def _summary(
        self, summarizer: Asker, request: SummaryRequest
    ) -> tuple[SummaryReply | SummaryFailure, Cost]:
        """Asks the summarizer, and notes at once what that took, however it ends."""
        began = self._shared.clock()
        answer: SummaryReply | SummaryFailure = SummaryFailure("the call was interrupted")
        try:
            answer = await self._asked(summarizer, request)
        finally:
            took = _cost(answer, (self._shared.clock() - began).total_seconds())
            self._spent = self._spent.plus(took)
        return answer, took

    async def _asked(
        self, summarizer: Asker, request: SummaryRequest
    ) -> SummaryReply | SummaryFailure:
        """Asks the summarizer, outside every lock and transaction."""
        request = msgspec.structs.replace(request, timeout=self._config.summarize_timeout)
        try:
            reply = await self._shared.runtime.ask(
                lambda: summarizer.summarize(request),
                self._config.summarize_timeout,
                summarizer.is_async,
            )
        except SummarizerBusy as error:
            self.pace.put_off(self._shared.clock(), str(error))
            return SummaryFailure(str(error), unasked=True)
        except Exception as error:
            logger.debug("summarizer failed", exc_info=True)
            return SummaryFailure(format_error(error))
        except BaseException:
            # Whoever waited gave up, and the call was paid for: the next one is not made at once.
            self.pace.failed(self._shared.clock(), "the call was interrupted")
            raise
        if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
            return SummaryFailure(f"the summarizer returned {type(reply).__name__}, not text")
        return reply


def _cost(answer: SummaryReply | SummaryFailure, seconds: float) -> Cost:
    """What one call of the summarizer cost, whether it answered or failed; nothing if it was not made."""
    if isinstance(answer, SummaryFailure) and answer.unasked:
        return NO_COST
    reply = answer if isinstance(answer, SummaryReply) else None
    usage = (reply.usage if reply else None) or SummaryUsage()
    model = reply.model if reply else None
    return Cost(1, seconds, usage.input_tokens, usage.output_tokens, model)


def failure_notice(
    session_id: str, reason: str, fallback: str, rest: Rest | None, cost: Cost
) -> events.CompressionFailedNotice:
    """What is told of a failure; `rest` says until when the summarizer is left alone."""
    return events.CompressionFailedNotice(
        session_id=session_id,
        reason=reason,
        fallback=fallback,
        failures=rest.failures if rest else 0,
        retry_at=rest.until if rest else None,
        cost=cost,
    )
