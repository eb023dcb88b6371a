"""Carrying out compressions: when one is due, what it may ask, and how its outcome lands.

What is decided is decided by the pure functions of `memman.compression`; the summarizer is asked
outside every lock and transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar
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
    stages_of,
    view_of,
)
from memman.config import resolve_budget
from memman.doors import Lock
from memman.entries import Entry
from memman.errors import CompressionFailed, InvalidInput, MemmanError, Refused, StoreConflict
from memman.ports import SummaryReply, SummaryRequest, SummaryUsage
from memman.records import Added, Compressed, Cost
from memman.sessions.live import LiveWindow
from memman.window import Slot, replaced_in

logger = logging.getLogger("memman")

_REPLANS = 2  # how often a compression plans again after the window changed shape meanwhile
_ANOTHER_RUNS = "another compression of this session is running"
# The compressions that this thread or task is part of. A task made by a summarizer inherits them, and
# is free again once they have ended: a run is known by an object of its own.
_compressing: ContextVar[frozenset[object]] = ContextVar("compressing", default=frozenset())
_ASK_SHARE = 0.8  # of the room between low and high water must be new before a summarizer is asked


class Compressing(LiveWindow):
    """Brings the window down to low water, one compression at a time per session."""

    __slots__ = ()

    def _over(self) -> bool:
        tokens = self._window.tokens
        entries = len(self._window.slots)
        most = self._budget.max_entries
        if tokens <= self._calm_tokens and (most is None or entries <= most):
            return False
        return self._budget.over(tokens + self.overhead, entries)

    async def _compress_after_add(self) -> None:
        """An automatic compression: nothing that goes wrong in it reaches the caller of `add`."""
        if self._config.background:
            if not self._queued:
                self._queued = True
                self._shared.door.start(self._compress_quietly)
        else:
            await self._compress_quietly()

    async def _compress_quietly(self) -> None:
        self._queued = False
        try:
            await self.compress(automatic=True)
        except MemmanError as error:
            logger.warning("the automatic compression of session %s failed: %s", self.id, error)
            await self.tell(
                events.CompressionFailedNotice(
                    session_id=self.id, reason=str(error), fallback="nothing was changed"
                )
            )
        except Exception:  # of a store: it comes again at the next verb, to somebody who can act
            logger.exception("the automatic compression of session %s failed", self.id)

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
            result = await self._compress_alone(target_tokens, focus, automatic)
        finally:
            self._run = None
            _compressing.reset(token)
            await lock.__aexit__(None, None, None)
        await self._drain()
        return result

    def _compression_lock(self) -> Lock:
        with self._thread_lock:
            if self._compress_lock is None:
                self._compress_lock = self._shared.door.lock()
            return self._compress_lock

    async def _compress_alone(
        self, target_tokens: int | None, focus: str | None, automatic: bool
    ) -> events.CompressionResult:
        for _ in range(1 + _REPLANS):
            async with self._lock:
                await self.require()
                if automatic and not self._over():
                    return self._nothing("within the limits")
                options = self._options(focus, automatic)
                if self._failed and not options.ask and not options.write:
                    return self._nothing(
                        "the summarizer failed lately; on_failure keeps everything"
                    )
                configured = self._shared.summarizer(self._config) is not None
                view, goal = self._view(target_tokens, spare=configured and not options.ask)
            try:
                after, cost = await self._carried_out(view, goal, options)
            except SummaryFailed as error:
                self._failed = True
                if self._config.on_failure == "raise" and not automatic:
                    raise CompressionFailed(f"nothing was changed: {error}") from error
                return self._nothing(f"the summary failed and nothing was changed: {error}")
            if not after.changed:
                return self._nothing(self._why_nothing(view, goal))
            record = Compressed(
                id=self._shared.new_id(),
                at=self._shared.clock(),
                replacements=replacements_of(after),
                reason="manual" if not automatic else self._why_over(view),
                tokens_before=view.tokens,
                tokens_after=after.tokens,
                cost=cost,
            )
            if await self._land(record):
                if not goal.within_limit(after):
                    self.notice(_over_budget(self.id, after.tokens, goal.limit))
                return events.result_of(self.id, record)
        return self._nothing("the window changed shape each time; try again")

    async def _land(self, record: Compressed) -> bool:
        """Commits the replacements if every run is still active, unpinned and contiguous."""
        while True:
            async with self._lock:
                await self._refresh()
                try:
                    window = self._window
                    slots, touched = replaced_in(window.slots, record, window.head + 1)
                except Refused:
                    return False
                try:
                    await self._write(self._commit(record, slots, touched))
                except StoreConflict:
                    continue  # another process was faster: the same plan, on what there is now
                return True

    # ------------------------------------------------------------ what to do

    def _view(self, target_tokens: int | None, spare: bool = False) -> tuple[View, Goal]:
        """The window as stages see it, and where to get it: to low water, or with `spare` just below
        the limits, so that a summary is not spent while its summarizer may not be asked again.
        """
        window = self._window
        budget = self._budget
        overhead = self.overhead
        if target_tokens is not None:
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

    def _options(self, focus: str | None, automatic: bool) -> SummaryOptions:
        """Whether a summarizer may be asked now: by hand always, else once per room that was filled."""
        configured = self._shared.summarizer(self._config) is not None
        ask = configured and not (automatic and self._asked_recently())
        # With "keep" or "raise" no text of ours takes a summarizer's place while it may not be asked.
        write = ask or not configured or self._config.on_failure == "fallback"
        on_failure = self._config.on_failure
        return SummaryOptions(ask=ask, write=write, on_failure=on_failure, focus=focus)

    def _asked_recently(self) -> bool:
        """Whether less was added since the summarizer was asked than lies between the water marks."""
        if self._asked_at is None:
            return False
        tokens, entries = self._asked_at
        budget = self._budget
        if self._added_tokens - tokens >= _ASK_SHARE * (budget.max_tokens - budget.target_tokens):
            return False
        if budget.max_entries is None or budget.target_entries is None:
            return True
        room = budget.max_entries - budget.target_entries
        return self._added_entries - entries < _ASK_SHARE * room

    async def plan(self, target_tokens: int | None, focus: str | None) -> CompressionPlan:
        """What `compress` would do now. Asks nobody, changes nothing."""
        async with self._lock:
            await self.require()
            view, goal = self._view(target_tokens)
        options = msgspec.structs.replace(self._options(focus, False), dry_run=True)
        after, _ = await self._carried_out(view, goal, options)
        return describe(self.id, view, after, goal, options.ask)

    def _nothing(self, reason: str) -> events.CompressionResult:
        tokens = self._window.tokens
        return events.CompressionResult(
            session_id=self.id,
            compression_id=None,
            tokens_before=tokens,
            tokens_after=tokens,
            reason=reason,
        )

    def _why_nothing(self, view: View, goal: Goal) -> str:
        if goal.met(view):
            return f"already at low water ({view.tokens} of {goal.tokens} tokens)"
        if not goal.within_limit(view):
            self.notice(_over_budget(self.id, view.tokens, goal.limit))
        return "nothing may go: all that is left is pinned, recent, or too little to be worth it"

    def _why_over(self, view: View) -> str:
        tokens = view.tokens + self.overhead
        if tokens > self._budget.max_tokens:
            return f"{tokens} tokens are over {self._budget.max_tokens}"
        return f"{view.entries} entries are over {self._budget.max_entries}"

    # ------------------------------------------------------------ doing it

    async def _carried_out(
        self, view: View, goal: Goal, options: SummaryOptions
    ) -> tuple[View, Cost]:
        """Drives the plan: waits for summaries, tells of problems."""
        config, shared = self._config, self._shared
        options = msgspec.structs.replace(
            options,
            window=self._summarizer_window(),
            prompt=config.summary_prompt,
            redact=None if shared.redact is None else self._clean,
        )
        plan = make_plan(view, goal, shared.craft(self._meter), stages_of(config.strategy), options)
        cost = Cost()
        answer: Any = None
        while True:
            try:
                wanted = plan.send(answer)
            except StopIteration as end:
                return end.value, cost
            if isinstance(wanted, SummaryProblem):
                self.notice(
                    events.CompressionFailedNotice(
                        session_id=self.id, reason=wanted.reason, fallback=wanted.fallback
                    )
                )
                logger.warning("summary of session %s: %s", self.id, wanted.reason)
                await self._drain()
                answer = None
            elif isinstance(wanted, OriginalsWanted):
                answer = await self._originals(wanted.slots)
            else:
                began = self._shared.clock()
                answer = await self._summary(wanted)
                cost = cost.plus(_cost(answer, (self._shared.clock() - began).total_seconds()))

    def _summarizer_window(self) -> int:
        """How many tokens the summarizer takes in one call."""
        summarizer = self._shared.summarizer(self._config)
        own = getattr(summarizer, "max_input_tokens", None)
        return self._config.summarizer_window or own or UNKNOWN_WINDOW

    def _clean(self, entry: Entry) -> Entry:
        """The entry as `redact` leaves it: it may come from an import, or from another manager."""
        try:
            return self._shared.redacted(entry)
        except InvalidInput as error:
            raise CompressionFailed(f"no summary was made: {error}") from error

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

    async def _summary(self, request: SummaryRequest) -> SummaryReply | SummaryFailure:
        """Asks the summarizer, outside every lock and transaction."""
        summarizer = self._shared.summarizer(self._config)
        request = msgspec.structs.replace(request, timeout=self._config.summarize_timeout)
        self._asked_at = (self._added_tokens, self._added_entries)
        self._failed = True  # until there is an answer
        try:
            reply = await self._shared.door.ask(
                lambda: summarizer.summarize(request),
                self._config.summarize_timeout,
                summarizer.is_async,
            )
        except Exception as error:
            logger.debug("summarizer failed", exc_info=True)
            return SummaryFailure(f"{type(error).__name__}: {error}")
        if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
            return SummaryFailure(f"the summarizer returned {type(reply).__name__}, not text")
        self._failed = False
        return reply


def _cost(answer: SummaryReply | SummaryFailure, seconds: float) -> Cost:
    """What one call of the summarizer cost, whether it answered or failed."""
    reply = answer if isinstance(answer, SummaryReply) else None
    usage = (reply.usage if reply else None) or SummaryUsage()
    model = reply.model if reply else None
    return Cost(1, seconds, usage.input_tokens, usage.output_tokens, model)


def _over_budget(session_id: str, tokens: int, limit: int) -> events.OverBudget:
    return events.OverBudget(
        session_id=session_id,
        tokens=tokens,
        max_tokens=limit,
        reason="what is left is pinned or the newest exchange",
    )
