"""Carrying out compressions: when one is due, what it may ask, and how its outcome lands.

What is decided is decided by the pure functions of `memman.compression`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar

import msgspec

from memman import events
from memman.compression import (
    CompressionPlan,
    Goal,
    SummaryFailed,
    SummaryOptions,
    View,
    describe,
    replacements_of,
    view_of,
)
from memman.compression.composer import SMALLEST_SUMMARY
from memman.config import resolve_budget
from memman.display import without_message
from memman.errors import CompressionFailed, InvalidInput, MemmanError, Refused, StoreConflict
from memman.presets import SUMMARISE
from memman.records import NO_COST, Compressed, Cost, Replacement
from memman.runtime import Lock
from memman.session.asking import (
    Asking,
    Attempt,
    Outcome,
    RedactFailed,
    Wanted,
    failure_notice,
)
from memman.session.backoff import Rest
from memman.session.lease import Lease, LeaseHeld, WindowMoved
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
from memman.summarizers import Asker

logger = logging.getLogger("memman")

_REPLANS = 2  # how often a compression plans again after the window changed shape meanwhile
_LANDINGS = 5  # how often the same plan is committed again after another process was faster
_STAYS = "what is left is pinned, waits for a result, is the newest exchange, or is cut as far as it can be"
_ANOTHER_RUNS = "another compression of this session is running"
_ANOTHER_PAYS = (
    "another worker is summarising this session; what it makes of it is there for this one too"
)
_CLOSED = "the manager was closed; nothing was changed"
# The compressions that this thread or task is part of. A task made by a summarizer inherits them, and
# is free again once they have ended: a run is known by an object of its own.
_compressing: ContextVar[frozenset[object]] = ContextVar("compressing", default=frozenset())


class Compressing(Asking):
    """Brings the window down to low water, one compression at a time per session."""

    __slots__ = ()

    # ------------------------------------------------------------ when

    def _due(self) -> bool:
        """Whether the window is so large that a compression should begin."""
        tokens = self._window.tokens + self.overhead
        entries = len(self._window.items)
        if not self._trigger.over(tokens, entries) or self._waits_after_undo:
            return False
        if self._trigger is self._budget or self._budget.over(tokens, entries):
            return True
        # Only to be prepared: not again and again where that came to nothing.
        return not self.pace.tried_lately(self._progress, self._budget)

    @property
    def _waits_after_undo(self) -> bool:
        """Whether too little was added since the caller undid a compression to redo it."""
        if self._totals.undone is None:
            return False
        tokens, entries = self._totals.undone
        added = self._totals.tokens - tokens, self._totals.entries - entries
        return not self._budget.fills_room(*added, 1)

    # ------------------------------------------------------------ one at a time

    async def compress(self, wanted: Wanted) -> events.CompressionResult:
        """Compresses the window, one compression at a time per session."""
        running = _compressing.get()
        lock = self._compression_lock()
        # Asked for by the summarizer or a receiver of this very compression, and not after one that an
        # interruption ended in the middle.
        if self._run in running and not lock.is_free():
            return self._nothing(_ANOTHER_RUNS)
        if wanted.automatic:
            if not await lock.try_enter():
                return self._nothing(_ANOTHER_RUNS)
        else:
            await lock.__aenter__()
        self._run = object()
        token = _compressing.set(running | {self._run})
        try:
            result = await self._compress_leased(wanted)
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
                self._compress_lock = self._compress_lock or self._shared.runtime.lock()
        return self._compress_lock

    async def _compress_leased(self, wanted: Wanted) -> events.CompressionResult:
        lease = Lease(self._shared, self.id)
        try:
            return await self._compress_alone(wanted, lease)
        except LeaseHeld:
            self.pace.step_aside(self._shared.clock())
            return self._nothing(_ANOTHER_PAYS)
        finally:
            if lease.held:
                await self._write(lease.give_back())

    async def _compress_alone(self, wanted: Wanted, lease: Lease) -> events.CompressionResult:
        automatic = wanted.automatic
        lately = automatic and self._asked_lately()
        self._owed, self._spent = self._owed.plus(self._spent), NO_COST
        for _ in range(1 + _REPLANS):
            attempt = await self._attempt(wanted, lately)
            if isinstance(attempt, events.CompressionResult):
                return attempt
            try:
                outcome = await self._carried_out(attempt, lease)
            except WindowMoved:
                continue
            except SummaryFailed as error:
                return self._given_up(f"the summary failed: {error}", automatic)
            except CompressionFailed as error:
                self._stages_failed("the strategy is left alone", str(error))
                raise
            except RedactFailed as error:
                self._stages_failed("no add compresses", str(error))
                raise CompressionFailed(str(error)) from None
            self.pace.stages_ran()
            after = outcome.view
            rest = self._judged_summary(attempt, after) if outcome.cost.calls else None
            replacements = replacements_of(after)
            if not replacements:
                return self._nothing(self._why_nothing(attempt, outcome), self._spent)
            record = self._record(attempt, outcome, replacements, wanted)
            landed = await self._land(record)
            if landed is not None:
                self._note(attempt.goal, after, rest, landed.cost)
                return _logged(events.result_of(self.id, landed))
        return self._nothing("the window changed shape each time; try again", self._spent)

    async def _attempt(self, wanted: Wanted, lately: bool) -> Attempt | events.CompressionResult:
        """What to set out from, or why there is nothing to do."""
        automatic = wanted.automatic
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
            options, rest, unasked = self._options(summarizer, wanted, lately)
            if rest is not None and not options.write:
                return self._given_up(str(rest), automatic)
            view, goal = self._view(wanted)
            if hopeless := why_hopeless(self._window.pinned_tokens, goal):
                self.notice(_over_budget(self.id, view.tokens, goal.limit, hopeless))
                return self._nothing(f"nothing was changed: {hopeless}")
            pace.begin(summarizer, self._progress)
            return Attempt(view, goal, options, self._window.epoch, summarizer, unasked)

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

    def _judged_summary(self, attempt: Attempt, after: View) -> Rest | None:
        """Notes that the summarizer was asked and how it went; why it rests if that did not pay."""
        gain = _gain(attempt.view, after, attempt.goal)
        return self.pace.answered(gain, self._shared.clock())

    def _note(self, goal: Goal, after: View, rest: Rest | None, cost: Cost) -> None:
        """Tells what is still wrong after a compression that landed."""
        if rest is not None:
            told = failure_notice(self.id, rest.reason, "the compression stands", rest, cost)
            self.notice(told)
        if not goal.within_limit(after):
            self.notice(_over_budget(self.id, after.tokens, goal.limit))

    def _record(
        self,
        attempt: Attempt,
        outcome: Outcome,
        replacements: tuple[Replacement, ...],
        wanted: Wanted,
    ) -> Compressed:
        after = outcome.view
        clauses = [
            self._why_due(attempt.view) if wanted.automatic else "by hand",
            *what_was_done(replacements),
            self._why_summarizer(attempt, outcome, replacements),
            why_short(after, attempt.goal, self._settled.stages),
        ]
        reason = "; ".join(filter(None, clauses))
        return Compressed(
            id=self._shared.new_id(),
            at=self._shared.clock(),
            replacements=replacements,
            reason=reason,
            tokens_before=attempt.view.tokens,
            tokens_after=after.tokens,
            cost=self._owed.plus(self._spent),  # plans that came to nothing were paid for too
            settings=self._settled.observed,
        )

    async def _land(self, record: Compressed) -> Compressed | None:
        """Commits the replacements if every run is still active, unpinned and contiguous.

        What is committed has the tokens of the window in which it lands: entries may have come, and
        others have gone, while it was made.
        """
        for _ in range(_LANDINGS):
            async with self._lock:
                if self._shared.closed:
                    return None
                await self._refresh()
                try:
                    state = self._after(record)
                except Refused:
                    return None
                record = msgspec.structs.replace(
                    record,
                    tokens_before=self._window.tokens,
                    tokens_after=state.window.tokens,
                )
                try:
                    await self._write(self._commit(record, state))
                except StoreConflict:
                    continue  # another process was faster: the same plan, on what there is now
                return record
        return None

    # ------------------------------------------------------------ what to do

    def _summarizer(self) -> Asker | None:
        return self._shared.summarizer(self._config)

    def _view(self, wanted: Wanted) -> tuple[View, Goal]:
        """The window as stages see it, and where to get it."""
        window, target_tokens = self._window, wanted.target_tokens
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
            summary_tokens = max(budget.summary_tokens, SMALLEST_SUMMARY)  # also for a small target
            budget = msgspec.structs.replace(budget, summary_tokens=summary_tokens)
        _, framing = self._contexts_of().around(window, self._meter)
        beside, target = overhead - framing, budget.target_tokens
        # Entries that go take their framing with them.
        limit = (
            max(0, budget.max_tokens - beside) * window.tokens // max(1, window.tokens + framing)
        )
        if target_tokens is None:
            # A large overhead leaves the target its share of the rest, so that there is room to add.
            share = min(target // 2, target * limit // budget.max_tokens)
            low = max(limit - (budget.max_tokens - target), share)
        else:
            low = max(target - beside, target // 2)
        goal = Goal(
            tokens=min(limit, low),
            entries=budget.target_entries,
            limit=limit,
            budget=budget,
            demanded=target_tokens is not None,
            thorough=not wanted.automatic and (target_tokens is None or bool(wanted.summarize)),
        )
        return view_of(window, goal), goal

    def _asked_lately(self) -> bool:
        """Whether too little was added since the summarizer's last good answer to ask it again."""
        pace = self.pace
        known = pace.knows(self._summarizer())
        return known and pace.asked_lately(self._progress, self._budget)

    def _options(
        self, summarizer: Asker | None, wanted: Wanted, lately: bool
    ) -> tuple[SummaryOptions, Rest | None, Unasked]:
        """Whether a summarizer may be asked now, and why not.

        An automatic compression asks once per room that was filled, and not soon after a failure; one
        by hand always, unless the breaker is open. With `summarize` the caller decides.
        """
        configured = summarizer is not None
        if wanted.summarize:
            self._check_summarizes(configured)
        rest = self._resting(summarizer, wanted.automatic) if wanted.summarize is None else None
        why = ""
        if wanted.summarize is False:
            why = "summarize=False"
        elif rest is not None:
            why = rest.recorded
        elif lately:
            why = "it was called lately, and too little is new"
        on_failure = self._config.on_failure
        options = SummaryOptions(
            ask=configured and not why,
            # With "keep" or "raise" no text of ours takes the place of a summarizer that fails.
            write=rest is None or on_failure == "fallback",
            on_failure=on_failure,
            focus=wanted.focus,
            by_hand=not wanted.automatic,
            insist=bool(wanted.summarize),
        )
        return options, rest, Unasked(configured, why)

    def _check_summarizes(self, configured: bool) -> None:
        """Raises `InvalidInput` if no summarizer can be called."""
        if not configured:
            raise InvalidInput(
                "summarize=True needs a summarizer: give the manager one, or pass summarize=False "
                "for a digest"
            )
        if SUMMARISE not in self._settled.stages:
            raise InvalidInput(
                f"summarize=True: the strategy {self._config.strategy!r} has no step 'summarise'"
            )

    def _resting(self, summarizer: Asker | None, automatic: bool) -> Rest | None:
        """Why the summarizer is left alone after failures."""
        pace = self.pace
        if summarizer is None or not pace.knows(summarizer):
            return None
        rest = pace.rest(self._shared.clock)
        if rest is None or rest.open:
            return rest
        again = not automatic or not pace.failed_lately(self._progress, self._budget)
        return None if again else rest

    async def plan(self, wanted: Wanted) -> CompressionPlan:
        """What `compress` would do now, or an add that compresses. Asks nobody, changes nothing."""
        async with self._lock:
            await self.require()
            lately, summarizer = wanted.automatic and self._asked_lately(), self._summarizer()
            options, rest, unasked = self._options(summarizer, wanted, lately)
            view, goal = self._view(wanted)
            epoch = self._window.epoch
            hopeless = why_hopeless(self._window.pinned_tokens, goal)
        after, unchanged = view, hopeless or ("" if rest is None or options.write else str(rest))
        if not unchanged:
            dry = msgspec.structs.replace(options, dry_run=True)
            attempt = Attempt(view, goal, dry, epoch, summarizer, unasked)
            after = (await self._carried_out(attempt, None)).view
        why_old = unchanged or why_kept(after, goal, self._settled.stages)
        return describe(self.id, view, after, goal, options.ask, why_old)

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

    def _why_nothing(self, attempt: Attempt, outcome: Outcome) -> str:
        view, goal, stages = attempt.view, attempt.goal, self._settled.stages
        never = f"the strategy {self._config.strategy!r} never compresses"
        if not goal.within_limit(view):
            reason = _STAYS if stages else never
            self.notice(_over_budget(self.id, view.tokens, goal.limit, reason))
        if not stages:
            return f"nothing was changed: {never}"
        if goal.holds(view.tokens, view.entries) and not view.old_entries:
            why = "every entry is recent or protected"
        elif goal.holds(view.tokens, view.entries) and not goal.thorough:
            why = f"the window has {view.tokens} tokens, and the target is {goal.tokens}"
        else:
            why = what_stays(view, goal, stages)
        summarizer = self._why_summarizer(attempt, outcome, ()) if view.old_entries else ""
        return "; ".join(filter(None, (f"nothing was changed: {why}", summarizer)))

    def _why_due(self, view: View) -> str:
        tokens = view.tokens + self.overhead
        return why_due(tokens, view.entries, self._budget, self._trigger)

    def _why_summarizer(
        self, attempt: Attempt, outcome: Outcome, replacements: Sequence[Replacement]
    ) -> str:
        """Whether the summarizer was called, and why; "" if the strategy never calls one."""
        if SUMMARISE not in self._settled.stages:
            return ""
        methods = [item.method for item in replacements]
        few, problem = why_few(attempt.view, attempt.goal), without_message(outcome.problem)
        return why_summarizer(methods, outcome.cost.calls, problem, attempt.unasked, few)


def _gain(before: View, after: View, goal: Goal) -> float:
    """The share of the window that a compression takes away: of its tokens, or of its entries where
    only they are over.
    """
    most = goal.budget.max_entries
    if most is not None and before.entries > most and before.tokens <= goal.limit:
        return 1 - after.entries / before.entries
    return 1 - after.tokens / before.tokens if before.tokens else 0.0


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
