"""The decisions about compressions of one session: when one is due, its goal, and the summarizer."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from memman.compression import Goal
from memman.compression.composer import SMALLEST_SUMMARY
from memman.compression.continuation import LivePrefix
from memman.compression.summarize import SummaryOptions
from memman.compression.view import view_of
from memman.config import LEAST_STATE, ROOM_SHARE, SUMMARISE, Budget
from memman.counting.pricing import LEAST_BREAK, CachePrices, cache_prices
from memman.errors import InvalidInput
from memman.events import CompressionPlan
from memman.explain.cache_state import CacheState, cache_state
from memman.explain.explanation import SummarizerState, Trigger
from memman.formats.turns import STATE_END, STATE_HEAD
from memman.session.backoff import Backoff, Rest, is_recent
from memman.session.context import ContextBuilder
from memman.session.log import SessionLog
from memman.session.reasons import Unasked, why_due, why_early
from memman.session.run import RunInput
from memman.session.shared import Shared
from memman.summarizers import Asker

_LEAST_FRAMES = 3  # of an outline's delimiters: it must be worth them
_ROOM_A_TOKEN = 1.5  # of the user's messages, with what stands around them
_LEAST_BESIDE = 16  # tokens of other entries than the newest exchange
# Of the range from target to limit: what must be filled for a compression when the cache has expired.
# With a quarter, more of the needed values are lost (docs/explanation/cost.md).
COLD_SHARE = 0.5


class CompressionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a compression; `automatic` if an add made it.

    It is early if the provider's cache has expired, at `expired_at`, and the window is within its limits.
    """

    target_tokens: int | None = None
    focus: str | None = None
    keep: tuple[str, ...] = ()
    summarize: bool | None = None
    automatic: bool = False
    expired_at: datetime | None = None

    @property
    def room_share(self) -> float:
        """The share of the range to the limit that must be new before the summarizer is called again."""
        return ROOM_SHARE if self.expired_at is None else COLD_SHARE


AUTOMATIC = CompressionRequest(automatic=True)


