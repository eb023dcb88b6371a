"""Explaining a session: what its log tells, beside what a compression would do now."""

from __future__ import annotations

from memman.explaining import Explanation, SummarizerState, Trail, Trigger, explained
from memman.sessions.compressing import Compressing
from memman.sessions.reading import Reading


class Explaining(Compressing, Reading):
    """Says what compression did and would do. Asks nobody, changes nothing."""

    __slots__ = ()

    async def explain(self) -> Explanation:
        """Why the window is as it is; reads the era's log."""
        async with self._lock:
            await self.require()
            trail = Trail(await self._era_log())
            trigger, summarizer = self._sized(), self._summarizer_state()
            running = self._run is not None or self._queued
        plan = await self.plan(None, None) if trigger.over else None
        fates = trail.entry_fates().values()
        return explained(
            self.id, trigger, summarizer, running, plan, trail.compression_fates(), fates
        )

    def _sized(self) -> Trigger:
        window, budget, overhead = self._window, self._budget, self.overhead
        return Trigger(
            tokens=window.tokens,
            overhead_tokens=overhead,
            max_tokens=budget.max_tokens,
            target_tokens=budget.target_tokens,
            entries=len(window.slots),
            max_entries=budget.max_entries,
            target_entries=budget.target_entries,
            over=budget.over(window.tokens + overhead, len(window.slots)),
            auto_compress=self._config.auto_compress,
        )

    def _summarizer_state(self) -> SummarizerState:
        configured = self._shared.summarizer(self._config) is not None
        may_be_asked = self._options(None, automatic=True).ask
        return SummarizerState(
            configured=configured,
            may_be_asked=may_be_asked,
            reason=self._why(configured, may_be_asked),
        )

    def _why(self, configured: bool, may_be_asked: bool) -> str:
        if not configured:
            return "none is set; a digest is written without one"
        failed = "it failed when it was last asked; " if self._failed else ""
        if may_be_asked:
            return f"{failed}it may be asked now"
        return (
            f"{failed}it is not asked again before as much was added as lies between target and limit "
            "(a compression by hand asks it)"
        )
