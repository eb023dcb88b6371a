"""Compressing one session: when it is due, what the summarizer may be asked, and the commit.

The decisions are pure functions of `memman.compression`; this module carries them out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import msgspec

from memman import events
from memman.compression import (
    UNKNOWN_WINDOW,
    CompressionPlan,
    Goal,
    OriginalsWanted,
    SummaryFailed,
    SummaryFailure,
    SummaryOptions,
    SummaryProblem,
    View,
    describe,
    make_plan,
    replacements_of,
    view_of,
)
from memman.compression.composer import SMALLEST_SUMMARY
from memman.config import SUMMARISE, resolve_budget
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
from memman.explain import SummarizerState, Trigger
from memman.records import NO_COST, Compressed, Cost, Replacement
from memman.runtime import SummarizerBusy
from memman.session.backoff import Backoff, Rest
from memman.session.context import ContextBuilder
from memman.session.lease import Lease, LeaseHeld, WindowMoved
from memman.session.log import SessionLog
from memman.session.lookup import originals_of
from memman.session.outbox import Outbox
from memman.session.reasons import (
    Unasked,
    what_stays,
    what_was_done,
    why_due,
    why_few,
    why_hopeless,
    why_kept,
    why_short,
    why_summarizer,
)
from memman.session.run import CompressionRun, RunInput
from memman.session.shared import Shared
from memman.summarizers import Asker

logger = logging.getLogger("memman")
# A logger of its own, so that handlers of the event can silence these messages.
summary_logger = logging.getLogger("memman.summaries")

_REPLANS = 2  # after the window changed its shape during a compression
_COMMITS = 5  # of the same plan, after another process was faster
_STAYS = "what is left is pinned, waits for a result, is the newest exchange, or is cut as far as it can be"
_ANOTHER_RUNS = "another compression of this session is running"
_ANOTHER_PAYS = (
    "another worker is summarising this session; what it makes of it is there for this one too"
)
_CLOSED = "the manager was closed; nothing was changed"
# The compressions that this thread or task is part of. A task that a summarizer starts inherits them.
_compressing: ContextVar[frozenset[object]] = ContextVar("compressing", default=frozenset())


class RedactFailed(Exception):
    """The material of a summary could not be redacted; the message has the reason."""


class CompressionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a compression; `automatic` if an add made it."""

    target_tokens: int | None = None
    focus: str | None = None
    summarize: bool | None = None
    automatic: bool = False


AUTOMATIC = CompressionRequest(automatic=True)


