"""The decisions about compressions of one session: when one is due, its goal, and the summarizer."""

from __future__ import annotations

import msgspec

from memman.compression import Goal, SummaryOptions, View, view_of
from memman.compression.composer import SMALLEST_SUMMARY
from memman.config import SUMMARISE, resolve_budget
from memman.errors import InvalidInput
from memman.explain import SummarizerState, Trigger
from memman.session.backoff import Backoff, Rest
from memman.session.context import ContextBuilder
from memman.session.log import SessionLog
from memman.session.reasons import Unasked, why_due
from memman.session.run import RunInput
from memman.session.shared import Shared
from memman.summarizers import Asker


class CompressionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a compression; `automatic` if an add made it."""

    target_tokens: int | None = None
    focus: str | None = None
    summarize: bool | None = None
    automatic: bool = False


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
        tokens, entries = window.tokens + self._contexts.overhead(), len(window.items)
        if not resolved.trigger.over(tokens, entries) or self.waits_after_undo():
            return False
        if resolved.trigger is resolved.budget or resolved.budget.over(tokens, entries):
            return True
        # Only to be prepared: not again and again to no avail.
        return not self.backoff.was_futile_recently(self._log.progress, resolved.budget)

    def why_due(self, before: View) -> str:
        """Return which limit triggered an automatic compression."""
        resolved = self._log.resolved
        tokens = before.tokens + self._contexts.overhead()
        return why_due(tokens, before.entries, resolved.budget, resolved.trigger)

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
        return self.backoff.stages_rest(
            resolved.stages, self._shared.clock(), self._log.progress, resolved.budget
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

    # ------------------------------------------------------------ what

    def input(self, request: CompressionRequest, recent: bool) -> tuple[RunInput, Rest | None]:
        """Return the input of a compression, and the summarizer's pause. Under the log's lock."""
        summarizer = self._summarizer()
        options, rest, unasked = self._options(summarizer, request, recent)
        goal = self._goal(request)
        window = self._log.window
        view = view_of(window, goal)
        return RunInput(
            view, goal, options, window.epoch, summarizer, unasked, self._log.resolved
        ), rest

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
        _, framing = self._contexts.fixed_and_framing()
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

    def has_answered_recently(self) -> bool:
        """Whether too little was added since the summarizer's last good answer to call it again."""
        if not self.backoff.knows(self._summarizer()):
            return False
        return self.backoff.answered_recently(self._log.progress, self._log.resolved.budget)

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
        if summarizer is None or not self.backoff.knows(summarizer):
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
            reason = "none is set; a digest is written without one"
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
