"""Carrying out compressions: when one is due, what it may ask, and how its outcome lands.

What is decided is decided by the pure functions of `memman.compression`; the summarizer is asked
outside every lock and transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar
from math import inf
from typing import Any

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
from memman.config import resolve_budget
from memman.doors import Lock
from memman.entries import Entry
from memman.errors import CompressionFailed, InvalidInput, MemmanError, Refused, StoreConflict
from memman.ports import SummaryReply, SummaryRequest, SummaryUsage
from memman.records import NO_COST, Added, Compressed, Cost, Replacement
from memman.sessions.leasing import Lease, LeaseHeld, WindowMoved
from memman.sessions.live import LiveWindow
from memman.sessions.pacing import Pace, Rest
from memman.window import Slot, replaced_in

logger = logging.getLogger("memman")

_REPLANS = 2  # how often a compression plans again after the window changed shape meanwhile
_LANDINGS = 5  # how often the same plan is committed again after another process was faster
_MOST_TIMEOUTS = 10  # that the calls of one compression, as of a summary in pieces, may take in all
_STAYS = "what is left is pinned or the newest exchange"
_ANOTHER_RUNS = "another compression of this session is running"
_ANOTHER_PAYS = (
    "another worker is summarising this session; what it makes of it is there for this one too"
)
_CLOSED = "the manager was closed; nothing was changed"
# The compressions that this thread or task is part of. A task made by a summarizer inherits them, and
# is free again once they have ended: a run is known by an object of its own.
_compressing: ContextVar[frozenset[object]] = ContextVar("compressing", default=frozenset())


class _RedactFailed(Exception):
    """What a summary was to be made of could not be redacted; the cause says why."""


class _Attempt(msgspec.Struct, frozen=True):
    """What a compression sets out from: the window, the goal, and who may be asked."""

    view: View
    goal: Goal
    options: SummaryOptions
    epoch: int
    summarizer: Any


class Compressing(LiveWindow):
    """Brings the window down to low water, one compression at a time per session."""

    __slots__ = ()

    # ------------------------------------------------------------ when

    def _due(self) -> bool:
        """Whether the window is so large that a compression should begin."""
        tokens = self._window.tokens
        entries = len(self._window.slots)
        most = self._trigger.max_entries
        if tokens <= self._settled.calm_tokens and (most is None or entries <= most):
            return False
        tokens += self.overhead
        if not self._trigger.over(tokens, entries):
            return False
        if self._trigger is self._budget or self._budget.over(tokens, entries):
            return True
        # Only to be prepared: not again and again where that came to nothing.
        return not self.pace.tried_lately(self._progress, self._budget)

    @property
    def pace(self) -> Pace:
        """What this session knows of its summarizer: whether it rests, and how it went last."""
        if self._pace is None:
            with self._thread_lock:
                self._pace = self._pace or Pace()
        return self._pace

    def leave(self) -> Pace | None:
        """What it knows of its summarizer, for the session that is loaded in its place one day."""
        if self._pace is not None:
            self._pace.left_at = self._progress
        return self._pace

    def resume(self, pace: Pace) -> None:
        """Goes on with what was known of the summarizer when the session was unloaded."""
        self._pace = pace
        self._go_on(pace.left_at)

    # ------------------------------------------------------------ one at a time

    async def compress(
        self,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
        automatic: bool = False,
    ) -> events.CompressionResult:
        """Brings the window down to low water, one compression at a time per session."""
        running = _compressing.get()
        # Asked for by the summarizer or a receiver of this very compression.
        if self._run in running:
            return self._nothing(_ANOTHER_RUNS)
        lock = self._compression_lock()
        if automatic:
            if not await lock.try_enter():
                return self._nothing(_ANOTHER_RUNS)
        else:
            await lock.__aenter__()
        self._run = object()
        token = _compressing.set(running | {self._run})
        try:
            result = await self._compress_leased(target_tokens, focus, automatic)
        except MemmanError as error:
            self.pace.last = str(error)
            raise
        finally:
            self._run = None
            _compressing.reset(token)
            await lock.__aexit__(None, None, None)
        self.pace.last = result.reason
        await self._drain()
        return result

    def _compression_lock(self) -> Lock:
        if self._compress_lock is None:
            with self._thread_lock:
                self._compress_lock = self._compress_lock or self._shared.door.lock()
        return self._compress_lock

    async def _compress_leased(
        self, target_tokens: int | None, focus: str | None, automatic: bool
    ) -> events.CompressionResult:
        lease = Lease(self._shared, self.id)
        try:
            return await self._compress_alone(target_tokens, focus, automatic, lease)
        except LeaseHeld:
            self.pace.step_aside(self._shared.clock())
            return self._nothing(_ANOTHER_PAYS)
        finally:
            if lease.held:
                await self._write(lease.give_back())

    async def _compress_alone(
        self, target_tokens: int | None, focus: str | None, automatic: bool, lease: Lease
    ) -> events.CompressionResult:
        lately = automatic and self._asked_lately()
        self._owed, self._spent = self._owed.plus(self._spent), NO_COST
        for _ in range(1 + _REPLANS):
            attempt = await self._attempt(target_tokens, focus, automatic, lately)
            if isinstance(attempt, events.CompressionResult):
                return attempt
            try:
                after, cost = await self._carried_out(attempt, lease)
            except WindowMoved:
                continue
            except SummaryFailed as error:
                return self._given_up(f"the summary failed: {error}", automatic)
            except CompressionFailed as error:
                self._stages_failed("the strategy is left alone", str(error))
                raise
            except _RedactFailed as error:
                self._stages_failed("no add compresses", str(error))
                raise CompressionFailed(str(error)) from error.__cause__
            self.pace.stages_ran()
            rest = self._judged_summary(attempt, after) if cost.calls else None
            replacements = replacements_of(after)
            if not replacements:
                return self._nothing(self._why_nothing(attempt.view, attempt.goal), self._spent)
            record = self._record(attempt, after, replacements, automatic)
            if await self._land(record):
                self._note(attempt.goal, after, rest, record.cost)
                return _logged(events.result_of(self.id, record))
        return self._nothing("the window changed shape each time; try again", self._spent)

    async def _attempt(
        self, target_tokens: int | None, focus: str | None, automatic: bool, lately: bool
    ) -> _Attempt | events.CompressionResult:
        """What to set out from, or why there is nothing to do."""
        async with self._lock:
            if self._shared.closed:
                return self._nothing(_CLOSED)
            await self.require()
            if automatic and not self._due():
                return self._nothing("within the limits")
            pace, summarizer = self.pace, self._summarizer()
            if automatic and pace.is_aside(self._shared.clock):
                return self._nothing(_ANOTHER_PAYS)
            if automatic and (broken := self._stages_rest):
                return self._nothing(f"nothing was changed: {broken}")
            options, rest = self._options(summarizer, focus, automatic, lately)
            if rest is not None and not options.write:
                return self._given_up(str(rest), automatic)
            view, goal = self._view(target_tokens, spare=lately and not options.ask)
            pace.begin(summarizer, self._progress)
            return _Attempt(view, goal, options, self._window.epoch, summarizer)

    def _given_up(self, why: str, automatic: bool) -> events.CompressionResult:
        """The end of a compression without a summary and without a substitute for it."""
        reason = f"nothing was changed: {why}"
        if self._config.on_failure == "raise" and not automatic:
            raise CompressionFailed(reason)
        return self._nothing(reason, self._spent)

    def _stages_failed(self, what: str, reason: str) -> None:
        stages, now = self._settled.stages, self._shared.clock()
        self.pace.stages_failed(what, stages, now, reason, self._progress)

    @property
    def _stages_rest(self) -> Rest | None:
        """Until when no add runs the strategy, where one of its stages or `redact` failed."""
        return self.pace.stages_rest(
            self._settled.stages, self._shared.clock, self._progress, self._budget
        )

    def _judged_summary(self, attempt: _Attempt, after: View) -> Rest | None:
        """Notes that the summarizer was asked and how it went; why it rests if that did not pay."""
        gain = _gain(attempt.view, after, attempt.goal)
        return self.pace.answered(gain, self._shared.clock())

    def _note(self, goal: Goal, after: View, rest: Rest | None, cost: Cost) -> None:
        """Tells what is still wrong after a compression that landed."""
        if rest is not None:
            told = _failure(self.id, rest.reason, "the compression stands", rest, cost)
            self.notice(told)
        if not goal.within_limit(after):
            self.notice(_over_budget(self.id, after.tokens, goal.limit))

    def _record(
        self,
        attempt: _Attempt,
        after: View,
        replacements: tuple[Replacement, ...],
        automatic: bool,
    ) -> Compressed:
        reason = self._why_due(attempt.view) if automatic else "manual"
        if any([item.method == "digest" for item in replacements]):
            reason += self._why_digest()
        reason += _why_short(after, attempt.goal)
        return Compressed(
            id=self._shared.new_id(),
            at=self._shared.clock(),
            replacements=replacements,
            reason=reason,
            tokens_before=attempt.view.tokens,
            tokens_after=after.tokens,
            cost=self._owed.plus(self._spent),  # plans that came to nothing were paid for too
        )

    async def _land(self, record: Compressed) -> bool:
        """Commits the replacements if every run is still active, unpinned and contiguous."""
        for _ in range(_LANDINGS):
            async with self._lock:
                if self._shared.closed:
                    return False
                await self._refresh()
                try:
                    window = self._window
                    slots, touched = replaced_in(window.slots, record, window.head + 1)
                except Refused:
                    return False
                for slot in slots:
                    if slot.compression == record.id:  # the counter may be another one by now
                        slot.tokens = self._meter.recount(slot.entry)
                try:
                    await self._write(self._commit(record, slots, touched))
                except StoreConflict:
                    continue  # another process was faster: the same plan, on what there is now
                return True
        return False

    # ------------------------------------------------------------ what to do

    def _summarizer(self) -> Any:
        return self._shared.summarizer(self._config)

    def _view(self, target_tokens: int | None, spare: bool = False) -> tuple[View, Goal]:
        """The window as stages see it, and where to get it: to low water, or with `spare` just below
        the limits, so that a summary is not spent while its summarizer may not be asked again.
        """
        window = self._window
        budget = self._budget
        overhead = self.overhead
        if target_tokens is not None:
            if target_tokens > budget.max_tokens:
                raise InvalidInput(
                    f"target_tokens={target_tokens} is above the trigger, max_tokens="
                    f"{budget.max_tokens}: there would be nothing to do"
                )
            budget = resolve_budget(
                self._config, self._shared.limits(self._config.model), target_tokens=target_tokens
            )
        limit = max(0, budget.max_tokens - overhead)
        goal = Goal(
            # Not below half of low water, for what another request may not have around it.
            tokens=min(limit, max(budget.target_tokens - overhead, budget.target_tokens // 2)),
            entries=budget.target_entries,
            limit=limit,
            budget=budget,
        )
        if spare:
            goal = msgspec.structs.replace(goal, tokens=goal.limit, entries=budget.max_entries)
        return view_of(window.exchanges, goal), goal

    def _asked_lately(self) -> bool:
        """Whether too little was added since the summarizer's last good answer to ask it again."""
        pace = self.pace
        known = pace.knows(self._summarizer())
        return known and pace.asked_lately(self._progress, self._budget)

    def _options(
        self, summarizer: Any, focus: str | None, automatic: bool, lately: bool
    ) -> tuple[SummaryOptions, Rest | None]:
        """Whether a summarizer may be asked now, and why not after failures.

        An automatic compression asks once per room that was filled, and not soon after a failure; one
        by hand always, unless the breaker is open.
        """
        pace = self.pace
        configured = summarizer is not None
        known = configured and pace.knows(summarizer)
        rest = pace.rest(self._shared.clock) if known else None
        if rest is not None and not rest.open:
            again = not automatic or not pace.failed_lately(self._progress, self._budget)
            rest = None if again else rest
        ask = configured and rest is None and not lately
        on_failure = self._config.on_failure
        # With "keep" or "raise" no text of ours takes a summarizer's place while it may not be asked.
        write = ask or not configured or on_failure == "fallback"
        return SummaryOptions(ask=ask, write=write, on_failure=on_failure, focus=focus), rest

    async def plan(
        self, target_tokens: int | None, focus: str | None, automatic: bool = False
    ) -> CompressionPlan:
        """What `compress` would do now, or an add that compresses. Asks nobody, changes nothing."""
        async with self._lock:
            await self.require()
            lately, summarizer = automatic and self._asked_lately(), self._summarizer()
            options, rest = self._options(summarizer, focus, automatic, lately)
            view, goal = self._view(target_tokens, spare=lately and not options.ask)
            epoch = self._window.epoch
        after = view
        if rest is None or options.write:
            dry = msgspec.structs.replace(options, dry_run=True)
            attempt = _Attempt(view, goal, dry, epoch, summarizer)
            after, _ = await self._carried_out(attempt, None)
        return describe(self.id, view, after, goal, options.ask)

    def _nothing(self, reason: str, cost: Cost = NO_COST) -> events.CompressionResult:
        tokens = self._window.tokens
        return events.CompressionResult(
            session_id=self.id,
            compression_id=None,
            tokens_before=tokens,
            tokens_after=tokens,
            reason=reason,
            cost=cost,
        )

    def _why_nothing(self, view: View, goal: Goal) -> str:
        never = f"the strategy {self._config.strategy!r} never compresses"
        stages = self._settled.stages
        if not goal.within_limit(view):
            reason = _STAYS if stages else never
            self.notice(_over_budget(self.id, view.tokens, goal.limit, reason))
        if not stages:
            return never
        if goal.met(view):
            return f"already at low water ({view.tokens} of {goal.tokens} tokens)"
        return "nothing may go: all that is left is pinned, recent, or too little to be worth it"

    def _why_due(self, view: View) -> str:
        tokens = view.tokens + self.overhead
        budget = self._budget
        if not budget.over(tokens, view.entries):
            budget = self._trigger
        over = f"{tokens} tokens are over {budget.max_tokens}"
        if tokens <= budget.max_tokens:
            over = f"{view.entries} entries are over {budget.max_entries}"
        return over if budget is self._budget else f"prepared in the background: {over}"

    def _why_digest(self) -> str:
        """Why the text is ours although there is a summarizer."""
        if self._summarizer() is None:
            return ""
        rest = self.pace.rest(self._shared.clock)
        return f"; a digest: {rest or 'the summarizer was asked lately'}"

    # ------------------------------------------------------------ doing it

    async def _carried_out(self, attempt: _Attempt, lease: Lease | None) -> tuple[View, Cost]:
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
            attempt.view, attempt.goal, shared.craft(self._meter), self._settled.stages, options
        )
        cost, clipped = Cost(), False
        answer: Any = None
        while True:
            try:
                wanted = plan.send(answer)
            except StopIteration as end:
                if cost.calls:
                    pace.wordy = clipped
                return end.value, cost
            if isinstance(wanted, SummaryProblem):
                clipped = clipped or wanted.clipped
                # A clipped reply, say, is worth telling and no reason to leave the summarizer alone.
                rest = pace.failed(shared.clock(), wanted.reason) if wanted.failed else None
                self.notice(_failure(self.id, wanted.reason, wanted.fallback, rest, self._spent))
                # A provider's error may quote the conversation, which is for no log.
                kind = wanted.reason.partition(":")[0]
                logger.warning("summary of session %s: %s (see compression_failed)", self.id, kind)
                await self._drain()
                answer = None
            elif isinstance(wanted, OriginalsWanted):
                answer = await self._originals(wanted.slots)
            elif cost.seconds > _MOST_TIMEOUTS * (self._config.summarize_timeout or inf):
                answer = SummaryFailure(f"its {cost.calls} calls took {cost.seconds:.0f} s in all")
            else:
                if lease is not None:
                    await lease.take(attempt.epoch, self._config.summarize_timeout)
                answer, took = await self._summary(summarizer, wanted)
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
            raise _RedactFailed(str(error)) from (error.__cause__ or error)

    async def _originals(self, slots: Sequence[Slot]) -> list[tuple[Entry, ...]]:
        """The added entries that stubs or clipped entries stand for, as the store has them."""
        shared = self._shared
        added: dict[str, Entry] = {}
        stands_for: dict[str, tuple[str, ...]] = {}
        asked = [slot.entry.id for slot in slots]
        while asked:
            wanted, asked = asked, []
            for seq, record in await shared.door.call(
                shared.store, shared.store.get, self.id, wanted
            ):
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

        return [tuple(originals(slot.entry.id)) for slot in slots]

    async def _summary(
        self, summarizer: Any, request: SummaryRequest
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
        self, summarizer: Any, request: SummaryRequest
    ) -> SummaryReply | SummaryFailure:
        """Asks the summarizer, outside every lock and transaction."""
        request = msgspec.structs.replace(request, timeout=self._config.summarize_timeout)
        try:
            reply = await self._shared.door.ask(
                lambda: summarizer.summarize(request),
                self._config.summarize_timeout,
                summarizer.is_async,
            )
        except Exception as error:
            logger.debug("summarizer failed", exc_info=True)
            return SummaryFailure(f"{type(error).__name__}: {error}")
        except BaseException:
            # Whoever waited gave up, and the call was paid for: the next one is not made at once.
            self.pace.failed(self._shared.clock(), "the call was interrupted")
            raise
        if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
            return SummaryFailure(f"the summarizer returned {type(reply).__name__}, not text")
        return reply