class Compressor:
    """Brings a session's window down to its target, one compression at a time."""

    __slots__ = (
        "_backoff", "_contexts", "_lock", "_log", "_outbox", "_preparing", "_running", "_shared", "_spent",
    )  # fmt: skip

    def __init__(
        self, shared: Shared, log: SessionLog, outbox: Outbox, contexts: ContextBuilder
    ) -> None:
        self._shared = shared
        self._log = log
        self._outbox = outbox
        self._contexts = contexts
        self._backoff = Backoff()
        self._lock = shared.runtime.lock()  # held by the running compression
        self._running: object | None = None
        self._preparing = False  # in the background
        self._spent: Cost = NO_COST  # by the running compression

    @property
    def is_running(self) -> bool:
        """Whether a compression is under way, also in the background."""
        return self._running is not None or self._preparing

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way and nobody waits."""
        return not self.is_running and self._lock.is_free()

    @property
    def last_reason(self) -> str:
        """The reason of the last compression's result."""
        return self._backoff.last_reason

    def leave(self) -> Backoff:
        """Return the failures so far, for the session that is loaded in this one's place."""
        self._backoff.leave(self._log.progress)
        return self._backoff

    def resume(self, backoff: Backoff) -> None:
        """Continue with the failures of the evicted session."""
        self._backoff = backoff

    def forget(self) -> None:
        """Start afresh, after the session was deleted."""
        self._backoff = Backoff()

    def forget_parts(self) -> None:
        """Drop summaries of parts that failed as a whole: their entries are gone."""
        self._backoff.parts.clear()

    # ------------------------------------------------------------ when

    def is_due(self) -> bool:
        """Whether the window is so large that a compression should begin."""
        window, resolved = self._log.window, self._log.resolved
        tokens, entries = window.tokens + self._contexts.overhead(), len(window.items)
        if not resolved.trigger.over(tokens, entries) or self.waits_after_undo():
            return False
        if resolved.trigger is resolved.budget or resolved.budget.over(tokens, entries):
            return True
        # Only to be prepared: not again and again to no avail.
        return not self._backoff.was_futile_recently(self._log.progress, resolved.budget)

    def waits_after_undo(self) -> bool:
        """Whether too little was added since the caller undid a compression to redo it."""
        totals = self._log.totals
        if totals.undone is None:
            return False
        tokens, entries = totals.undone
        return not self._log.resolved.budget.fills_room(
            totals.tokens - tokens, totals.entries - entries, 1
        )

    def stages_rest(self) -> Rest | None:
        """Return until when no add runs the strategy because a stage or `redact` failed."""
        resolved = self._log.resolved
        return self._backoff.stages_rest(
            resolved.stages, self._shared.clock(), self._log.progress, resolved.budget
        )

    async def after_add(self) -> None:
        """Compress after an add: at once or in the background. Failures do not reach the caller."""
        if not self._log.resolved.config.background:
            await self._compress_quietly()
        elif not self._preparing:
            self._preparing = True
            if not self._shared.runtime.start_background(self._prepare):
                self._preparing = False

    async def _prepare(self) -> None:
        """Compress in the background; repeat if new entries make it due again."""
        while True:
            try:
                result = await self._compress_quietly()
            finally:
                self._preparing = False
            if result is None or result.compression_id is None:
                self._backoff.record_futile(self._log.progress)
                return
            # An add before this line left its compression to this run; one after it starts its own.
            if self._preparing or not self.is_due():
                return
            self._preparing = True

    async def _compress_quietly(self) -> events.CompressionResult | None:
        try:
            return await self.compress(AUTOMATIC)
        except Exception as error:
            if isinstance(error, MemmanError) and not isinstance(error, StoreError):
                logger.warning(
                    "the automatic compression of session %s failed with %s (see compression_failed)",
                    self._log.id,
                    type(error).__name__,
                )
                reason, fallback, rest = str(error), "nothing was changed", self.stages_rest()
            else:  # of a store: the next method raises it to a caller who can act
                logger.exception("the automatic compression of session %s failed", self._log.id)
                reason, rest = format_error(error), None
                fallback = "the next verb reads the session's store again"
            self._backoff.record_reason(reason)
            await self._outbox.emit(_failure(self._log.id, reason, fallback, rest, NO_COST))
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
                result = await self._compress(request, lease)
            finally:
                await lease.give_back()
        except LeaseHeld:
            self._backoff.yield_to_other(self._shared.clock())
            result = self._nothing(_ANOTHER_PAYS)
        except MemmanError as error:
            self._backoff.record_reason(str(error))
            raise
        finally:
            self._running = None
            _compressing.reset(token)
            self._lock.release()
        self._backoff.record_reason(result.reason)
        await self._outbox.flush()
        return result

    async def _compress(
        self, request: CompressionRequest, lease: Lease
    ) -> events.CompressionResult:
        """Plan, answer the plan's requests outside the log's lock, and commit."""
        runtime, self._spent = self._shared.runtime, NO_COST
        recent = request.automatic and self._has_answered_recently()
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
                                call = partial(summarizer.summarize, wanted)
                                run.answer_summary(
                                    await runtime.call_summarizer(
                                        call, wanted.timeout, summarizer.is_async
                                    )
                                )
            except WindowMoved:
                continue
            except SummaryFailed as error:
                return self._given_up(f"the summary failed: {error}", request)
            result = await self._commit(run, request)
            if result is not None:
                return result
        return self._nothing("the window changed shape each time; try again", self._spent)

    async def _begin(
        self, request: CompressionRequest, recent: bool
    ) -> CompressionRun | events.CompressionResult:
        """Return a run on the window as it is now, or a result with the reason why nothing is done."""
        log, automatic = self._log, request.automatic
        async with log.lock:
            if self._shared.closed:
                return self._nothing(_CLOSED)
            await log.require()
            if automatic and not self.is_due():
                return self._nothing("within the limits")
            if automatic and self._backoff.has_yielded(self._shared.clock()):
                return self._nothing(_ANOTHER_PAYS)
            if automatic and (pause := self.stages_rest()):
                return self._nothing(f"nothing was changed: {pause}")
            given, rest = self._input(request, recent)
            if rest is not None and not given.options.write:
                return self._given_up(str(rest), request)
            if hopeless := why_hopeless(log.window.pinned_tokens, given.goal):
                self._outbox.notify(self._over_budget(given.view, given.goal, hopeless))
                return self._nothing(f"nothing was changed: {hopeless}")
            self._backoff.begin(given.summarizer, log.progress)
            return self._run(given)

    def _run(self, given: RunInput) -> CompressionRun:
        resolved = self._log.resolved
        config, summarizer = resolved.config, given.summarizer
        own = None if summarizer is None else summarizer.max_input_tokens
        options = msgspec.structs.replace(
            given.options,
            window=config.summarizer_window or own or UNKNOWN_WINDOW,
            prompt=config.summary_prompt,
            redact=None if self._shared.redact is None else self._redacted,
            wordy=self._backoff.truncates,
            parts=self._backoff.parts,
        )
        factory = self._shared.make_entry(resolved.counter)
        plan = make_plan(given.view, given.goal, factory, resolved.stages, options)
        return CompressionRun(given, plan, config.summarize_timeout)

    def _redacted(self, entry: Entry) -> Entry:
        """Redact an entry once more: it may come from an import or from another manager."""
        outcome = (
            "nothing was changed, since nobody summarises what redact has not seen to its end "
            f"(entry {entry.id}): mend the function that is given as redact"
        )
        try:
            return self._shared.redacted(entry, outcome)
        except InvalidInput as error:
            raise RedactFailed(str(error)) from None

    @contextmanager
    def _charged(self, run: CompressionRun) -> Iterator[None]:
        """Add up what a call of the summarizer costs, however it ends; an error becomes its answer."""
        began = self._shared.clock()
        run.answer(SummaryFailure("the call was interrupted"))
        try:
            yield
        except SummarizerBusy as error:
            self._backoff.postpone(self._shared.clock(), str(error))
            run.answer(SummaryFailure(str(error), unasked=True))
        except Exception as error:
            logger.debug("summarizer failed", exc_info=True)
            run.answer(SummaryFailure(format_error(error)))
        except BaseException:
            # The caller gave up on a call that was paid for: the next one is not made at once.
            self._backoff.record_failure(self._shared.clock(), "the call was interrupted")
            raise
        finally:
            cost = run.charge((self._shared.clock() - began).total_seconds())
            self._spent = self._spent.plus(cost)
            self._log.owe(cost)

    async def _report(self, problem: SummaryProblem) -> None:
        """Emit and log a problem of the summarizer."""
        now, rest = self._shared.clock(), None
        if problem.failed:  # a reply that was cut, for example, is no reason to pause
            rest = self._backoff.record_failure(now, problem.reason)
        if problem.unasked:
            rest = self._backoff.rest(now)  # if it was put off
        # A provider's error may quote the conversation, so the log gets its kind alone.
        kind = without_message(problem.reason)
        summary_logger.warning(
            "summary of session %s: %s (see compression_failed)", self._log.id, kind
        )
        await self._outbox.emit(
            _failure(self._log.id, problem.reason, problem.fallback, rest, self._spent)
        )

    def _given_up(self, why: str, request: CompressionRequest) -> events.CompressionResult:
        """Return the result of a compression without a summary and without a substitute for it."""
        reason = f"nothing was changed: {why}"
        if self._log.resolved.config.on_failure == "raise" and not request.automatic:
            raise CompressionFailed(reason)
        return self._nothing(reason, self._spent)

    @contextmanager
    def _watched_strategy(self) -> Iterator[None]:
        """Note whether the strategy runs to its end; pause it if a stage or `redact` fails."""
        try:
            yield
        except CompressionFailed as error:
            self._pause_strategy("the strategy is left alone", str(error))
            raise
        except RedactFailed as error:
            self._pause_strategy("no add compresses", str(error))
            raise CompressionFailed(str(error)) from None
        self._backoff.record_stages()

    def _pause_strategy(self, what: str, reason: str) -> None:
        now, stages = self._shared.clock(), self._log.resolved.stages
        self._backoff.record_stage_failure(what, stages, now, reason, self._log.progress)

    # ------------------------------------------------------------ the commit

    async def _commit(
        self, run: CompressionRun, request: CompressionRequest
    ) -> events.CompressionResult | None:
        """Commit what a run came to, and report what is still wrong; None if its window is gone."""
        given, after = run.given, run.after
        rest = None
        if run.cost.calls:
            self._backoff.record_length(truncated=run.truncated)
            gain = _gain(given.view, after, given.goal)
            rest = self._backoff.record_summary(gain, self._shared.clock())
        replacements = replacements_of(after)
        if not replacements:
            return self._nothing(self._why_nothing(run), self._spent)
        record = await self._committed(self._record(run, replacements, request))
        if record is None:
            return None
        self._backoff.parts.clear()
        session_id = self._log.id
        if rest is not None:
            self._outbox.notify(
                _failure(session_id, rest.reason, "the compression stands", rest, record.cost)
            )
        if not given.goal.within_limit(after):
            self._outbox.notify(self._over_budget(after, given.goal))
        result = events.result_of(session_id, record)
        _log_result(result)
        return result

    def _record(
        self,
        run: CompressionRun,
        replacements: tuple[Replacement, ...],
        request: CompressionRequest,
    ) -> Compressed:
        resolved, before, after = self._log.resolved, run.given.view, run.after
        trigger = "by hand"
        if request.automatic:
            tokens = before.tokens + self._contexts.overhead()
            trigger = why_due(tokens, before.entries, resolved.budget, resolved.trigger)
        clauses = [
            trigger,
            *what_was_done(replacements),
            self._why_summarizer(run, replacements),
            why_short(after, run.given.goal, resolved.stages),
        ]
        return Compressed(
            id=self._shared.new_id(),
            at=self._shared.clock(),
            replacements=replacements,
            reason="; ".join(filter(None, clauses)),
            tokens_before=before.tokens,
            tokens_after=after.tokens,
            cost=self._log.unrecorded,  # plans that came to nothing were paid for too
            settings=resolved.observed,
        )

    async def _committed(self, record: Compressed) -> Compressed | None:
        """Commit a record if every run is still active, unpinned and contiguous; else return None.

        Its tokens become those of the window in which it lands: that may have changed in the meantime.
        """
        log = self._log
        for _ in range(_COMMITS):
            async with log.lock:
                if self._shared.closed:
                    return None
                await log.refresh()
                try:
                    state = log.after(record)
                except Refused:
                    return None
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
            recent = request.automatic and self._has_answered_recently()
            given, rest = self._input(request, recent)
            hopeless = why_hopeless(log.window.pinned_tokens, given.goal)
        view, goal, options = given.view, given.goal, given.options
        after, unchanged = view, hopeless or ("" if rest is None or options.write else str(rest))
        if not unchanged:
            dry = msgspec.structs.replace(options, dry_run=True)
            after = self._run(msgspec.structs.replace(given, options=dry)).finish()
        why_old = unchanged or why_kept(after, goal, log.resolved.stages)
        return describe(log.id, view, after, goal, options.ask, why_old)

    def _input(self, request: CompressionRequest, recent: bool) -> tuple[RunInput, Rest | None]:
        """Return what a compression begins with, and the summarizer's pause. Under the log's lock."""
        summarizer = self._summarizer()
        options, rest, unasked = self._options(summarizer, request, recent)
        goal = self._goal(request)
        window = self._log.window
        view = view_of(window, goal)
        return RunInput(view, goal, options, window.epoch, summarizer, unasked), rest

    def _goal(self, request: CompressionRequest) -> Goal:
        resolved, window, target_tokens = (
            self._log.resolved,
            self._log.window,
            request.target_tokens,
        )
        budget = resolved.budget
        if target_tokens is not None:
            if target_tokens > budget.max_tokens:
                raise InvalidInput(
                    f"target_tokens={target_tokens} is above the trigger, max_tokens="
                    f"{budget.max_tokens}: there would be nothing to do"
                )
            limits = self._shared.limits(resolved.config.model)
            budget = resolve_budget(resolved.config, limits, target_tokens=target_tokens)
            summary_tokens = max(budget.summary_tokens, SMALLEST_SUMMARY)  # also for a small target
            budget = msgspec.structs.replace(budget, summary_tokens=summary_tokens)
        _, framing = self._contexts.around()
        fixed, target = self._contexts.overhead() - framing, budget.target_tokens
        # Entries that go take their framing with them.
        limit = max(0, budget.max_tokens - fixed) * window.tokens // max(1, window.tokens + framing)
        if target_tokens is None:
            # A large overhead leaves the target its share of the rest, so that there is room to add.
            share = min(target // 2, target * limit // budget.max_tokens)
            tokens = max(limit - (budget.max_tokens - target), share)
        else:
            tokens = max(target - fixed, target // 2)
        return Goal(
            tokens=min(limit, tokens),
            entries=budget.target_entries,
            limit=limit,
            budget=budget,
            demanded=target_tokens is not None,
            thorough=not request.automatic and (target_tokens is None or bool(request.summarize)),
        )

    def _summarizer(self) -> Asker | None:
        return self._shared.summarizer(self._log.resolved.config)

    def _has_answered_recently(self) -> bool:
        """Whether too little was added since the summarizer's last good answer to call it again."""
        if not self._backoff.knows(self._summarizer()):
            return False
        return self._backoff.answered_recently(self._log.progress, self._log.resolved.budget)

    def _options(
        self, summarizer: Asker | None, request: CompressionRequest, recent: bool
    ) -> tuple[SummaryOptions, Rest | None, Unasked]:
        """Return whether a summarizer may be called now, and why not.

        An automatic compression calls it once enough was added, and not soon after a failure. One by hand
        always does, unless the breaker is open. With `summarize` the caller decides.
        """
        configured = summarizer is not None
        if request.summarize:
            self._check_summarizes(configured)
        rest = self._pause(summarizer, request) if request.summarize is None else None
        why = ""
        if request.summarize is False:
            why = "summarize=False"
        elif rest is not None:
            why = rest.recorded
        elif recent:
            why = "it was called lately, and too little is new"
        on_failure = self._log.resolved.config.on_failure
        options = SummaryOptions(
            ask=configured and not why,
            # With "keep" or "raise" no digest takes the place of a summarizer that fails.
            write=rest is None or on_failure == "fallback",
            on_failure=on_failure,
            focus=request.focus,
            by_hand=not request.automatic,
            insist=bool(request.summarize),
        )
        return options, rest, Unasked(configured, why)

    def _check_summarizes(self, configured: bool) -> None:
        """Raise `InvalidInput` if no summarizer can be called."""
        resolved = self._log.resolved
        if not configured:
            raise InvalidInput(
                "summarize=True needs a summarizer: give the manager one, or pass summarize=False "
                "for a digest"
            )
        if SUMMARISE not in resolved.stages:
            raise InvalidInput(
                f"summarize=True: the strategy {resolved.config.strategy!r} has no step 'summarise'"
            )

    def _pause(self, summarizer: Asker | None, request: CompressionRequest) -> Rest | None:
        """Return the pause of the summarizer that holds for this request."""
        if summarizer is None or not self._backoff.knows(summarizer):
            return None
        rest = self._backoff.rest(self._shared.clock())
        if rest is None or rest.open:
            return rest
        recent = self._backoff.failed_recently(self._log.progress, self._log.resolved.budget)
        return rest if request.automatic and recent else None

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

    def _why_nothing(self, run: CompressionRun) -> str:
        resolved, view, goal = self._log.resolved, run.given.view, run.given.goal
        never = f"the strategy {resolved.config.strategy!r} never compresses"
        if not goal.within_limit(view):
            reason = _STAYS if resolved.stages else never
            self._outbox.notify(self._over_budget(view, goal, reason))
        if not resolved.stages:
            return f"nothing was changed: {never}"
        if goal.holds(view.tokens, view.entries) and not view.old_entries:
            why = "every entry is recent or protected"
        elif goal.holds(view.tokens, view.entries) and not goal.thorough:
            why = f"the window has {view.tokens} tokens, and the target is {goal.tokens}"
        else:
            why = what_stays(view, goal, resolved.stages)
        summarizer = self._why_summarizer(run, ()) if view.old_entries else ""
        return "; ".join(filter(None, (f"nothing was changed: {why}", summarizer)))

    def _why_summarizer(self, run: CompressionRun, replacements: Sequence[Replacement]) -> str:
        """Return whether the summarizer was called, and why; "" if the strategy never calls one."""
        if SUMMARISE not in self._log.resolved.stages:
            return ""
        given = run.given
        methods = [item.method for item in replacements]
        few, problem = why_few(given.view, given.goal), without_message(run.problem)
        return why_summarizer(methods, run.cost.calls, problem, given.unasked, few)

    def _over_budget(self, view: View, goal: Goal, reason: str = _STAYS) -> events.OverBudget:
        return events.OverBudget(
            session_id=self._log.id, tokens=view.tokens, max_tokens=goal.limit, reason=reason
        )

    def trigger(self) -> Trigger:
        """Return the window's size and the limits that trigger a compression."""
        resolved, window, overhead = self._log.resolved, self._log.window, self._contexts.overhead()
        budget, entries = resolved.budget, len(window.items)
        return Trigger(
            tokens=window.tokens,
            overhead_tokens=overhead,
            max_tokens=budget.max_tokens,
            target_tokens=budget.target_tokens,
            starts_at_tokens=resolved.trigger.max_tokens,
            entries=entries,
            max_entries=budget.max_entries,
            starts_at_entries=resolved.trigger.max_entries,
            target_entries=budget.target_entries,
            over=budget.over(window.tokens + overhead, entries),
            auto_compress=resolved.config.auto_compress,
            compresses=bool(resolved.stages),
            pinned_tokens=window.pinned_tokens,
        )

    def summarizer_state(self) -> SummarizerState:
        """Return whether an automatic compression may call the summarizer now, and why not."""
        summarizer, recent = self._summarizer(), self._has_answered_recently()
        options, rest, _ = self._options(summarizer, AUTOMATIC, recent)
        if summarizer is None:
            reason = "none is set; a digest is written without one"
        elif rest is not None:
            reason = str(rest)
        elif recent:
            reason = (
                "it answered, and is not asked again before about as much was added as lies between "
                "target and limit (a compression by hand asks it)"
            )
        else:
            reason = "it may be asked now"
        return SummarizerState(
            configured=summarizer is not None,
            may_be_asked=options.ask,
            reason=reason,
            holds_up=rest is not None and not options.write,
        )


def _gain(before: View, after: View, goal: Goal) -> float:
    """Return the share of the window's tokens that goes; of its entries if only they are over."""
    most = goal.budget.max_entries
    if most is not None and before.entries > most and before.tokens <= goal.limit:
        return 1 - after.entries / before.entries
    return 1 - after.tokens / before.tokens if before.tokens else 0.0


def _failure(
    session_id: str, reason: str, fallback: str, rest: Rest | None, cost: Cost
) -> events.CompressionFailedNotice:
    """Return the event of a failure; `rest` has until when the summarizer or the strategy pauses."""
    return events.CompressionFailedNotice(
        session_id=session_id,
        reason=reason,
        fallback=fallback,
        failures=rest.failures if rest else 0,
        retry_at=rest.until if rest else None,
        cost=cost,
    )


def _log_result(result: events.CompressionResult) -> None:
    """Log a one-line summary of a compression without any content."""
    if logger.isEnabledFor(logging.INFO):
        methods = ", ".join(dict.fromkeys(item.method for item in result.replacements))
        logger.info(
            "session %s: %d entries compressed, %d -> %d tokens (%s)",
            result.session_id, len(result.replaced_ids), result.tokens_before, result.tokens_after,
            methods,
        )  # fmt: skip