class CompressionPolicy:
    """Decides on the window, the settings and the failures so far; it changes nothing."""

    __slots__ = ("_contexts", "_log", "_shared", "backoff")

    def __init__(self, shared: Shared, log: SessionLog, contexts: ContextBuilder) -> None:
        self._shared = shared
        self._log = log
        self._contexts = contexts
        self.backoff = Backoff()

    def use(self, backoff: Backoff) -> None:
        """Continue with the failures of an evicted session, or with none."""
        self.backoff = backoff

    # ------------------------------------------------------------ when

    def is_due(self) -> bool:
        """Whether the window is so large that a compression should begin."""
        window, resolved = self._log.window, self._log.resolved
        tokens, entries = window.tokens + self._contexts.overhead(), len(window.shown_items)
        if not resolved.trigger.over(tokens, entries) or self.waits_after_undo():
            return False
        if resolved.trigger is resolved.budget or resolved.budget.over(tokens, entries):
            return True
        # Only to be prepared: not again and again to no avail.
        return not self.backoff.was_futile_recently(self._log.progress, resolved.budget)

    def due(self) -> CompressionRequest | None:
        """Return the compression that an add should begin now; None if none is due."""
        if self.is_due():
            return AUTOMATIC
        expired_at = self.cache_expires_at() if self._is_due_soon() else None
        if expired_at is None or expired_at >= self._shared.clock() or not self._pays_when_cold():
            return None
        return CompressionRequest(automatic=True, expired_at=expired_at)

    def cache_expires_at(self) -> datetime | None:
        """Return when the provider's cache of the last request expires; None if no request is known."""
        ttl = self._log.resolved.config.cache_ttl
        if ttl is None:
            return None
        requested_at = self._contexts.requested_at(self._shared.clock())
        return requested_at and requested_at + timedelta(seconds=ttl)

    def _is_due_soon(self) -> bool:
        """Whether the window is so large that a compression may begin early if the cache has expired.

        It leaves more tokens than the shortest prefix that providers cache.
        """
        resolved = self._log.resolved
        budget, tokens = resolved.budget, self._log.window.tokens + self._contexts.overhead()
        early = budget.prepared(COLD_SHARE).max_tokens
        return bool(resolved.stages) and tokens > max(early, budget.target_tokens + LEAST_BREAK)

    def _pays_when_cold(self) -> bool:
        """Whether a compression pays if the whole window is written to the provider's cache again.

        In the background it would end after the next request. An outline in place of a summary loses
        more than the compression saves.
        """
        config, budget = self._log.resolved.config, self._log.resolved.budget
        if not config.compress_when_cold or config.background or self.waits_after_undo():
            return False
        if self.backoff.was_futile_recently(self._log.progress, budget):
            return False
        summarizer, recent = self._summarizer(), self.has_answered_recently(COLD_SHARE)
        may_ask = summarizer is None or self._options(summarizer, AUTOMATIC, recent)[0].ask
        return may_ask and self._cache_prices().write > 0

    def _cache_prices(self) -> CachePrices:
        """Return the prices of the provider's cache for the session's model."""
        config = self._log.resolved.config
        prices = None if config.model is None else self._shared.prices(config.model)
        return cache_prices(prices, self._log.window.tokens, config.cache_ttl)

    def cache(self, plan: CompressionPlan | None) -> CacheState | None:
        """Return the state of the provider's cache and the cost of a plan to it; None if it is unknown."""
        expires_at = self.cache_expires_at()
        if expires_at is None:
            return None
        due = self.due() if self._log.resolved.config.auto_compress else None
        early = due is not None and due.expired_at is not None
        return cache_state(expires_at, self._shared.clock(), plan, self._cache_prices(), early)

    def why_due(self, given: RunInput, request: CompressionRequest) -> str:
        """Return the trigger of a compression, with the figures."""
        if not request.automatic:
            return "by hand"
        resolved, entries = self._log.resolved, given.view.entries
        tokens, budget = given.tokens + self._contexts.overhead(), resolved.budget
        if request.expired_at is None:
            return why_due(tokens, entries, budget, resolved.trigger)
        expired = self._shared.clock() - request.expired_at
        return why_early(tokens, budget, budget.prepared(COLD_SHARE), expired)

    def waits_after_undo(self) -> bool:
        """Whether too little was added since the caller undid a compression to redo it."""
        totals, budget = self._log.totals, self._log.resolved.budget
        return is_recent(totals.undone, (totals.tokens, totals.entries), budget, 1)

    def stages_rest(self) -> Rest | None:
        """Return until when no add runs the strategy because a stage or `redact` failed."""
        resolved, now, progress = self._log.resolved, self._shared.clock(), self._log.progress
        return self.backoff.stages_rest(resolved.stages, now, progress, resolved.budget)

    def trigger(self) -> Trigger:
        """Return the window's size and the limits that trigger a compression."""
        resolved, window, overhead = self._log.resolved, self._log.window, self._contexts.overhead()
        budget, entries = resolved.budget, len(window.shown_items)
        return Trigger(
            tokens=window.tokens,
            overhead_tokens=overhead,
            max_tokens=budget.max_tokens,
            target_tokens=budget.target_tokens,
            starts_at_tokens=resolved.trigger.trigger_tokens,
            entries=entries,
            max_entries=budget.max_entries,
            starts_at_entries=resolved.trigger.max_entries,
            target_entries=budget.target_entries,
            over=budget.over(window.tokens + overhead, entries),
            auto_compress=resolved.config.auto_compress,
            compresses=bool(resolved.stages),
            pinned_tokens=window.pinned_tokens,
        )

    # ------------------------------------------------------------ what

    def input(self, request: CompressionRequest, recent: bool) -> tuple[RunInput, Rest | None]:
        """Return the input of a compression, and the summarizer's pause. Under the log's lock."""
        summarizer = self._summarizer()
        options, rest, unasked = self._options(summarizer, request, recent)
        goal = self._goal(request, options.ask)
        window, resolved = self._log.window, self._log.resolved
        view, epoch, tokens = view_of(window, goal), window.epoch, window.tokens
        given = RunInput(view, goal, options, epoch, summarizer, unasked, resolved, tokens)
        return given, rest

    def _goal(self, request: CompressionRequest, asks: bool) -> Goal:
        resolved, window = self._log.resolved, self._log.window
        target_tokens, budget = request.target_tokens, resolved.budget
        if target_tokens is not None:
            if target_tokens > budget.max_tokens:
                raise InvalidInput(
                    f"target_tokens={target_tokens} is above the trigger, max_tokens="
                    f"{budget.max_tokens}: there would be nothing to do"
                )
            budget = self._shared.budget(resolved.config, target_tokens)
            summary_tokens = max(budget.summary_tokens, SMALLEST_SUMMARY)  # also for a small target
            budget = msgspec.structs.replace(budget, summary_tokens=summary_tokens)
        _, framing = self._contexts.fixed_and_framing()
        fixed, target = self._contexts.overhead() - framing, budget.target_tokens
        # Entries that go take their framing with them.
        left = max(0, budget.trigger_tokens - fixed)
        limit = left * window.tokens // max(1, window.tokens + framing)
        if target_tokens is None:
            # A large overhead leaves the target its share of the rest, so that there is room to add.
            share = min(target // 2, target * limit // budget.trigger_tokens)
            tokens = max(limit - (budget.trigger_tokens - target), share)
        else:
            tokens = max(target - fixed, target // 2)
        tokens = min(limit, tokens)
        thorough = not request.automatic and (target_tokens is None or bool(request.summarize))
        free = limit - window.pinned_tokens
        demanded = target_tokens is not None
        room = None if thorough else tokens
        newest = window.exchanges[-1].tokens if window.exchanges else 0
        asked = next((item.tokens for item in reversed(window.items) if item.is_users), 0)
        most = max(tokens // 2, tokens - newest - asked - _LEAST_BESIDE)
        if newest + asked > tokens:  # the target is out of reach: the user's words stay anyway
            most = max(most, 2 * LEAST_STATE)
        outline = min(self._outline_room(budget, free, room, False), most)
        if demanded and not budget.recent_window:
            outline = tokens - sum(each for each in (newest, asked) if each <= tokens // 2)
        state_tokens = self._outline_room(budget, free, room, True) if asks else outline
        before = 0 if window.state is None else window.state.item.tokens
        if not asks or resolved.budget.state_tokens:  # it stays if nothing else changes
            state_tokens = max(state_tokens, min(before, tokens // 2))
        budget = msgspec.structs.replace(
            budget,
            state_tokens=max(budget.state_tokens, state_tokens),
            summary_tokens=budget.summary_tokens if asks else 0,
        )
        return Goal(
            tokens=tokens - (min(state_tokens, tokens // 2) if asks else state_tokens),
            entries=budget.target_entries and budget.target_entries - bool(outline),
            limit=limit - state_tokens,
            budget=budget,
            demanded=demanded,
            thorough=thorough,
            state_tokens=state_tokens,
            outline_tokens=outline,
            recall=self._shared.recall_name(self._log.id),
        )

    def _outline_room(self, budget: Budget, free: int, target: int | None, asks: bool) -> int:
        """Return the most tokens of the outline, of `free` ones that pinned entries leave.

        They grow with the tokens that leave the window for a target. Without a summarizer the outline has
        the room of its summary too. All messages of the user get their room if it is at most half the
        target.
        """
        window, counter = self._log.window, self._log.resolved.counter
        before = 0 if window.state is None else window.state.item.tokens
        leaving = max(0, window.tokens - before - (target or 0))
        if budget.target_entries is not None and len(window.shown_items) > budget.target_entries:
            leaving = max(leaving, free)  # many small entries leave
        grown = before + (leaving if target is None else leaving // 3)
        room = min(budget.state_tokens, free // 6, grown)
        if not asks and SUMMARISE in self._log.resolved.stages:
            # Of a window with many pinned entries, its share of the rest.
            summary = budget.summary_tokens * max(0, free) // max(1, free + window.pinned_tokens)
            room += min(summary, int(budget.compression_ratio * (before + leaving)))
        room = min(room, free, before + int(budget.compression_ratio * leaving))
        if room < _LEAST_FRAMES * counter.text_cached(STATE_HEAD + STATE_END):
            room = 0
        said = sum(item.tokens for item in window.items if item.is_users and not item.pinned)
        said += 0 if window.state is None else window.state.user_tokens
        users = int(said * _ROOM_A_TOKEN) + LEAST_STATE
        half = budget.target_tokens // 2
        if target is not None and window.exchanges and window.exchanges[-1].tokens > target:
            half = max(half, 2 * LEAST_STATE)
        most = min(self._log.resolved.budget.state_tokens, half, free // 2, before + leaving)
        return max(room, users) if said and users <= most else room

    def _summarizer(self) -> Asker | None:
        return self._shared.summarizer(self._log.resolved.config)

    def live_prefix(self, summarizer: Asker | None) -> LivePrefix | None:
        """Return the last request if the summarizer may continue it, and the provider has it cached.

        It must be a request to the session's own model, and its text must need no redaction.
        """
        config = self._log.resolved.config
        if summarizer is None or not config.summarize_on_prefix:
            return None
        sent = self._contexts.last_request(self._shared.clock())
        if sent is None or config.summary_prompt is not None or self._shared.redact is not None:
            return None
        form = sent.request.format
        if not all(summarizer.continues(form, model) for model in (config.model, sent.model)):
            return None
        room = config.summarizer_window or summarizer.max_input_tokens
        return LivePrefix(sent.request, sent.head, sent.tokens, room)

    def has_answered_recently(self, share: float = ROOM_SHARE) -> bool:
        """Whether too little was added since the summarizer's last good answer to call it again.

        `share` is that of the range from target to limit that must be filled.
        """
        if self.backoff.summarizer is not self._summarizer():
            return False
        return self.backoff.answered_recently(self._log.progress, self._log.resolved.budget, share)

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
            why = "it was called recently, and too little was added"
        on_failure = self._log.resolved.config.on_failure
        options = SummaryOptions(
            ask=configured and not why,
            # With "keep" or "raise" no outline takes the place of a summarizer that fails.
            write=rest is None or on_failure == "fallback",
            on_failure=on_failure,
            focus=request.focus,
            keep=request.keep,
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
                "to do without"
            )
        if SUMMARISE not in resolved.stages:
            raise InvalidInput(
                f"summarize=True: the strategy {resolved.config.strategy!r} has no step 'summarise'"
            )

    def _pause(self, summarizer: Asker | None, request: CompressionRequest) -> Rest | None:
        """Return the pause of the summarizer that holds for this request."""
        if summarizer is None or summarizer is not self.backoff.summarizer:
            return None
        rest = self.backoff.rest(self._shared.clock())
        if rest is None or rest.open:
            return rest
        recent = self.backoff.failed_recently(self._log.progress, self._log.resolved.budget)
        return rest if request.automatic and recent else None

    def summarizer_state(self) -> SummarizerState:
        """Return whether an automatic compression may call the summarizer now, and why not."""
        summarizer, recent = self._summarizer(), self.has_answered_recently()
        options, rest, _ = self._options(summarizer, AUTOMATIC, recent)
        if summarizer is None:
            reason = "none is set; the outline does without one"
        elif rest is not None:
            reason = str(rest)
        elif recent:
            reason = (
                "it answered, and is not called again before most of the room between target and limit "
                "is filled (a compression by hand calls it)"
            )
        else:
            reason = "it may be called now"
        return SummarizerState(
            configured=summarizer is not None,
            may_be_asked=options.ask,
            reason=reason,
            holds_up=rest is not None and not options.write,
        )
