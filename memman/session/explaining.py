"""Explaining a session: what its log tells, beside what a compression would do now."""

from __future__ import annotations

from memman.errors import CompressionFailed
from memman.explain import Explanation, LogHistory, SummarizerState, Trigger, explained, shares_of
from memman.session.asking import AUTOMATIC, Wanted
from memman.session.compressing import Compressing
from memman.session.reading import Reading


class Explaining(Compressing, Reading):
    """Says what compression did and would do. Asks nobody, changes nothing."""

    __slots__ = ()

    async def explain(self) -> Explanation:
        """Why the window is as it is; reads the era's log."""
        async with self._lock:
            await self.require()
            history = LogHistory(await self._era_log())
            trigger, summarizer = self._sized(), self._summarizer_state()
            shares = shares_of(self._window.items)
            running = self._run is not None or self._preparing
        automatic = self._config.auto_compress
        waits = summarizer.reason if summarizer.holds_up else str(self._stages_rest or "")
        if self._waits_after_undo:
            waits = "a compression was undone, and too little was added since"
        waits, plan = waits if automatic else "", None
        if trigger.over and not waits:
            try:
                plan = await self.plan(AUTOMATIC if automatic else Wanted())
            except CompressionFailed as error:  # of a stage, and nothing that explaining fails of
                waits = str(error)
        statuses = history.entry_statuses().values()
        return explained(
            self.id,
            trigger,
            summarizer,
            running,
            self.pace.last,
            waits,
            plan,
            history.compression_statuses(),
            statuses,
            shares,
        )

    def _sized(self) -> Trigger:
        window, budget, overhead = self._window, self._budget, self.overhead
        return Trigger(
            tokens=window.tokens,
            overhead_tokens=overhead,
            max_tokens=budget.max_tokens,
            target_tokens=budget.target_tokens,
            starts_at_tokens=self._trigger.max_tokens,
            entries=len(window.items),
            max_entries=budget.max_entries,
            starts_at_entries=self._trigger.max_entries,
            target_entries=budget.target_entries,
            over=budget.over(window.tokens + overhead, len(window.items)),
            auto_compress=self._config.auto_compress,
            compresses=bool(self._settled.stages),
            pinned_tokens=window.pinned_tokens,
        )

    def _summarizer_state(self) -> SummarizerState:
        summarizer, lately = self._summarizer(), self._asked_lately()
        options, rest, _ = self._options(summarizer, AUTOMATIC, lately)
        if summarizer is None:
            reason = "none is set; a digest is written without one"
        elif rest is not None:
            reason = str(rest)
        elif lately:
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
