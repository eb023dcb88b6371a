"""A log on its way through a manager, with every promise checked after every message.

After each message a context is built in both providers' formats and checked by the rules. At the
end the log is compared with the source, and the exported session with itself read back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memman import events
from memman.cli.answers import DemoAnswer, DemoCompression
from memman.cli.display import counted
from memman.cli.fitting import enough
from memman.cli.reading import Log
from memman.config import MemoryConfig
from memman.entries import TokenCount
from memman.errors import BudgetExceeded
from memman.formats.rules import check
from memman.manager import MemoryManager
from memman.report.usage import usage_of

TARGETS = ("openai-chat", "anthropic")
# How a method is told: for one entry, and for more.
_DID = {
    "stub": ("1 result cleared", "{} results cleared"),
    "fold": ("1 repeat folded", "{} repeats folded"),
    "summary": ("summary of 1 entry", "summary of {} entries"),
    "digest": ("digest of 1 entry", "digest of {} entries"),
    "drop": ("1 entry dropped", "{} entries dropped"),
    "clip": ("1 entry clipped", "{} entries clipped"),
}


def line_of(done: DemoCompression, arrow: str, budget: int) -> str:
    """A compression as one line, with its reason where the tokens do not say it."""
    did = [_DID[method][count > 1].format(count) for method, count in done.replaced.items()]
    why = "" if done.tokens_before > budget else f" ({done.reason})"
    change = f"{done.tokens_before:>6,} {arrow} {done.tokens_after:>5,} tokens"
    return f"{f'#{done.number}':>5}  entry {done.entry:<4} {change}  {', '.join(did)}{why}"


def faults_of(report: DemoAnswer) -> tuple[str, ...]:
    """The promises that were broken, each with an example."""
    told = []
    if report.over_budget:
        told.append(f"{counted(report.over_budget, 'context is', 'contexts are')} over budget")
    if report.required is not None:
        refused = counted(len(report.refused), "context")
        told.append(
            f"{refused} could not be built within {report.budget:,} tokens, the largest needs "
            f"{report.required:,}"
            + (f"; a budget of {report.enough:,} is enough" if report.enough else "")
        )
    if report.violations:
        broken = counted(len(report.violations), "rule is", "rules are")
        told.append(f"{broken} broken, the first is {report.violations[0]}")
    if report.entries_lost:
        lost = counted(report.entries_lost, "entry is", "entries are")
        told.append(f"{lost} not in the log as they came")
    if not report.import_equals_export:
        told.append("the session read back differs from what was written")
    return tuple(told)


class Run:
    """Plays one log into one session and keeps what was seen on the way."""

    def __init__(self, log: Log, session_id: str, budget: int, model: str | None) -> None:
        self.log = log
        self.session_id = session_id
        self.budget = budget
        self.model = model
        self.memory = MemoryManager(model=model, config=MemoryConfig(max_tokens=budget))
        # The session keeps them, so that its file says by itself what it was held to.
        self.memory.update_config(session_id, model=model, max_tokens=budget)
        self._compressions: list[DemoCompression] = []
        self._happened: list[events.CompressionResult] = []
        self._contexts = dict.fromkeys(TARGETS, 0)
        self._largest = self._over = 0
        self._refused: list[str] = []
        self._required: int | None = None
        self._violations: list[str] = []

    def counter(self) -> TokenCount:
        """Which counter answers for the model, and how far it is to be trusted."""
        return self.memory.count_tokens(self.log.name)

    def play(self, tell: Callable[[DemoCompression], None], step: Callable[[], None]) -> DemoAnswer:
        """Adds every message; `tell` hears of each compression, `step` of each message."""
        added: list[str] = []

        def remember(_sender: Any, event: events.CompressionResult) -> None:
            self._happened.append(event)

        with events.compressed.connected_to(remember, sender=self.memory):
            for ids in self.log.play(self.memory, self.session_id):
                added += ids
                self._told(tell, len(added))
                self._build(len(added))
                step()
        return self._report(added)

    def _build(self, entries: int) -> None:
        """Builds and checks a context for each provider."""
        active = self.memory.get_active_entries(self.session_id)
        if all(entry.role == "system" for entry in active):
            return  # instructions alone are nothing to send yet
        for target in TARGETS:
            self._built(target, entries)

    def _built(self, target: str, entries: int) -> None:
        try:
            context = self.memory.build_context(self.session_id, format=target)
        except BudgetExceeded as error:
            self._refused.append(f"{target} after entry {entries}: {error}")
            self._required = max(self._required or 0, error.required)
            return
        self._contexts[target] += 1
        tokens = context.tokens.tokens
        self._largest = max(self._largest, tokens)
        self._over += tokens > self.budget
        for fault in check(context.messages, target, system=context.system):
            where = f"{target} after entry {entries}, message {fault.index}"
            self._violations.append(f"{where}: {fault.rule}: {fault.message}")

    def _told(self, tell: Callable[[DemoCompression], None], entries: int) -> None:
        """Tells the compressions that adding the last message brought about."""
        for event in self._happened:
            done = DemoCompression(
                number=len(self._compressions) + 1,
                entry=entries,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
                reason=event.reason,
                replaced=_replaced(event),
            )
            self._compressions.append(done)
            tell(done)
        self._happened.clear()

    def _report(self, added: list[str]) -> DemoAnswer:
        stats = self.memory.get_stats(self.session_id)
        count = self.counter()
        return DemoAnswer(
            log=self.log.name,
            format=self.log.format,
            model=self.model,
            counter=count.counter,
            method=count.method,
            accuracy=count.accuracy,
            budget=self.budget,
            messages=len(self.log),
            entries=len(self.log.facts),
            tokens=stats.total_tokens,
            compressions=tuple(self._compressions),
            contexts=self._contexts,
            largest=self._largest,
            over_budget=self._over,
            refused=tuple(self._refused),
            required=self._required,
            violations=tuple(self._violations),
            entries_lost=self._lost(added),
            import_equals_export=self._comes_back(),
            usage=usage_of(self.memory, self.session_id),
        )

    def _lost(self, added: list[str]) -> int:
        """How many entries of the source are not in the log at their place, as they came."""
        kept = [
            (entry.id, entry.type, entry.role, entry.content)
            for entry in self.memory.get_entries(self.session_id)
        ]
        came = [(name, *fact) for name, fact in zip(added, self.log.facts, strict=False)]
        missing = sum(one != other for one, other in zip(came, kept, strict=False))
        return missing + abs(len(self.log.facts) - len(kept))

    def _comes_back(self) -> bool:
        state = self.memory.export_session(self.session_id)
        other = MemoryManager()
        other.import_session(state.to_json())
        return other.export_session(self.session_id) == state


def _replaced(event: events.CompressionResult) -> dict[str, int]:
    counts = dict.fromkeys(_DID, 0)
    for item in event.replacements:
        counts[item.method] += len(item.ids)
    return {method: count for method, count in counts.items() if count}


def enough_for(log: Log, report: DemoAnswer) -> int | None:
    """A budget at which every context of the log can be built; None when none is missing or found."""

    def required_at(budget: int) -> int | None:
        return Run(log, "tried", budget, report.model).play(lambda _: None, lambda: None).required

    if report.required is None:
        return None
    return enough(report.budget, report.required, required_at)