def _why_short(after: View, goal: Goal) -> str:
    """What to say of a compression that did not come down to low water; "" where it did."""
    if goal.met(after):
        return ""
    stays = f"{after.tokens} tokens stay instead of {goal.tokens}"
    if after.tokens <= goal.tokens:
        stays = f"{after.entries} entries stay instead of {goal.entries}"
    return f"; {stays}: pinned, recent, newest, or a summary"


def _cost(answer: SummaryReply | SummaryFailure, seconds: float) -> Cost:
    """What one call of the summarizer cost, whether it answered or failed."""
    reply = answer if isinstance(answer, SummaryReply) else None
    usage = (reply.usage if reply else None) or SummaryUsage()
    model = reply.model if reply else None
    return Cost(1, seconds, usage.input_tokens, usage.output_tokens, model)


def _gain(before: View, after: View, goal: Goal) -> float:
    """The share of the window that a compression takes away: of its tokens, or of its entries where
    only they are over.
    """
    most = goal.budget.max_entries
    if most is not None and before.entries > most and before.tokens <= goal.limit:
        return 1 - after.entries / before.entries
    return 1 - after.tokens / before.tokens if before.tokens else 0.0


def _failure(
    session_id: str, reason: str, fallback: str, rest: Rest | None, cost: Cost
) -> events.CompressionFailedNotice:
    return events.CompressionFailedNotice(
        session_id=session_id,
        reason=reason,
        fallback=fallback,
        failures=rest.failures if rest else 0,
        retry_at=rest.until if rest else None,
        cost=cost,
    )


def _over_budget(
    session_id: str, tokens: int, limit: int, reason: str = _STAYS
) -> events.OverBudget:
    return events.OverBudget(session_id=session_id, tokens=tokens, max_tokens=limit, reason=reason)


def _logged(done: events.CompressionResult) -> events.CompressionResult:
    """Says in one line what a compression did, and nothing of what was said."""
    if logger.isEnabledFor(logging.INFO):
        methods = ", ".join(dict.fromkeys(item.method for item in done.replacements))
        logger.info(
            "session %s: %d entries compressed, %d -> %d tokens (%s)",
            done.session_id, len(done.replaced_ids), done.tokens_before, done.tokens_after, methods,
        )  # fmt: skip
    return done
