"""Compressing one session: run the plan, call the summarizer, commit the result.

`policy` decides when, `memman.compression` has the plan as pure functions.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import msgspec

from memman import events
from memman.compression import Goal, View
from memman.compression.plan import describe, make_plan, replacements_of, view_of_plan
from memman.compression.summarize import (
    UNKNOWN_WINDOW,
    Answer,
    OriginalsWanted,
    Request,
    SummaryFailed,
    SummaryFailure,
    SummaryProblem,
)
from memman.compression.withdraw import withdrawn
from memman.display import format_error, without_message
from memman.entries import Entry
from memman.errors import (
    CompressionFailed,
    InvalidInput,
    MemmanError,
    Refused,
    StoreConflict,
    StoreError,
)
from memman.events import CompressionPlan
from memman.log import History
from memman.protocols import SummaryReply, SummaryRequest
from memman.records import NO_COST, Compressed, Cost, ids_moved_by
from memman.runtime.base import SummarizerBusy
from memman.runtime.observation import Operation, observed
from memman.session.backoff import Backoff, Rest
from memman.session.compactions import COMPACTED, with_compaction
from memman.session.context import ContextBuilder
from memman.session.lease import Lease, LeaseHeld, WindowMoved
from memman.session.log import SessionLog
from memman.session.lookup import originals_of
from memman.session.outbox import Outbox
from memman.session.policy import AUTOMATIC, CompressionPolicy, CompressionRequest
from memman.session.reasons import why_hopeless, why_kept
from memman.session.run import CompressionRun, RunInput
from memman.session.settings_price import price_of_settings
from memman.session.shared import Shared
from memman.session.state import NextState, turns_so_far
from memman.state import State
from memman.summarizers import Asker

logger = logging.getLogger("memman")
# A logger of its own, so that handlers of the event can silence these messages.
summary_logger = logging.getLogger("memman.summaries")

_REPLANS = 2  # after the window changed its shape during a compression
_LOOKS = 3  # at the room that a plan leaves
_COMMITS = 5  # of the same plan, after another process was faster
_STAYS = "what is left is pinned, waits for a result, is the newest exchange, or is cut as far as it can be"
_ANOTHER_RUNS = "another compression of this session is running"
_ANOTHER_PAYS = "another worker is summarizing this session; this one will read the result"
_CLOSED = "the manager was closed; nothing was changed"
# The compressions that this thread or task is part of. A task that a summarizer starts inherits them.
_compressing: ContextVar[frozenset[object]] = ContextVar("compressing", default=frozenset())


class RedactFailed(Exception):
    """The material of a summary could not be redacted; the message has the reason."""


class Compressor:
    """Brings a session's window down to its target, one compression at a time."""

    __slots__ = (
        "_held_back", "_lock", "_log", "_outbox", "_planned", "_preparing", "_running", "_shared",
        "_spent", "policy",
    )  # fmt: skip

    def __init__(
        self, shared: Shared, log: SessionLog, outbox: Outbox, contexts: ContextBuilder
    ) -> None:
        self._shared = shared
        self._log = log
        self._outbox = outbox
        self.policy = CompressionPolicy(shared, log, contexts)
        self._lock = shared.runtime.lock()  # held by the running compression
        self._running: object | None = None
        self._preparing = False  # in the background
        self._spent: Cost = NO_COST  # by the running compression
        self._planned: NextState | None = None  # of its summary's prompt
        self._held_back = False  # the last compression, by a receiver of `compressing`

    @property
    def is_running(self) -> bool:
        """Whether a compression is under way, also in the background."""
        return self._running is not None or self._preparing

    @property
    def is_idle(self) -> bool:
        """Whether no compression runs or waits."""
        return not self.is_running and self._lock.is_free()

    def leave(self) -> Backoff:
        """Return the failures so far, for the session that is loaded in this one's place."""
        self.policy.backoff.leave(self._log.progress)
        return self.policy.backoff

    def forget_parts(self) -> None:
        """Drop summaries of parts that failed as a whole: their entries are gone."""
        self.policy.backoff.parts.clear()

    # ------------------------------------------------------------ after an add

    async def after_add(self, request: CompressionRequest) -> None:
        """Compress after an add: at once or in the background. Failures do not reach the caller."""
        if not self._log.resolved.config.background:
            result = await self._compress_quietly(request)
            if request.expired_at and (result is None or result.compression_id is None):
                self.policy.backoff.record_futile(self._log.progress)
        elif not self._preparing:
            self._preparing = True
            if not self._shared.runtime.start_background(self._prepare):
                self._preparing = False

    async def _prepare(self) -> None:
        """Compress in the background; repeat if new entries make it due again."""
        while True:
            try:
                result = await self._compress_quietly(AUTOMATIC)
            finally:
                self._preparing = False
            if result is None or result.compression_id is None:
                self.policy.backoff.record_futile(self._log.progress)
                return
            # An add before this line left its compression to this run; one after it starts its own.
            if self._preparing or not self.policy.is_due():
                return
            self._preparing = True

    async def _compress_quietly(
        self, request: CompressionRequest
    ) -> events.CompressionResult | None:
        try:
            return await self.compress(request)
        except Exception as error:
            if isinstance(error, MemmanError) and not isinstance(error, StoreError):
                logger.warning(
                    "the automatic compression of session %s failed with %s (see compression_failed)",
                    self._log.id,
                    type(error).__name__,
                )
                reason, rest = str(error), self.policy.stages_rest()
                fallback = "nothing was changed"
            else:  # of a store: the next method raises it to the caller
                logger.exception("the automatic compression of session %s failed", self._log.id)
                reason, rest = format_error(error), None
                fallback = "the next call reads the session's store again"
            self.policy.backoff.record_reason(reason)
            await self._outbox.emit(self._failure(reason, fallback, rest, NO_COST))
        return None

    # ------------------------------------------------------------ one at a time

    async def compress(self, request: CompressionRequest) -> events.CompressionResult:
        """Compress the window; one compression at a time per session."""
        outer = _compressing.get()
        # Called by the summarizer or a receiver of this very compression, unless that was interrupted.
        if self._running in outer and not self._lock.is_free():
            return self._nothing(_ANOTHER_RUNS)
        if not request.automatic:
            await self._lock.__aenter__()
        elif not await self._lock.try_enter():
            return self._nothing(_ANOTHER_RUNS)
        self._running = running = object()
        token = _compressing.set(outer | {running})
        lease = Lease(self._shared, self._log.id)
        try:
            try:
                operation = Operation(
                    kind="compress",
                    session_id=self._log.id,
                    method="automatic" if request.automatic else "manual",
                    model=self._log.resolved.config.model,
                )
                work = self._announced(request, lease)
                result = await observed(self._shared.runtime.observer, operation, work)
            finally:
                await lease.give_back()
        except LeaseHeld:
            self.policy.backoff.yield_to_other(self._shared.clock())
            result = self._nothing(_ANOTHER_PAYS)
        except MemmanError as error:
            self.policy.backoff.record_reason(str(error))
            raise
        finally:
            self._running = None
            _compressing.reset(token)
            self._lock.release()
        self.policy.backoff.record_reason(result.reason)
        await self._outbox.flush()
        return result

    async def _announced(
        self, request: CompressionRequest, lease: Lease
    ) -> events.CompressionResult:
        """Emit `compressing` before a compression, and follow its receivers' instructions."""
        if not events.compressing.has_receivers_for(self._shared.sender):  # the plan is theirs
            return await self._compress(request, lease)
        await self._outbox.flush()
        with self._watched_strategy():
            plan = await self.plan(request)
        event = events.Compressing(session_id=self._log.id, plan=plan, automatic=request.automatic)
        if any(each.action != "keep" for each in plan.entries):
            await events.emit(self._shared.sender, event, self._shared.runtime.await_receiver)
        self._held_back = bool(event.held) and not self._held_back
        if self._held_back:
            return self._nothing(f"held back by a receiver of compressing: {event.held[0]}")
        redacted = self._shared.redacted_focus
        focus = redacted("; ".join(event.focus) or None) or request.focus
        keep = tuple(filter(None, map(redacted, event.keep)))
        request = msgspec.structs.replace(request, focus=focus, keep=keep)
        return await self._compress(request, lease)

    async def _compress(
        self, request: CompressionRequest, lease: Lease
    ) -> events.CompressionResult:
        """Plan, answer the plan's requests outside the log's lock, and commit."""
        self._spent, self._planned = NO_COST, None
        recent = request.automatic and self.policy.has_answered_recently(request.room_share)
        for _ in range(1 + _REPLANS):
            run = await self._begin(request, recent)
            if isinstance(run, events.CompressionResult):
                return run
            try:
                with self._watched_strategy():
                    for wanted in run.requests():
                        if isinstance(wanted, OriginalsWanted):
                            run.answer(await originals_of(wanted.window_items, self._log.reader))
                        elif isinstance(wanted, SummaryProblem):
                            await self._report(wanted)
                        elif (summarizer := run.given.summarizer) is not None:
                            await lease.take(run.given.epoch, wanted.timeout)
                            with self._charged(run):
                                run.answer_summary(await self._summary(summarizer, wanted))
            except WindowMoved:
                continue
            except SummaryFailed as error:
                return self._given_up(f"the summary failed: {error}", request)
            result = await self._commit(run, request)
            if result is not None:
                return result
        return self._nothing("the window changed shape each time; try again", self._spent)

    async def _summary(self, summarizer: Asker, wanted: SummaryRequest) -> SummaryReply:
        """Call the summarizer."""
        runtime = self._shared.runtime
        operation = Operation(
            kind="summarize",
            session_id=self._log.id,
            model=summarizer.model,
            port=summarizer.port,
            request=wanted,
        )
        call = partial(summarizer.summarize, wanted)
        work = runtime.call_summarizer(call, wanted.timeout, summarizer.is_async)
        return await observed(runtime.observer, operation, work)

    async def _begin(
        self, request: CompressionRequest, recent: bool
    ) -> CompressionRun | events.CompressionResult:
        """Return a run on the window as it is now, or a result with the reason why nothing is done."""
        log, automatic = self._log, request.automatic
        async with log.lock:
            if self._shared.closed:
                return self._nothing(_CLOSED)
            await log.require()
            if automatic and not self.policy.due():
                return self._nothing("within the limits")
            if automatic and self.policy.backoff.has_yielded(self._shared.clock()):
                return self._nothing(_ANOTHER_PAYS)
            if automatic and (pause := self.policy.stages_rest()):
                return self._nothing(f"nothing was changed: {pause}")
            given, rest = self.policy.input(request, recent)
            if rest is not None and not given.options.write:
                return self._given_up(str(rest), request)
            if hopeless := why_hopeless(log.window.pinned_tokens, given.goal):
                self._notify_over_budget(given.tokens, given.goal, hopeless)
                return self._nothing(f"nothing was changed: {hopeless}")
            self.policy.backoff.begin(given.summarizer, log.progress)
            timeout = log.resolved.config.summarize_timeout
            return CompressionRun(given, self._plan(given), timeout)

    def _plan(self, given: RunInput) -> Generator[Request, Answer, View]:
        resolved = self._log.resolved
        config, summarizer = resolved.config, given.summarizer
        own = None if summarizer is None else summarizer.max_input_tokens
        live = self.policy.live_prefix(summarizer) if given.options.ask else None
        options = msgspec.structs.replace(
            given.options,
            window=config.summarizer_window or own or UNKNOWN_WINDOW,
            prompt=config.summary_prompt,
            redact=None if self._shared.redact is None else self._redacted,
            truncates=self.policy.backoff.truncates,
            parts=self.policy.backoff.parts,
            prefix=live,
            outline=partial(self._outline_beside, given.goal),
            so_far=turns_so_far(self._log.window, resolved.counter),
        )
        factory = self._shared.make_entry(resolved.counter)
        return make_plan(given.view, given.goal, factory, resolved.stages, options)

    def _outline_beside(self, goal: Goal, planned: View) -> str:
        """Return the text of the outline that will stand with the summary of a planned view."""
        self._planned = self._next_state(planned, goal)
        state = self._planned.of(self._log.window)
        return "" if state is None else state.text

    def _redacted(self, entry: Entry) -> Entry:
        """Redact an entry once more: it may come from an import or from another manager."""
        outcome = (
            f"nothing was changed, because only redacted entries are summarized (entry {entry.id}): "
            "fix the function passed as redact"
        )
        try:
            return self._shared.redacted(entry, outcome)
        except InvalidInput as error:
            raise RedactFailed(str(error)) from None

    @contextmanager
    def _charged(self, run: CompressionRun) -> Iterator[None]:
        """Add up the cost of a call of the summarizer, however it ends; an error becomes its answer."""
        began = self._shared.clock()
        run.answer(SummaryFailure("the call was interrupted"))
        try:
            yield
        except SummarizerBusy as error:
            self.policy.backoff.postpone(self._shared.clock(), str(error))
            run.answer(SummaryFailure(str(error), unasked=True))
        except Exception as error:
            logger.debug("summarizer failed", exc_info=True)
            reason, asker = format_error(error), run.given.summarizer
            # A fault of the caller's program, whose message does not quote the conversation.
            if asker and not asker.is_object and isinstance(error, AttributeError | TypeError):
                reason += " (a function gets a str, the prompt)"
                summary_logger.warning("summarizer of session %s: %s", self._log.id, reason)
            run.answer(SummaryFailure(reason))
        except BaseException:
            # The caller gave up on a call that was paid for: the next one is not made at once.
            self.policy.backoff.record_failure(self._shared.clock(), "the call was interrupted")
            raise
        finally:
            seconds = (self._shared.clock() - began).total_seconds()
            cost = run.charge(seconds, self._shared.prices)
            self._spent = self._spent.plus(cost)
            self._log.owe(cost)

    async def _report(self, problem: SummaryProblem) -> None:
        """Emit and log a problem of the summarizer."""
        now, rest = self._shared.clock(), None
        if problem.failed:  # a reply that was cut, for example, did not fail
            rest = self.policy.backoff.record_failure(now, problem.reason)
        if problem.unasked:
            rest = self.policy.backoff.rest(now)  # if it was put off
        # A provider's error may quote the conversation, so the log gets its kind alone.
        kind = without_message(problem.reason)
        summary_logger.warning(
            "summary of session %s: %s (see compression_failed)", self._log.id, kind
        )
        await self._outbox.emit(self._failure(problem.reason, problem.fallback, rest, self._spent))

    def _given_up(self, why: str, request: CompressionRequest) -> events.CompressionResult:
        """Return the result of a compression without a summary and without a substitute for it."""
        reason = f"nothing was changed: {why}"
        if self._log.resolved.config.on_failure == "raise" and not request.automatic:
            raise CompressionFailed(reason)
        return self._nothing(reason, self._spent)

    @contextmanager
    def _watched_strategy(self) -> Iterator[None]:
        """Pause the strategy if a stage or `redact` fails."""
        try:
            yield
        except CompressionFailed as error:
            self._pause_strategy("the strategy is paused", str(error))
            raise
        except RedactFailed as error:
            self._pause_strategy("no add compresses", str(error))
            raise CompressionFailed(str(error)) from None

    def _pause_strategy(self, what: str, reason: str) -> None:
        now, stages = self._shared.clock(), self._log.resolved.stages
        self.policy.backoff.record_stage_failure(what, stages, now, reason, self._log.progress)

    # ------------------------------------------------------------ the commit

    async def adopt(self, source: Entry, upto: int) -> Compressed | None:
        """Put a provider's compaction in place of the window up to a position.

        Returns None if nothing is there, or if the window changed its shape each time.
        """
        for _ in range(1 + _REPLANS):
            async with self._log.lock:
                await self._log.require()
                given, _ = self.policy.input(CompressionRequest(), False)
            copy = self._shared.new_id(), self._shared.clock()
            after = with_compaction(given.view, source, upto, *copy)
            if after.entries == given.view.entries:
                return None
            record = self._record(given, after, COMPACTED)
            with self._watched_strategy():
                next_state = self._next_state(after, given.goal)
            if (made := await self._committed(record, given.view, next_state)) is not None:
                self.policy.backoff.parts.clear()
                await self._outbox.flush()
                _log_result(events.result_of(self._log.id, made))
                return made
        return None

    def _record(self, given: RunInput, after: View, reason: str) -> Compressed:
        return Compressed(
            id=self._shared.new_id(),
            at=self._shared.clock(),
            replacements=replacements_of(after),
            reason=reason,
            tokens_before=given.tokens,
            tokens_after=after.tokens,
            cost=self._log.unrecorded,  # plans that came to nothing were paid for too
            settings=self._log.resolved.observed,
        )

    async def _commit(
        self, run: CompressionRun, request: CompressionRequest
    ) -> events.CompressionResult | None:
        """Commit the view of a run, and return the result; None if its entries are gone."""
        with self._watched_strategy():
            after, next_state = self._filled(run.given, run.after)
        self.policy.backoff.record_stages()
        run.settle(after, self._outline_tokens(next_state))
        given, rest = run.given, None
        if run.cost.calls:
            self.policy.backoff.record_length(truncated=run.truncated)
            gain = _gain(given.view, after, given.goal)
            rest = self.policy.backoff.record_summary(gain, self._shared.clock())
        replacements = replacements_of(after)
        if not replacements:
            if not given.goal.within_limit(given.view):
                self._notify_over_budget(given.tokens, given.goal, run.never or _STAYS)
            return self._nothing(run.why_nothing(), self._spent)
        trigger = self.policy.why_due(given, request)
        planned = self._record(given, after, run.reason(trigger, replacements))
        record = await self._committed(planned, given.view, next_state)
        if record is None:
            return None
        self.policy.backoff.parts.clear()
        if rest is not None:
            self._notify_of_flaw(rest.reason, rest, record)
        if hidden := next_state.hidden_constraints(record.state):
            reason = f"{hidden} of the declared constraints do not fit the outline: pin them"
            self._notify_of_flaw(reason, None, record)
        if not given.goal.within_limit(after):
            self._notify_over_budget(record.tokens_after, given.goal)
        result = events.result_of(self._log.id, record)
        _log_result(result)
        return result

    def _filled(self, given: RunInput, after: View) -> tuple[View, NextState]:
        """Return a view with the originals that fit with the outline, and what makes the outline."""
        goal, factory = given.goal, self._shared.make_entry(self._log.resolved.counter)
        next_state = self._next_state(after, goal)
        for _ in range(_LOOKS):  # an outline of fewer entries may be shorter
            outline = self._outline_tokens(next_state)
            room = goal.tokens + goal.state_tokens - after.tokens - outline
            filled = withdrawn(given.view, after, goal, room, factory)
            if filled.tokens == after.tokens:
                break
            after, next_state = filled, self._next_state(filled, goal)
        return after, next_state

    def _outline_tokens(self, next_state: NextState) -> int:
        state = next_state.of(self._log.window)
        return 0 if state is None else state.token_count.tokens

    def _notify_of_flaw(self, reason: str, rest: Rest | None, record: Compressed) -> None:
        self._outbox.notify(self._failure(reason, "the compression stands", rest, record.cost))

    def _next_state(self, after: View, goal: Goal) -> NextState:
        counter = self._log.resolved.counter
        budget = self._log.resolved.budget
        memory = budget.state_tokens and budget.state_tokens + budget.summary_tokens
        # The outline that the prompt has shown is the one that stays.
        if self._planned is not None and self._planned.is_for(after, goal):
            return self._planned
        return NextState(after, goal, self._redacted, counter, self._shared, memory)

    async def _state_of(self, next_state: NextState, compression_id: str) -> State | None:
        window, covered = self._log.window, None
        if window.state is not None and window.state.state.covered is None:
            history = History.of(await self._log.era())
            covered = history.covered(self._shared.recall_name(self._log.id))
        with self._watched_strategy():
            state = next_state.of(window, covered)
        if state is not None:
            state = msgspec.structs.replace(state, compression_id=compression_id)
            self._shared.remember(state)
        return state

    async def _committed(
        self, record: Compressed, before: View, next_state: NextState
    ) -> Compressed | None:
        """Commit a record if its replaced entries are still active, unpinned and in one run; else None.

        Its tokens and its outline become those of the window in which it lands: that may have changed
        in the meantime.
        """
        log = self._log
        seqs = {
            each.entry.id: each.entry.seq for group in before.groups for each in group.window_items
        }
        for _ in range(_COMMITS):
            async with log.lock:
                if self._shared.closed:
                    return None
                await log.refresh()
                state_after = await self._state_of(next_state, record.id)
                record = msgspec.structs.replace(record, state=state_after)
                try:
                    state = log.after(record)
                except Refused:
                    return None
                found = filter(None, map(log.window.find, ids_moved_by(record)))
                if any(each.entry.seq != seqs[each.entry.id] for each in found):
                    return None  # an entry was retracted or cleared, and another has its id now
                record = msgspec.structs.replace(
                    record, tokens_before=log.window.tokens, tokens_after=state.window.tokens
                )
                try:
                    await log.commit(record, state)
                except StoreConflict:
                    continue  # another process was faster: the same plan, on the window as it is now
                return record
        return None

    # ------------------------------------------------------------ what to do

    async def plan(self, request: CompressionRequest) -> CompressionPlan:
        """Return what `compress` would do now. Calls no summarizer and changes nothing."""
        log = self._log
        async with log.lock:
            await log.require()
            recent = request.automatic and self.policy.has_answered_recently(request.room_share)
            given, rest = self.policy.input(request, recent)
            hopeless = why_hopeless(log.window.pinned_tokens, given.goal)
        view, goal, options = given.view, given.goal, given.options
        after, unchanged = view, hopeless or ("" if rest is None or options.write else str(rest))
        if not unchanged:
            dry = msgspec.structs.replace(options, dry_run=True)
            after = view_of_plan(self._plan(msgspec.structs.replace(given, options=dry)))
            after, next_state = self._filled(given, after)
        tokens_after, block = given.tokens, given.tokens - view.tokens
        if replacements_of(after):
            block = self._outline_tokens(next_state)
            tokens_after = min(given.tokens, after.tokens + block)
        why_old = unchanged or why_kept(after, goal, log.resolved.stages)
        tokens = given.tokens, tokens_after, block
        plan = describe(log.id, view, after, tokens, goal, options.ask, why_old)
        return msgspec.structs.replace(plan, bill=price_of_settings(log.resolved.config))

    # ------------------------------------------------------------ reasons

    def _nothing(self, reason: str, cost: Cost = NO_COST) -> events.CompressionResult:
        tokens = self._log.window.tokens
        return events.CompressionResult(
            session_id=self._log.id,
            compression_id=None,
            tokens_before=tokens,
            tokens_after=tokens,
            reason=reason,
            cost=cost,
        )

    def _notify_over_budget(self, tokens: int, goal: Goal, reason: str = _STAYS) -> None:
        limit = goal.limit + goal.state_tokens
        event = events.OverBudget(
            session_id=self._log.id, tokens=tokens, max_tokens=limit, reason=reason
        )
        self._outbox.notify(event)

    def _failure(
        self, reason: str, fallback: str, rest: Rest | None, cost: Cost
    ) -> events.CompressionFailedNotice:
        """Return the event of a failure; `rest` has until when the summarizer or the strategy pauses."""
        return events.CompressionFailedNotice(
            session_id=self._log.id,
            reason=reason,
            fallback=fallback,
            failures=rest.failures if rest else 0,
            retry_at=rest.until if rest else None,
            cost=cost,
        )


def _gain(before: View, after: View, goal: Goal) -> float:
    """Return the share of the window's tokens that goes; of its entries if only they are over."""
    most = goal.budget.max_entries
    if most is not None and before.entries > most and before.tokens <= goal.limit:
        return 1 - after.entries / before.entries
    return 1 - after.tokens / before.tokens if before.tokens else 0.0


def _log_result(result: events.CompressionResult) -> None:
    """Log a one-line summary of a compression without any content."""
    if logger.isEnabledFor(logging.INFO):
        methods = ", ".join(dict.fromkeys(item.method for item in result.replacements))
        logger.info(
            "session %s: %d entries compressed, %d -> %d tokens (%s)",
            result.session_id, len(result.replaced_ids), result.tokens_before, result.tokens_after,
            methods,
        )  # fmt: skip
